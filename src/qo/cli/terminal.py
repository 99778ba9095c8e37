"""Text for people in a terminal: its width, its colours, and nothing in it that could rewrite the screen.

Imports little: an error of `qo --help` is printed from here.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import TextIO

import click

HARMFUL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters except tab and newline, and those that change the direction of writing."""
NARROWEST = 40
"""Sentences are not wrapped to fewer columns: one word a line is harder to read than a wrap by the terminal."""


def say(text: str) -> None:
    """Print a line for people, wrapped between words in a terminal. Control characters that came with a job are
    removed."""
    click.echo(wrapped(harmless(text), width_of(sys.stdout)))


def say_as_it_is(text: str) -> None:
    """The same without wrapping, for a text that people copy."""
    click.echo(harmless(text))


def note(text: str) -> None:
    """Print a remark for people on stderr, beside the command's output."""
    line = wrapped(harmless(text), width_of(sys.stderr))
    click.echo(painted(line, None, dim=True) if is_coloured(sys.stderr) else line, err=True, color=True)


def complain(text: str) -> None:
    """Print an error for people on stderr."""
    text = wrapped(f"Error: {harmless(text)}", width_of(sys.stderr))
    if is_coloured(sys.stderr):
        text = painted("Error:", "red", bold=True) + text.removeprefix("Error:")
    click.echo(text, err=True, color=True)


def is_coloured(stream: TextIO) -> bool:
    """Whether text for this stream may have colours: a terminal, unless NO_COLOR is set; FORCE_COLOR wins over both."""
    if os.environ.get("FORCE_COLOR"):
        return True
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def painted(text: str, colour: str | None, *, bold: bool = False, dim: bool = False) -> str:
    """The text in this colour, for a stream that `is_coloured`."""
    return click.style(text, fg=colour, bold=bold or None, dim=dim or None)


def width_of(stream: TextIO) -> int | None:
    """The columns of the terminal that the stream goes to; None for a pipe or a file."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def wrapped(text: str, width: int | None) -> str:
    """The text with no line longer than this, broken between words only."""
    if width is None:
        return text
    return "\n".join(_wrapped_line(line, max(width, NARROWEST)) for line in text.split("\n"))


def _wrapped_line(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    import textwrap

    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def harmless(text: str) -> str:
    """The text without characters that could recolour, retitle, rewrite or reorder a line of a terminal."""
    return text if text.isprintable() else HARMFUL.sub("�", text)
