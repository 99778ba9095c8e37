"""Tables of the command: one line a row, in any terminal."""

from __future__ import annotations

from itertools import pairwise

import pytest
from rich.cells import cell_len

from qo.cli.job_ids import id_column
from qo.cli.table import LEAST, Column, table
from qo.cli.terminal import harmless, wrapped
from qo.ids import new_id
from qo.policy.words import brief_range, brief_span

COLUMNS = [
    Column("#", ["1", "2"], is_number=True),
    Column("task", ["build of a very long name that nobody expected", "王小明王小明王小明王小明"], least=LEAST),
    Column("user", ["ada", "ben"], leaves=1),
    Column("tier", ["partner", ""], leaves=2),
    Column("parent", ["", ""]),
]


@pytest.mark.parametrize("width", [24, 30, 40, 80])
def test_every_line_fits_the_terminal(width: int) -> None:
    lines = table(COLUMNS, width=width, coloured=False)

    assert len(lines) == 3
    assert all(cell_len(line) <= width for line in lines)


def test_a_narrow_terminal_loses_the_least_wanted_columns_first() -> None:
    shown = [table(COLUMNS, width=width, coloured=False)[0].split() for width in (80, 24, 14)]

    assert shown == [["#", "task", "user", "tier"], ["#", "task", "user"], ["#", "task"]]


def test_a_pipe_gets_everything_whole_and_no_empty_column() -> None:
    header, first, _ = table(COLUMNS, width=None, coloured=False)

    assert header.split() == ["#", "task", "user", "tier"]
    assert "build of a very long name that nobody expected" in first


def test_a_cut_text_ends_in_dots_and_keeps_the_columns_aligned() -> None:
    _, first, second = table(COLUMNS, width=30, coloured=False)

    assert "… " in first
    assert cell_len(first[: first.index("ada")]) == cell_len(second[: second.index("ben")])


def test_colours_do_not_change_the_widths() -> None:
    coloured = Column("status", ["failed", "queued"], colours=["red", None])

    _, failed, queued = table([coloured, Column("user", ["ada", "ben"])], width=80, coloured=True)

    assert failed == "\x1b[31mfailed\x1b[0m  ada"
    assert queued == "queued  ben"


def test_in_a_pipe_ids_are_whole() -> None:
    ids = [new_id(), "order-2026-117"]

    assert list(id_column("id", ids).cells) == ids


def test_shortened_ids_of_one_moment_are_long_enough_to_tell_them_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qo.cli.job_ids.width_of", lambda stream: 80)
    ids = sorted({"01M7QHKPYA" + new_id()[10:] for _ in range(300)})

    cells = id_column("id", [*ids, "order-2026-117"]).cells

    assert len(set(cells)) == len(ids) + 1
    assert cells[-1] == "order-2026-117"
    assert all(whole.startswith(short) for whole, short in zip(ids, cells, strict=False))
    assert all(a != b for a, b in pairwise(sorted(cells)))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (-3, "0 s"), (45.9, "45 s"), (60, "1 min"), (5400, "90 min"), (7200, "2 h"), (200_000, "2 d")],
)
def test_a_brief_span_has_one_number_and_a_short_unit(seconds: float, text: str) -> None:
    assert brief_span(seconds) == text


@pytest.mark.parametrize(
    ("lower", "upper", "text"),
    [
        (840, 1560, "14-26 min"),
        (20, 45, "20-45 s"),
        (45, 200, "45 s-3 min"),
        (61, 119, "1 min"),
        (5400, 9000, "90 min-2 h"),
    ],
)
def test_a_brief_range_names_a_shared_unit_once(lower: float, upper: float, text: str) -> None:
    assert brief_range(lower, upper) == text


def test_control_and_direction_characters_do_not_reach_a_terminal() -> None:
    assert harmless("a\x1b[31mb\r\x9b\u202ec\u2066 d\te\nf 👩‍💻") == "a�[31mb���c� d\te\nf 👩‍💻"


def test_sentences_are_broken_between_words_only() -> None:
    path = "/a/path/" + "that-is-longer-than-a-line" * 4

    lines = wrapped(f"The file {path} is not there; the first job makes it, or a worker.", 60).splitlines()

    assert path in " ".join(lines)
    assert all(len(line) <= 60 or path in line for line in lines)
    assert wrapped("x" * 500 + " y", None) == "x" * 500 + " y"
