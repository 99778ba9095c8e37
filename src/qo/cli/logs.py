"""The log of a command: plain lines for people, JSON lines for machines."""

from __future__ import annotations

import logging
import os
import signal
import sys
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from qo.cli.output import harmless


class PlainLines(logging.Formatter):
    """With `brief`, only the first line of a message: the demo must show no secret, and a traceback has them."""

    def __init__(self, *, brief: bool) -> None:
        super().__init__()
        self._brief = brief

    def format(self, record: logging.LogRecord) -> str:
        message = harmless(record.getMessage())
        if self._brief:
            message = message.partition("\n")[0]
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return f"{datetime.fromtimestamp(record.created).astimezone():%H:%M:%S} {level}{message}"


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


def show_log(stream: TextIO, *, as_json: bool, brief: bool = False) -> None:
    """Write the worker's log to the stream, as it happens."""
    _send("qo", stream, JsonLines(brief=brief) if as_json else PlainLines(brief=brief), logging.INFO)


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
