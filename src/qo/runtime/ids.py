"""Ids that clients make, so that sending something twice has one effect."""

from __future__ import annotations

import os
import time

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's: no I, L, O or U to misread
PAIRS = [first + second for first in ALPHABET for second in ALPHABET]
RANDOM_BITS = 80
CHARACTERS = 26
DEBUG_ID_CHARACTERS = 10


def new_id() -> str:
    """A ULID: 48 bits of milliseconds, then 80 random ones, so that ids sort by the time they were made."""
    return _encode(time.time_ns() // 1_000_000 << RANDOM_BITS | _random(RANDOM_BITS), CHARACTERS)


def new_debug_id() -> str:
    """Short enough to be read out to somebody who looks for it in the log."""
    return _encode(_random(5 * DEBUG_ID_CHARACTERS), DEBUG_ID_CHARACTERS)


def _random(bits: int) -> int:
    """So many of the system's, and perhaps some more."""
    return int.from_bytes(os.urandom((bits + 7) // 8), "big")


def _encode(number: int, characters: int) -> str:
    """An even number of characters, two at a time; what the number has beyond them is left out."""
    return "".join([PAIRS[number >> shift & 1023] for shift in range(5 * characters - 10, -1, -10)])
