"""Tables of one line a row: what does not fit a terminal is left out by columns, and never wrapped."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from qo.cli.terminal import painted

BETWEEN = "  "
LEAST = 10
"""Columns of free text are cut to so many characters at the least."""


class Column(msgspec.Struct, frozen=True):
    """One column of a table. Empty columns are not shown."""

    name: str
    cells: Sequence[str]
    leaves: int = 0
    """Which column is left out first in a narrow terminal: the one with the largest number. 0: it always stays."""
    least: int | None = None
    """Cells may be cut to so many characters where everything does not fit, and end in `…` then. None: never."""
    is_number: bool = False
    colours: Sequence[str | None] = ()
    """The colour of each cell."""


def table(columns: Sequence[Column], *, width: int | None, coloured: bool) -> list[str]:
    """The lines of a table for a terminal of this width; None: everything is shown, however wide."""
    shown = [column for column in columns if any(column.cells)]
    widths = {column.name: _natural_width(column) for column in shown}
    if width is not None:
        shown = _that_fit(shown, widths, width)
        widths = _cut_to_fit(shown, widths, width)
    header = BETWEEN.join(_cell(column.name, column, widths) for column in shown).rstrip()
    lines = [painted(header, None, bold=True) if coloured else header]
    for row in range(len(shown[0].cells) if shown else 0):
        lines.append(_line(shown, widths, row, coloured=coloured))
    return lines


def _line(columns: Sequence[Column], widths: dict[str, int], row: int, *, coloured: bool) -> str:
    cells = [_cell(column.cells[row], column, widths) for column in columns]
    cells[-1] = cells[-1].rstrip()  # trailing blanks would disturb a program that reads the line
    if coloured:
        colours = [column.colours[row] if column.colours else None for column in columns]
        cells = [painted(cell, colour) if colour else cell for cell, colour in zip(cells, colours, strict=True)]
    return BETWEEN.join(cells).rstrip()


def _natural_width(column: Column) -> int:
    return max(_width(text) for text in (column.name, *column.cells))


def _least_width(column: Column, natural: int) -> int:
    return natural if column.least is None else min(natural, max(_width(column.name), column.least))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(BETWEEN) * (len(widths) - 1)


def _that_fit(columns: Sequence[Column], widths: dict[str, int], width: int) -> list[Column]:
    kept = list(columns)
    while _total([_least_width(column, widths[column.name]) for column in kept]) > width:
        least_wanted = max(kept, key=lambda column: column.leaves)
        if least_wanted.leaves == 0:
            break
        kept.remove(least_wanted)
    return kept


def _cut_to_fit(columns: Sequence[Column], widths: dict[str, int], width: int) -> dict[str, int]:
    """The widths with the widest columns cut, as far as that is needed and allowed."""
    fitting = {column.name: widths[column.name] for column in columns}
    least = {column.name: _least_width(column, widths[column.name]) for column in columns}
    while _total(list(fitting.values())) > width:
        can_shrink = [name for name in fitting if fitting[name] > least[name]]
        if not can_shrink:
            break
        fitting[max(can_shrink, key=lambda name: fitting[name])] -= 1
    return fitting


def _cell(text: str, column: Column, widths: dict[str, int]) -> str:
    width = widths[column.name]
    text = _cut(text, width) if _width(text) > width else text
    blanks = " " * (width - _width(text))
    return blanks + text if column.is_number else text + blanks


def _cut(text: str, width: int) -> str:
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1).rstrip() + "…"


def _width(text: str) -> int:
    """How many columns of a terminal the text takes; a Chinese character takes two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
