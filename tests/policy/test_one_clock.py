"""One clock, one source of randomness, one maker of ids: what else asks for the time would decide by another clock."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import qo

SOURCE = Path(qo.__file__).parent
ALLOWED = {
    "clock.py": {"time.time_ns"},
    "chance.py": {"random"},
    "ids.py": {"os.urandom"},
    # A bucket has no clock. What it keeps for people has this machine's; nothing is decided by it.
    "store/bucket/clocks.py": {"datetime.now"},
}
CALLS = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today", "os.urandom"}
CALLS |= {"uuid.uuid1", "uuid.uuid4"}
MODULES = {"random", "secrets"}


def modules() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if path.relative_to(SOURCE).parts[0] != "cli"]


def found_in(tree: ast.Module) -> set[str]:
    """What of the above a module uses, also under another name."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or ""} & MODULES
            found |= {f"{node.module}.{alias.name}" for alias in node.names} & CALLS
        elif isinstance(node, ast.Attribute):
            *_, owner = ast.unparse(node.value).split(".")
            found |= {f"{owner}.{node.attr}"} & CALLS
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_asks_no_clock_and_no_chance_of_its_own(path: Path) -> None:
    found = found_in(ast.parse(path.read_text()))

    assert found == ALLOWED.get(path.relative_to(SOURCE).as_posix(), set())


@pytest.mark.parametrize(
    "code",
    [
        "import time\nnow = time.time()",
        "from time import time_ns",
        "from datetime import datetime\nclock = datetime.now",
        "import datetime\nnow = datetime.datetime.now()",
        "import random as chance",
        "from secrets import token_hex",
        "import os\nos.urandom(3)",
        "from uuid import uuid4",
    ],
)
def test_the_look_notices_a_second_clock(code: str) -> None:
    assert found_in(ast.parse(code))
