"""What `qo doctor` finds."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """Something that is wrong, or soon will be, and what to do about it."""

    about: str
    wrong: str
    do: str
