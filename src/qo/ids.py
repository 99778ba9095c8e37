"""Ids that clients make, so that sending something twice has one effect."""

from __future__ import annotations

import os
from functools import lru_cache

from qo.clock import system_ms

ALPHABET = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's: no I, L, O or U to misread
CHARACTER_OF_BYTE = ALPHABET * 8
RANDOM_CHARACTERS = 16
DEBUG_ID_CHARACTERS = 10
MARK_BYTES = 12
SECRET_BYTES = 32


def new_id() -> str:
    """A ULID: 48 bits of milliseconds, then 80 random ones, so that ids sort by the time they were made."""
    return _characters_of(system_ms()) + os.urandom(RANDOM_CHARACTERS).translate(CHARACTER_OF_BYTE).decode()


@lru_cache(maxsize=1)
def _characters_of(milliseconds: int) -> str:
    """Cached, because many ids are made in the same millisecond."""
    return bytes([ALPHABET[milliseconds >> shift & 31] for shift in range(45, -1, -5)]).decode()


def new_debug_id() -> str:
    """Short enough for a user to read out to an operator, who searches the log for it."""
    return os.urandom(DEBUG_ID_CHARACTERS).translate(CHARACTER_OF_BYTE).decode()


def new_mark() -> str:
    """Tells one write or one call from every other. Not meant for people."""
    return os.urandom(MARK_BYTES).hex()


def new_secret() -> bytes:
    """Bytes that nobody can guess, for API keys and signatures."""
    return os.urandom(SECRET_BYTES)
