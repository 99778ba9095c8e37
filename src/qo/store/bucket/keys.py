"""The keys: `concurrency/{group}/slots/{n}` and `concurrency/{group}/limit` below the prefix of the url."""

from __future__ import annotations

import hashlib
import re

from qo.store.check_value import MAX_COUNT

ROOT = "concurrency"
PROBES = "probes"
MAX_SLOTS = 1000
"""of a group: each acquire lists them all"""

LONGEST_NAME_BYTES = 400
"""A whole key has 1024 bytes at most, and the prefix wants its share."""
_KEPT = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:")
_SLOT = re.compile("(0|[1-9][0-9]{0,9})")


def group_folder(group: str) -> str:
    return f"{ROOT}/{encoded(group)}"


def limit_key(group: str) -> str:
    return f"{group_folder(group)}/limit"


def slot_key(group: str, slot_id: int) -> str:
    return f"{group_folder(group)}/slots/{slot_id}"


def slot_of(group: str, key: str) -> int | None:
    """The slot that a key of this group stands for; None for its limit, and for whatever else lies there."""
    found = _SLOT.fullmatch(key.removeprefix(f"{group_folder(group)}/slots/"))
    return int(found[1]) if found and int(found[1]) <= MAX_COUNT else None


def name_of(part: str) -> str | None:
    """The name that `encoded` made this of; None: one too long to be read back, or a part that it did not make."""
    unescaped = re.sub(rb"=([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), part.encode())
    try:
        name = unescaped.decode()
    except UnicodeDecodeError:
        return None
    return name if encoded(name) == part else None


def encoded(name: str) -> str:
    """A name as one part of a key. Different names give different parts, and none is a step up or down.

    Not percent-encoded: between a client and a bucket there are proxies and servers that decode twice, and then
    `a%2Fb` is `a/b`.
    """
    escaped = "".join(chr(byte) if byte in _KEPT else f"={byte:02X}" for byte in name.encode())
    if escaped.startswith("."):
        escaped = f"=2E{escaped[1:]}"
    if len(escaped) <= LONGEST_NAME_BYTES:
        return escaped
    # No short name has a `~`, so a digest is never taken for one.
    return f"{escaped[:100]}~{hashlib.sha256(name.encode()).hexdigest()}"
