"""How far a long command is, on one line of a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

EVERY_SECONDS = 0.1
FIRST_AFTER_SECONDS = 0.5


class Progress:
    """`1,200 of 5,000 retried`, rewritten in place on stderr while the block runs, and gone at its end.

    A pipe gets nothing, and neither does work that is done at once.
    """

    def __init__(self, done_word: str, *, total: int, shown: bool = True) -> None:
        self._word = done_word
        self._total = total
        self._done = 0
        self._shown = shown and sys.stderr.isatty()
        self._is_written = False
        self._next_at = time.monotonic() + FIRST_AFTER_SECONDS

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_written:
            self._write("")

    def add(self, number: int) -> None:
        self._done += number
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + EVERY_SECONDS
            self._write(f"{self._done:,} of {self._total:,} {self._word}")

    def _write(self, text: str) -> None:
        if self._shown:
            self._is_written = True
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
