"""Who makes a change, as the audit trail keeps it: one text, so that stores need not look into it."""

from __future__ import annotations

import msgspec

SEPARATOR = "\x1f"
"""No name has it."""


class Actor(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A person or program: by name, the role of their key, the address they came from, and the batch of actions that
    the change is a part of."""

    name: str | None = None
    role: str | None = None
    address: str | None = None
    batch: str | None = None

    def text(self) -> str:
        """What goes into a store as `by`. A name alone is just that name."""
        parts = (self.name, self.role, self.address, self.batch)
        return SEPARATOR.join(part or "" for part in parts).rstrip(SEPARATOR)


def parts_of(by: str) -> list[str]:
    return by.split(SEPARATOR)


def actor_of(by: str | None) -> Actor:
    name, role, address, batch, *_ = (*parts_of(by or ""), "", "", "")
    return Actor(name=name or None, role=role or None, address=address or None, batch=batch or None)
