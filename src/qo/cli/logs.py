"""The log of a command: plain lines for people, JSON lines for machines."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from qo.cli.terminal import harmless, is_coloured, painted

COLOURS = (
    (re.compile(r": succeeded$"), "green"),
    (re.compile(r": (failed|cancelled)\b"), "red"),
    (re.compile(r": confirming$"), "yellow"),
    (re.compile(r"^starting "), "cyan"),
    (re.compile(r"^-- "), "bright_black"),
)
"""The colour of a line by its words; the first that fits. Warnings and errors have one by their level."""
AN_ID = re.compile(r"\b([0-9A-HJKMNP-TV-Z]{12})[0-9A-HJKMNP-TV-Z]{14}\b")


class PlainLines(logging.Formatter):
    """With `width`, only the first line of a message, with shortened ids and no longer than that: the demo's log is
    read by people, and it must show no secret, which a traceback has."""

    def __init__(self, *, width: int | None = None, coloured: bool = False) -> None:
        super().__init__()
        self._width = width
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        message = harmless(record.getMessage())
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        at = f"{datetime.fromtimestamp(record.created).astimezone():%H:%M:%S}"
        if self._width is not None:
            message = AN_ID.sub(r"\1", message.partition("\n")[0])
            message = _cut(message, self._width - len(f"{at} {level}"))
        if not self._coloured:
            return f"{at} {level}{message}"
        colour = _colour_of(record.levelno, message)
        return f"{painted(at, None, dim=True)} {painted(level + message, colour) if colour else message}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def _colour_of(level: int, message: str) -> str | None:
    if level >= logging.ERROR:
        return "red"
    if level >= logging.WARNING:
        return "yellow"
    return next((colour for words, colour in COLOURS if words.search(message)), None)


class JsonLines(logging.Formatter):
    def __init__(self, *, brief: bool) -> None:
        super().__init__()
        self._brief = brief

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        line = {
            "at": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message.partition("\n")[0] if self._brief else message,
        }
        return msgspec.json.encode(line).decode()


class Warnings(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"Warning: {harmless(record.getMessage())}"


def show_log(stream: TextIO, *, as_json: bool, level: int = logging.INFO, width: int | None = None) -> None:
    """Write the worker's log to the stream, as it happens. With `width`, one line of that length for each event."""
    plain = PlainLines(width=width, coloured=is_coloured(stream))
    _send("qo", stream, JsonLines(brief=width is not None) if as_json else plain, level)


def show_warnings(stream: TextIO, *, as_json: bool) -> None:
    """Write only warnings to the stream, beside the command's output."""
    _send("qo", stream, JsonLines(brief=True) if as_json else Warnings(), logging.WARNING)


class Handler(logging.StreamHandler[TextIO]):
    """Stops the worker, as SIGTERM would, when the reader of its log has gone (`qo up --demo | head`)."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            super().handleError(record)
            return
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())
        signal.raise_signal(signal.SIGTERM)


def _send(logger: str, stream: TextIO, formatter: logging.Formatter, level: int) -> None:
    handler = Handler(stream)
    handler.setFormatter(formatter)
    log = logging.getLogger(logger)
    log.handlers = [handler]
    log.setLevel(level)
    log.propagate = False
