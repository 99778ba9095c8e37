"""A notice: something that a person should know, such as a job that waits for a confirmation."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from typing import Any, Literal

import msgspec

ID_HEX_DIGITS = 32


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One message to people.

    `message` is one sentence that a person understands; `at` is the time it speaks of, with a time zone;
    `detail` is JSON that a program, or the rest of an e-mail, can use.
    """

    kind: Literal["confirmation_reminder"] = "confirmation_reminder"
    job_id: str
    task: str
    user: str | None
    message: str
    at: datetime
    detail: dict[str, Any] = {}

    @property
    def id(self) -> str:
        """The same for the same notice, in every attempt and every process: receivers drop repeats by it."""
        return sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:ID_HEX_DIGITS]


def one_line(text: object) -> str:
    """The text without line breaks, control characters or anything else that could pass for structure."""
    return "".join(character if character.isprintable() else " " for character in str(text))
