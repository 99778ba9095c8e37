"""How far the tests look for histories that nobody has seen yet: profile, seed and number of steps, decided here alone.

| variable             | meaning                                                                              |
|----------------------|--------------------------------------------------------------------------------------|
| `HYPOTHESIS_PROFILE` | `default`, which is the gate, or `nightly`                                             |
| `HISTORY_SEED`       | any word; the same word draws the same histories again                                |
| `HISTORY_STEPS`      | steps compared on SQLite and as many on Redis (Valkey's included)                     |

Without a seed the gate takes the commit's hash, so that a commit always draws the same new histories, and the nightly
draws a fresh one.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import subprocess
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".nightly"
"""Where failures and the progress of a nightly are kept."""
DATABASE = DirectoryBasedExampleDatabase(ROOT / ".hypothesis" / "examples")
"""Hypothesis keeps failing examples there and tries them first, until they pass."""
SUMMARY = "histories"
"""The property of a test's report that holds its line for the summary at the end."""
WITHOUT_GIT = "no-commit"
FULL_LENGTH, IN_THE_GATE = 500_000, 2_500
"""Steps on SQLite, and as many on Redis."""

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
NIGHTLY = PROFILE == "nightly"


def register_profiles() -> None:
    # In CI a run must not fail by the luck of the draw; elsewhere new examples are welcome.
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
    told = " (git does not tell the commit, so these histories are always the same)" if SEED == WITHOUT_GIT else ""
    return f"histories: seed {SEED}{told}, {STEPS:,} steps on SQLite and {STEPS:,} on Redis"


def how_to_replay(test: str) -> str:
    return f"HYPOTHESIS_PROFILE={PROFILE} HISTORY_SEED={SEED} HISTORY_STEPS={STEPS} .venv/bin/python -m pytest '{test}'"


@contextmanager
def failures_kept(name: str, test: str) -> Iterator[None]:
    """A failure says how to see it again; a nightly's is kept in a file as well."""
    try:
        yield
    except Exception as error:
        error.add_note(f"Drawn from the seed {SEED}. To see it again:\n{how_to_replay(test)}")
        if NIGHTLY:
            KEPT.mkdir(exist_ok=True)
            told = "".join(traceback.format_exception(error))
            (KEPT / f"failure-{SEED}-{name}.txt").write_text(told)
        raise


def note_progress(line: str) -> None:
    """For whoever watches a nightly: `tail -f .nightly/progress-*.log`."""
    if NIGHTLY:
        KEPT.mkdir(exist_ok=True)
        with (KEPT / f"progress-{SEED}.log").open("a") as file:
            file.write(f"{datetime.now(UTC):%H:%M:%S} {line}\n")
