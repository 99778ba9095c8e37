"""The rules' numbers reach the Lua functions from Python, and are written nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import qo
from qo.store.redis.server import functions
from qo.store.redis.server.constants import CONSTANTS, Constant, in_lua

LUA_FILES = sorted((Path(qo.__file__).parent / "store" / "redis").glob("*/*.lua"))
DEFINED = re.compile(r"^\s*local ([A-Z][A-Z_, ]*)=", re.MULTILINE)
TELLING = 100
"""A smaller number may be anything; a number from here on that equals a rule's is that rule's."""
OWN_NUMBERS = {"MINUTE_MS", "KEEP_REPLY_MS", "BATCH"}
"""Numbers of the Redis store alone that happen to equal one of the table."""


def code_of(file: Path) -> str:
    return "\n".join(re.sub(r"--.*", "", line) for line in file.read_text().splitlines())


@pytest.fixture
def library_made_anew() -> Iterator[None]:
    functions.library.cache_clear()
    yield
    functions.library.cache_clear()


def test_there_are_lua_files() -> None:
    assert len(LUA_FILES) > 60


@pytest.mark.parametrize("file", LUA_FILES, ids=lambda file: file.name)
def test_no_lua_file_defines_a_number_of_the_rules(file: Path) -> None:
    code = code_of(file)
    names = {name.strip() for found in DEFINED.findall(code) for name in found.split(",")}
    assert names.isdisjoint(CONSTANTS)

    rest = "\n".join(line for line in code.splitlines() if not names & OWN_NUMBERS & set(re.findall(r"\w+", line)))
    numbers = {int(number) for number in re.findall(r"(?<![\w.%])\d+(?![\w.])", rest)}
    rules = {value for value in CONSTANTS.values() if isinstance(value, int) and value >= TELLING}
    assert numbers.isdisjoint(rules)


def test_every_constant_is_used_by_a_lua_file() -> None:
    words = {word for file in LUA_FILES for word in re.findall(r"\w+", code_of(file))}

    assert set(CONSTANTS) <= words


@pytest.mark.usefixtures("library_made_anew")
def test_a_changed_number_changes_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    before = functions.library()
    functions.library.cache_clear()

    monkeypatch.setitem(CONSTANTS, "NORMAL", 51)
    after = functions.library()

    assert "exported.NORMAL = 50\n" in before.text
    assert "exported.NORMAL = 51\n" in after.text
    assert before.name != after.name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1 << 46, "70368744177664"),
        ("look", "'look'"),
        ((20, 50), "{ 20, 50 }"),
        (("tier", "boost"), "{ 'tier', 'boost' }"),
        (frozenset({"b", "a"}), "{ a = true, b = true }"),
        (qo.State.FAILED, "'failed'"),
        ({"examine": 256, "page": 2000}, "{ examine = 256, page = 2000 }"),
    ],
)
def test_a_constant_is_written_as_lua_writes_it(value: Constant, text: str) -> None:
    assert in_lua(value) == text
