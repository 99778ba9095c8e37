"""The documents name tests; these tests are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_every_guarantee_names_tests_that_exist() -> None:
    named = NAMED_TEST.findall((ROOT / "docs/guarantees.md").read_text())

    missing = [f"{file}::{test}" for file, test in named if not exists(file, test)]

    assert len(named) > 30
    assert missing == []


def test_every_row_of_the_guarantees_names_a_test() -> None:
    rows = [line for line in (ROOT / "docs/guarantees.md").read_text().splitlines() if line.startswith("| ")]
    statements = [row for row in rows if not row.endswith("| shown by |")]

    without = [row for row in statements if not NAMED_TEST.search(row)]

    assert without == []


def exists(file: str, test: str) -> bool:
    path = ROOT / file
    if not path.exists():
        return False
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = {node.name for node in ast.parse(path.read_text()).body if isinstance(node, functions)}
    return not test or test in names
