"""What type checkers say about programs that use the public API."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RIGHT = "tests/typing/right_programs.py"
WRONG = "tests/typing/wrong_programs.py"
MYPY_ERROR = re.compile(r"^(tests/typing/\w+\.py):(\d+): error: .*  \[([\w-]+)\]$", re.MULTILINE)
EXPECTED = re.compile(r"# error: ([\w-]+), (\w+)$")

Found = dict[tuple[str, int], set[str]]
"""By file and line, the codes of the errors there."""


def expected(checker: int) -> Found:
    """The marked lines of the wrong programs. `checker` is the place of its code in the mark."""
    lines = enumerate((ROOT / WRONG).read_text().splitlines(), start=1)
    marks = {number: mark for number, line in lines if (mark := EXPECTED.search(line))}
    return {(WRONG, number): {mark[checker]} for number, mark in marks.items()}


def found_by_mypy() -> Found:
    # Not excluded here: mypy checks files that are named, whatever its configuration excludes.
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", RIGHT, WRONG]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert printed.returncode == 1, printed.stdout + printed.stderr
    found: Found = defaultdict(set)
    for file, line, code in MYPY_ERROR.findall(printed.stdout):
        found[file, int(line)].add(code)
    return found


def found_by_pyright() -> Found:
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", RIGHT, WRONG]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert printed.returncode == 1, printed.stdout + printed.stderr
    found: Found = defaultdict(set)
    for diagnostic in json.loads(printed.stdout)["generalDiagnostics"]:
        if diagnostic["severity"] == "error":
            file = Path(diagnostic["file"]).relative_to(ROOT).as_posix()
            found[file, diagnostic["range"]["start"]["line"] + 1].add(diagnostic["rule"])
    return found


def check_found(found: Found, wanted: Found) -> None:
    assert len(wanted) > 20
    assert set(found) == set(wanted)
    assert {place: codes for place, codes in wanted.items() if not codes <= found[place]} == {}


def test_mypy_accepts_the_right_programs_and_refuses_the_wrong_ones() -> None:
    check_found(found_by_mypy(), expected(checker=1))


@pytest.mark.nightly
def test_pyright_accepts_the_right_programs_and_refuses_the_wrong_ones() -> None:
    check_found(found_by_pyright(), expected(checker=2))
