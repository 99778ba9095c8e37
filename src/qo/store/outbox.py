"""The outbox of a store that does not keep its history itself: what a recorder has to write elsewhere.

A record is added in the same step as the change it is about: a job was accepted, an attempt ended, a job ended, or an
audit entry was written. It stays until a recorder says that it was recorded.
"""

# pyright: reportReturnType=false
# Because the operations of a contract have a docstring and no body.
from __future__ import annotations

from typing import Protocol

import msgspec


class OutboxOptions(msgspec.Struct, frozen=True, kw_only=True):
    most: int
    """At how many records the outbox is full. 0 stands for no outbox."""
    drops: bool = False
    """A full outbox drops and counts new records. Otherwise, submits are refused while it is full."""
    payloads: bool = False
    """Whether records have the payloads and results of jobs."""


class OutboxStatus(msgspec.Struct, frozen=True, kw_only=True):
    options: OutboxOptions
    length: int
    """How many records wait for a recorder."""
    dropped: int
    """How many records were dropped, ever."""
    age_seconds: float
    """How long the oldest record has waited; 0 where none waits."""


class OutboxEntry(msgspec.Struct, frozen=True):
    """All records of one step, packed. The last has `id`, those before it have the numbers before that."""

    id: int
    packed: bytes


class OutboxPortion(msgspec.Struct, frozen=True, kw_only=True):
    entries: tuple[OutboxEntry, ...]
    """The oldest ones, in their order."""
    length: int
    """How many records the outbox has, these included."""


class Outbox(Protocol):
    namespace: str
    """The name of the queue. The history of one queue is one database."""

    async def configure(self, options: OutboxOptions) -> None:
        """Switch the outbox on, with these options, or off. Switched off, it is emptied, and nothing is added."""

    async def next(
        self, recorded: OutboxEntry | None, *, after: OutboxEntry | None = None, entries: int, bytes_at_most: int
    ) -> OutboxPortion:
        """Remove the entry that was recorded, with all before it, and return the oldest of the others: those behind
        `after`, if it is given.

        An entry that the store no longer has exactly so counts as not given: the store has lost its newest data
        meanwhile, so what stands before that id may be new.
        """

    async def status(self) -> OutboxStatus: ...
