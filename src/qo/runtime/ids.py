"""Ids that clients make, so that sending something twice has one effect."""

from __future__ import annotations

import os
import time

ALPHABET = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's: no I, L, O or U to misread
CHARACTER_OF_BYTE = ALPHABET * 8
RANDOM_CHARACTERS = 16
DEBUG_ID_CHARACTERS = 10


def new_id() -> str:
    """A ULID: 48 bits of milliseconds, then 80 random ones, so that ids sort by the time they were made."""
    now = time.time_ns() // 1_000_000
    moment = bytes([now >> shift & 31 for shift in range(45, -1, -5)])
    return (moment + os.urandom(RANDOM_CHARACTERS)).translate(CHARACTER_OF_BYTE).decode()


def new_debug_id() -> str:
    """Short enough to be read out to somebody who looks for it in the log."""
    return os.urandom(DEBUG_ID_CHARACTERS).translate(CHARACTER_OF_BYTE).decode()
