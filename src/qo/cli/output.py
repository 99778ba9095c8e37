"""How a command prints: sentences and tables for people, one JSON document for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec

WIDE = 10_000
"""The width in characters of a table that goes to a pipe, so that no cell is cut."""


def say(text: str) -> None:
    """Print a line for people. Control characters that came with a job are removed."""
    click.echo(harmless(text))


def show_json(value: Any) -> None:
    """Print one JSON document on a line of its own."""
    click.echo(msgspec.json.encode(value))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, whole: Sequence[str] = ("id",)) -> None:
    """Print a table. `whole` columns are never wrapped, so that an id can be copied from a narrow terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(Text(column), no_wrap=column in whole, overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if cell is None else harmless(str(cell))) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else WIDE, highlight=False)
    with console.capture() as capture:
        console.print(table)
    # Rich fills lines with blanks up to the table's width, which would disturb the program that reads them.
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()), color=True)


def show_fields(fields: Sequence[tuple[str, object]]) -> None:
    """Print names and values below each other; fields without a value are left out."""
    shown = [(name, harmless(str(value))) for name, value in fields if value is not None and value != ""]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"  {name:<{width}}  " + value.replace("\n", f"\n  {'':<{width}}  "))


def harmless(text: str) -> str:
    """The text without characters that could recolour, retitle or rewrite a terminal."""
    return "".join(
        character if character in "\n\t" or not (ord(character) < 32 or 127 <= ord(character) < 160) else "�"
        for character in text
    )
