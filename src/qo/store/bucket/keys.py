"""The keys: `concurrency/{group}/slots/{n}` and `concurrency/{group}/limit` below the prefix of the url."""

from __future__ import annotations

import hashlib
import re

from qo.policy.checks import MAX_COUNT

ROOT = "concurrency"
PROBES = "probes"
MAX_SLOTS = 1000
"""The most slots that a group may have, because each acquire lists them all."""

LONGEST_NAME_BYTES = 400
"""A whole key may have 1024 bytes, and part of that is for the prefix."""
_KEPT = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:")
_SLOT = re.compile("(0|[1-9][0-9]{0,9})")


def group_folder(group: str) -> str:
    return f"{ROOT}/{encoded(group)}"


def limit_key(group: str) -> str:
    return f"{group_folder(group)}/limit"


def slot_key(group: str, slot_id: int) -> str:
    return f"{group_folder(group)}/slots/{slot_id}"


def slot_of(group: str, key: str) -> int | None:
    """The number of the slot whose key this is; None for the key of the limit, or any other key."""
    found = _SLOT.fullmatch(key.removeprefix(f"{group_folder(group)}/slots/"))
    return int(found[1]) if found and int(found[1]) <= MAX_COUNT else None


def name_of(part: str) -> str | None:
    """The name that `encoded` turned into this part; None when it was too long, or was not made by `encoded`."""
    unescaped = re.sub(rb"=([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), part.encode())
    try:
        name = unescaped.decode()
    except UnicodeDecodeError:
        return None
    return name if encoded(name) == part else None


def encoded(name: str) -> str:
    """A name as one part of a key. Different names give different parts, and no part leads into another folder.

    Not percent-encoded: some proxies and servers decode twice, which would turn `a%2Fb` into `a/b`.
    """
    escaped = "".join(chr(byte) if byte in _KEPT else f"={byte:02X}" for byte in name.encode())
    if escaped.startswith("."):
        escaped = f"=2E{escaped[1:]}"
    if len(escaped) <= LONGEST_NAME_BYTES:
        return escaped
    # A short name never contains `~`, so it cannot be equal to a shortened one.
    return f"{escaped[:100]}~{hashlib.sha256(name.encode()).hexdigest()}"
