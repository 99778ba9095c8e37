"""The names by which a store knows callers without a job. No two owners share one, and no job or limiter has one."""

from __future__ import annotations

import hashlib

from qo.policy.checks import MAX_NAME_CHARACTERS, check_name
from qo.spans import whole_ms

MAX_HOLDER_CHARACTERS = 100
LONGEST_OWNER = MAX_NAME_CHARACTERS - MAX_HOLDER_CHARACTERS - len("semaphore:project::")


def callers_of(kind: str, owner: str) -> str:
    """The prefix of the names of an owner's holders."""
    return f"{kind}:{_short_and_without_colon(owner)}:"


def check_holder(holder: str) -> None:
    check_name("holder", holder, longest=MAX_HOLDER_CHARACTERS)


def milliseconds(seconds: float) -> int:
    return max(1, whole_ms(seconds))


def _short_and_without_colon(owner: str) -> str:
    """A name that can stand before a colon and a holder. It is different for each owner."""
    escaped = owner.replace("%", "%25").replace(":", "%3A")
    if len(escaped) <= LONGEST_OWNER:
        return escaped
    return "%sha256-" + hashlib.sha256(owner.encode()).hexdigest()
