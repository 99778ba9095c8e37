"""The nightly looks where it says it does, and the gate draws from the commit."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests import exploration
from tests.conformance.machine import histories
from tests.conformance.machine.histories import BOUNDS, HITS, Account
from tests.conformance.machine.noteworthy import BOUND, RARE
from tests.stores import STORES

MACHINE = "tests/conformance/machine/test_state_machine.py"
TRACES = "tests/conformance/machine/test_same_trace.py"


PROPERTY_TESTS = """
from hypothesis import given, settings, strategies

drawn = []

@given(strategies.integers())
@settings(max_examples=30, database=None)
def test_passes(number):
    drawn.append(number)

def test_shows_the_numbers():
    assert not drawn, drawn
"""
KEEP_ELSEWHERE = """
from pathlib import Path
from tests import exploration

exploration.KEPT = Path(__file__).parent / "kept"
"""


def collected(*arguments: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", *arguments, MACHINE, TRACES]
    found = subprocess.run(command, cwd=exploration.ROOT, capture_output=True, text=True, check=True)
    return [line for line in found.stdout.splitlines() if "::" in line]


def arguments_of_the_nightly() -> list[str]:
    """What `make nightly` gives to pytest, from make itself."""
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "ONLY")}
    command = ["make", "--dry-run", "nightly"]
    shown = subprocess.run(command, cwd=exploration.ROOT, env=environment, capture_output=True, text=True, check=True)
    (line,) = [line for line in shown.stdout.splitlines() if "-m pytest" in line]
    words = shlex.split(line)
    assert "HYPOTHESIS_PROFILE=nightly" in words
    return words[words.index("pytest") + 1 :]


def test_the_nightly_runs_the_state_machine_on_every_store_with_all_bounds_and_the_traces() -> None:
    found = collected(*arguments_of_the_nightly(), "-n", "0")

    cases = {f"{store.name}-by{bounds.examine}" for store in STORES for bounds in BOUNDS}
    assert len(cases) >= 12
    assert cases <= {line.partition("[")[2].rstrip("]") for line in found if line.startswith(MACHINE)}
    assert [line for line in found if line.startswith(TRACES)]


def test_the_gate_draws_new_histories_too() -> None:
    assert any("test_new_histories" in line for line in collected())


def test_without_a_repository_the_seed_is_a_word_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exploration, "SEED", exploration.commit(tmp_path))

    assert exploration.SEED == exploration.WITHOUT_GIT
    assert "always the same" in exploration.header()


def test_a_failure_tells_the_seed_and_is_kept_in_a_nightly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exploration, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(exploration, "NIGHTLY", True)

    with pytest.raises(ZeroDivisionError) as raised, exploration.failures_kept("a-case", "tests/a.py::test_a"):
        _ = 1 / 0

    assert f"HISTORY_SEED={exploration.SEED}" in str(raised.value.__notes__)
    (kept,) = exploration.KEPT.iterdir()
    assert "ZeroDivisionError" in kept.read_text()
    assert exploration.how_to_replay("tests/a.py::test_a") in kept.read_text()


def nightly_of_property_tests(folder: Path, *, seed: str) -> dict[str, str]:
    """Its records by name, with the word `SEED` in place of the seed."""
    folder.mkdir()
    (folder / "test_properties.py").write_text(PROPERTY_TESTS)
    (folder / "keep_elsewhere.py").write_text(KEEP_ELSEWHERE)
    environment = os.environ | {"HYPOTHESIS_PROFILE": "nightly", "HISTORY_SEED": seed, "PYTHONPATH": str(folder)}
    plugins = ["-p", "keep_elsewhere", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(folder), *plugins, str(folder)]
    subprocess.run(command, cwd=exploration.ROOT, env=environment, capture_output=True, check=False)
    return {file.name.replace(seed, "SEED"): file.read_text() for file in (folder / "kept").iterdir()}


def test_a_nightly_keeps_the_seed_the_examples_and_the_failures_of_property_tests(tmp_path: Path) -> None:
    records = nightly_of_property_tests(tmp_path / "first", seed="a-word")

    assert set(records) == {
        "progress-SEED.log",
        "summary-SEED.txt",
        "failure-SEED-test_properties.py-test_shows_the_numbers.txt",
    }
    line = "test_properties.py::test_passes: 30 examples, 0 invalid"
    assert "seed a-word" in records["progress-SEED.log"]
    assert line in records["progress-SEED.log"]
    header, result, *lines = records["summary-SEED.txt"].splitlines()
    assert ("seed a-word" in header, result, lines) == (True, "1 passed, 1 failed, 0 error", [line])
    assert "HISTORY_SEED=a-word" in records["failure-SEED-test_properties.py-test_shows_the_numbers.txt"]


def test_the_same_seed_draws_the_same_examples_of_property_tests_again(tmp_path: Path) -> None:
    first, again, other = (
        numbers_in(nightly_of_property_tests(tmp_path / name, seed=seed))
        for name, seed in (("first", "a-word"), ("again", "a-word"), ("other", "another"))
    )

    assert first == again != other


def numbers_in(records: dict[str, str]) -> str:
    (failure,) = [text for name, text in records.items() if name.startswith("failure")]
    (line,) = [line for line in failure.splitlines() if line.startswith("E       AssertionError: ")]
    return line


def test_numbers_depend_on_the_seed_and_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    here = exploration.number_from("case", 1)

    assert here == exploration.number_from("case", 1) != exploration.number_from("case", 2)
    monkeypatch.setattr(exploration, "SEED", "another")
    assert here != exploration.number_from("case", 1)


def test_states_that_a_long_run_met_too_seldom_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account("a case", small_bounds=False)
    account.noted.update(dict.fromkeys(RARE, HITS))
    account.noted.update({"a job aged": -1, BOUND: -HITS})

    monkeypatch.setattr(exploration, "STEPS", exploration.FULL_LENGTH)
    assert account.too_rare() == {"a job aged": HITS - 1}
    account.small_bounds = True
    assert account.too_rare() == {"a job aged": HITS - 1, BOUND: 0}
    monkeypatch.setattr(exploration, "STEPS", exploration.FULL_LENGTH // 2)
    assert account.too_rare() == {BOUND: 0}


def test_the_behaviour_suite_has_cases_for_every_store_and_the_model() -> None:
    suite = "tests/conformance/suite/test_tokens.py"
    in_the_gate, nightly = collected(suite), collected("-m", "nightly", suite)

    for name in ("model", *(store.name for store in STORES if not store.is_twin)):
        assert any(f"[{name}-by" in line for line in in_the_gate), name
    for name in (store.name for store in STORES if store.is_twin):
        assert any(f"[{name}-by" in line for line in nightly), name
    assert len(STORES) >= 4


def test_the_same_seed_draws_the_same_histories_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "ACTIONS", 5)
    (in_memory,) = [store for store in STORES if store.name == "sqlite-memory"]

    def drawn_from(word: str) -> tuple[int, dict[str, int]]:
        monkeypatch.setattr(exploration, "SEED", word)
        account = Account("a case", small_bounds=False)
        histories.explore(in_memory, BOUNDS[0], account, steps=40)
        return account.steps, account.noted

    assert drawn_from("a word") == drawn_from("a word") != drawn_from("another")
