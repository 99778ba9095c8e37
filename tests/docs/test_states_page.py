"""docs/states.md and its picture show the transitions that `policy/lifecycle.py` allows, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from qo.job import State
from qo.policy.lifecycle import NEXT
from tools.site.states_picture import picture

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "states.md").read_text()
ALLOWED = sorted((present.value, wanted.value) for present, row in NEXT.items() for wanted in row)


def test_the_picture_draws_every_transition_once() -> None:
    drawn = re.findall(r'<(?:path|tspan) id="(\w+)-(\w+)"', picture())

    assert sorted(drawn) == ALLOWED


def test_the_picture_in_the_pages_is_the_present_one() -> None:
    """`python -m tools.site.states_picture` writes it anew."""
    assert (DOCS / "images/states.svg").read_text() == picture()


def test_the_table_explains_every_transition_once() -> None:
    explained = re.findall(r"^\| (\w+) \| (\w+) \| [A-Z`].+\. \|$", PAGE, re.MULTILINE)

    assert sorted(explained) == ALLOWED


def test_the_plain_drawing_names_every_state() -> None:
    drawing = PAGE.split("```")[1]

    assert [state.value for state in State if state.value not in drawing] == []
