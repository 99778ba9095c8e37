"""`qo up --demo`: every feature is in use within seconds, and nothing stays behind."""

from __future__ import annotations

import random
import re
import signal
import subprocess
from collections.abc import Callable

import pytest

from qo.cli.demo import draw_build
from tests.cli.conftest import Call
from tests.processes import Process


def test_the_demo_runs_until_ctrl_c_and_leaves_nothing_behind(
    call: Callable[..., Call], start: Callable[..., Process], left_behind: Callable[[], tuple[int, int]]
) -> None:
    demo = start("up", "--demo")

    demo.until("submitted build")
    demo.until("failed (debug_id")
    demo.until(": confirming")
    demo.until(": succeeded")
    demo.until(" is confirmed: Continue for")
    line = call("queue", "list", "--json").json
    groups = {group["group"]: group for group in call("concurrency", "status", "--json").json}
    demo.signal(signal.SIGINT)

    assert demo.ends() == 0
    assert line
    assert groups["global"]["limit"] == 4
    assert groups["provider:ollama"]["limit"] == 2
    assert left_behind() == (0, 0)
    assert children_of_session(demo.pid) == []


def test_a_failure_of_the_demo_is_shown_without_its_secret(start: Callable[..., Process]) -> None:
    demo = start("up", "--demo")

    log = demo.until("NPM_TOKEN")
    demo.signal(signal.SIGTERM)

    assert demo.ends() == 0
    assert "NPM_TOKEN=[secret]" in log
    assert "ghp_" not in demo.output()
    assert "Traceback" not in demo.output()


def test_the_demo_says_what_to_type_and_goes_on_with_an_earlier_one_in_lines_of_120_columns(
    start: Callable[..., Process],
) -> None:
    outputs = []
    for _ in range(2):
        demo = start("up", "--demo", "--for", "3")
        demo.until(": succeeded")
        assert demo.ends() == 0
        outputs.append(demo.output())

    first, second = outputs
    assert first.startswith("The demo works on SQLite file ")
    assert "\n  qo queue list " in first
    assert "It goes on with an earlier demo" in second
    assert "earlier demo" not in first
    log = [line for line in (first + second).splitlines() if re.match(r"\d\d:\d\d:\d\d ", line)]
    assert len(log) > 10
    assert [line for line in log if len(line) > 120] == []


def test_the_demo_refuses_a_store_with_other_jobs(call: Callable[..., Call], submit: Callable[..., str]) -> None:
    submit("build", "--user", "ada")

    done = call("up", "--demo")

    assert done.code == 2
    assert "give the demo a store of its own" in done.err
    assert call("concurrency", "status").out == "No group has a limit, a pause or holders.\n"


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_seed_draws_the_same_builds(seed: int) -> None:
    drawn = [[draw_build(rng) for _ in range(50)] for rng in (random.Random(seed), random.Random(seed))]

    assert drawn[0] == drawn[1]
    assert all(0.5 <= build.seconds <= 9 for build in drawn[0])
    assert {build.trouble for build in drawn[0]} >= {None, "flaky"}


def children_of_session(pid: int) -> list[str]:
    """Processes of its session that still run; it was the session's leader."""
    return subprocess.run(["ps", "-s", str(pid), "-o", "pid="], capture_output=True, text=True).stdout.split()
