"""docs/states.md shows the transitions that `policy/lifecycle.py` allows, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from qo.job import State
from qo.policy.lifecycle import NEXT

PAGE = (Path(__file__).parents[2] / "docs/states.md").read_text()
ALLOWED = sorted((present.value, wanted.value) for present, row in NEXT.items() for wanted in row)


def test_the_diagram_draws_every_transition_once() -> None:
    drawn = re.findall(r"^    (\w+) --> (\w+): .+$", PAGE, re.MULTILINE)

    assert sorted(drawn) == ALLOWED


def test_the_table_explains_every_transition_once() -> None:
    explained = re.findall(r"^\| (\w+) \| (\w+) \| [A-Z`].+\. \|$", PAGE, re.MULTILINE)

    assert sorted(explained) == ALLOWED


def test_the_diagram_ends_where_nothing_follows() -> None:
    final = re.findall(r"^    (\w+) --> \[\*\]$", PAGE, re.MULTILINE)

    assert sorted(final) == sorted(state.value for state, row in NEXT.items() if not row)


def test_the_plain_drawing_names_every_state() -> None:
    drawing = PAGE.split("```")[1]

    assert [state.value for state in State if state.value not in drawing] == []
