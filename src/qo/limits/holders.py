"""How callers without a job are known to a store: by names that no two owners share, and no job or limiter has."""

from __future__ import annotations

import hashlib

from qo.store.check_value import MAX_NAME_CHARACTERS, check_name

MAX_HOLDER_CHARACTERS = 100
LONGEST_OWNER = MAX_NAME_CHARACTERS - MAX_HOLDER_CHARACTERS - len("semaphore:project::")


def callers_of(kind: str, owner: str) -> str:
    """What the names of an owner's holders begin with."""
    return f"{kind}:{_short_and_without_colon(owner)}:"


def check_holder(holder: str) -> None:
    check_name("holder", holder, longest=MAX_HOLDER_CHARACTERS)


def milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _short_and_without_colon(owner: str) -> str:
    """A name as it can stand before a colon and a holder: no two owners have the same."""
    escaped = owner.replace("%", "%25").replace(":", "%3A")
    if len(escaped) <= LONGEST_OWNER:
        return escaped
    return "%sha256-" + hashlib.sha256(owner.encode()).hexdigest()
