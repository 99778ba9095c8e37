"""How a command prints what it has found: tables and fields for people, one JSON document for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from qo.cli.table import Column, table
from qo.cli.terminal import harmless, is_coloured, painted, width_of, wrapped


def warn(text: str, *, as_json: bool = False) -> None:
    """Print a warning on stderr, beside the command's output."""
    if as_json:
        click.echo(msgspec.json.encode({"level": "warning", "message": text}), err=True)
        return
    line = wrapped(f"Warning: {harmless(text)}", width_of(sys.stderr))
    click.echo(painted(line, "yellow") if is_coloured(sys.stderr) else line, err=True, color=True)


def show_json(value: Any) -> None:
    """Print one JSON document on a line of its own."""
    click.echo(msgspec.json.encode(value))


def show_table(columns: Sequence[Column]) -> None:
    """Print a table that fits the terminal, one line a row. In a pipe nothing is left out or cut."""
    shown = [
        msgspec.structs.replace(column, cells=[_one_line(harmless(cell)) for cell in column.cells])
        for column in columns
    ]
    for line in table(shown, width=width_of(sys.stdout), coloured=is_coloured(sys.stdout)):
        click.echo(line, color=True)


def show_fields(fields: Sequence[tuple[str, object]], *, as_they_are: Sequence[str] = ()) -> None:
    """Print names and values below each other; fields without a value are left out. Long values are wrapped between
    words in a terminal, except `as_they_are`: JSON that people copy."""
    shown = [(name, harmless(str(value))) for name, value in fields if value is not None and value != ""]
    indent = 4 + max((len(name) for name, _ in shown), default=0)
    width = width_of(sys.stdout)
    for name, value in shown:
        fitting = value if name in as_they_are or width is None else wrapped(value, width - indent)
        click.echo(f"  {name:<{indent - 4}}  " + fitting.replace("\n", f"\n{'':<{indent}}"))


def _one_line(text: str) -> str:
    return " ".join(text.split()) if "\n" in text or "\t" in text else text
