"""How far the tests look for new histories: profile, seed, number of steps, and the records that a nightly keeps.

| variable             | meaning                                                                              |
|----------------------|--------------------------------------------------------------------------------------|
| `HYPOTHESIS_PROFILE` | `default`, which is the gate, or `nightly`                                             |
| `HISTORY_SEED`       | any word; the same word draws the same histories again, in a nightly also the same     |
|                      | examples of the property tests                                                        |
| `HISTORY_STEPS`      | steps compared on SQLite and as many on Redis (Valkey's included)                     |

Without a seed the gate takes the commit's hash, so that a commit always draws the same new histories, and the nightly
draws a fresh one.

A nightly keeps in `.nightly/`, each with its seed in the name:

| file                     | content                                                                          |
|--------------------------|----------------------------------------------------------------------------------|
| `progress-*.log`         | the seed, then a line a finished part with its steps or examples; `tail -f` it    |
| `summary-*.txt`          | the seed, the result, and all those lines in order                                |
| `failure-*.txt`          | the error of one test and the command that shows it again                         |
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import subprocess
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".nightly"
"""The folder of a nightly's records."""
DATABASE = DirectoryBasedExampleDatabase(ROOT / ".hypothesis" / "examples")
"""Hypothesis keeps failing examples there and tries them first, until they pass."""
SUMMARY = "histories"
"""The property of a test's report that holds its line for the summary at the end."""
CASES = re.compile(r"(\d+) passing, (\d+) failing, and (\d+) invalid test cases")
NIGHTLY_TEST_SECONDS = 4 * 3600
"""The time limit of one test in a nightly: a case of the histories takes up to an hour on a slow machine."""
WITHOUT_GIT = "no-commit"
FULL_LENGTH, IN_THE_GATE = 500_000, 2_500
"""Steps on SQLite, and as many on Redis."""

FIXED_HISTORIES = settings(max_examples=20, stateful_step_count=30, deadline=None, derandomize=True, database=None)
"""The same histories in every run, also in a nightly: those that it draws anew are many more."""

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
NIGHTLY = PROFILE == "nightly"


def register_profiles() -> None:
    # In CI a run must not fail by chance; elsewhere new examples are welcome.
    in_ci = os.environ.get("CI") == "true"
    settings.register_profile("default", max_examples=50, stateful_step_count=30, deadline=None, derandomize=in_ci)
    # Said in full, because Hypothesis changes its own defaults where it finds itself in CI.
    settings.register_profile(
        "nightly",
        max_examples=2000,
        stateful_step_count=50,
        deadline=None,
        derandomize=False,
        print_blob=True,
        database=DATABASE,
    )
    settings.load_profile(PROFILE)


def commit(folder: Path = ROOT) -> str:
    """The commit's hash; a fixed word where there is no repository, or no git."""
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True)
    except OSError:
        return WITHOUT_GIT
    return found.stdout.strip() if found.returncode == 0 else WITHOUT_GIT


# Kept in the environment, because the processes of pytest-xdist have to draw from the same seed.
SEED = os.environ.setdefault("HISTORY_SEED", secrets.token_hex(8) if NIGHTLY else commit())
STEPS = int(os.environ.get("HISTORY_STEPS", FULL_LENGTH if NIGHTLY else IN_THE_GATE))


def number_from(*words: object) -> int:
    """A number that depends on the seed and on these words alone, in every process."""
    return int.from_bytes(hashlib.sha256(repr((SEED, *map(str, words))).encode()).digest()[:8])


def header() -> str:
    note = " (git does not tell the commit, so these histories are always the same)" if SEED == WITHOUT_GIT else ""
    return f"histories: seed {SEED}{note}, {STEPS:,} steps on SQLite and {STEPS:,} on Redis"


def how_to_replay(test: str) -> str:
    return f"HYPOTHESIS_PROFILE={PROFILE} HISTORY_SEED={SEED} HISTORY_STEPS={STEPS} .venv/bin/python -m pytest '{test}'"


@contextmanager
def failures_kept(name: str, test: str) -> Iterator[None]:
    """Adds to a failure how to see it again; keeps a nightly's in a file as well."""
    try:
        yield
    except Exception as error:
        error.add_note(f"Drawn from the seed {SEED}. To see it again:\n{how_to_replay(test)}")
        keep_failure(name, "".join(traceback.format_exception(error)))
        raise


def keep_failure(name: str, text: str) -> None:
    as_file_name = re.sub(r"[^\w.-]+", "-", name)
    _keep(f"failure-{SEED}-{as_file_name}.txt", text)


def keep_summary(result: str, lines: Sequence[str]) -> None:
    _keep(f"summary-{SEED}.txt", "\n".join([header(), result, *lines, ""]))


def note_progress(line: str) -> None:
    """Append a line to the log of a nightly under way: `tail -f .nightly/progress-*.log`."""
    _keep(f"progress-{SEED}.log", f"{datetime.now(UTC):%H:%M:%S} {line}\n", mode="a")


def examples_line(test: str, statistics: str) -> str:
    """How many examples a property test has run, from the text that Hypothesis writes about them."""
    passing, failing, invalid = (sum(map(int, column)) for column in zip(*CASES.findall(statistics), strict=True))
    return f"{test}: {passing + failing:,} examples, {invalid:,} invalid"


def _keep(name: str, text: str, *, mode: str = "w") -> None:
    if NIGHTLY:
        KEPT.mkdir(exist_ok=True)
        with (KEPT / name).open(mode) as file:
            file.write(text)
