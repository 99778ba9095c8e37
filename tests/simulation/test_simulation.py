"""The whole runtime in simulated time. `python -m tests.simulation SEED` replays a world and prints its trace."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from qo.store.sqlite.shared.groups import Group, Groups
from qo.values import Finished, Outcome
from qo.worker.execution import Execution, Interruption
from tests.exploration import SEED
from tests.simulation.plan import draw_plan
from tests.simulation.world import Broken, World, simulate

ROOT = Path(__file__).resolve().parents[2]
SEEDS_IN_THE_GATE = 200
NIGHTLY_PORTIONS, SEEDS_A_PORTION = 50, 100
FIRST_NIGHTLY_SEED = int.from_bytes(sha256(SEED.encode()).digest()[:5])


@pytest.fixture(autouse=True)
def _quiet_log() -> Iterator[None]:
    """Keeping the thousands of records of failing handlers takes longer than the simulation."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(SEEDS_IN_THE_GATE))
def test_whatever_goes_wrong_everything_ends_and_no_rule_is_broken(seed: int) -> None:
    simulate(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("portion", range(NIGHTLY_PORTIONS))
def test_no_rule_is_broken_in_new_worlds(portion: int) -> None:
    first = FIRST_NIGHTLY_SEED + portion * SEEDS_A_PORTION
    for seed in range(first, first + SEEDS_A_PORTION):
        simulate(seed)


# --- replaying ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [3, 17, 42, 101])
def test_a_seed_replays_exactly(seed: int) -> None:
    assert simulate(seed) == simulate(seed)


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_seed_replays_exactly_in_another_process(hash_seed: str) -> None:
    seeds = [5, 23, 77]
    replayed = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *map(str, seeds)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )

    here = [line for seed in seeds for line in (str(draw_plan(seed)), *simulate(seed))]
    assert replayed.stdout.splitlines() == here


def test_a_broken_rule_is_raised_with_the_command_that_replays_it() -> None:
    def break_a_rule(world: World) -> None:
        world.broken.append("capacity: a group has 2 holders and a limit of 1")

    with pytest.raises(Broken, match=r"(?s)capacity: a group.*python -m tests.simulation 3$"):
        simulate(3, change=break_a_rule)


def test_a_world_has_no_threads_and_takes_no_time() -> None:
    threads = threading.active_count()
    seen: list[tuple[int, float]] = []

    def look_around(world: World) -> None:
        world.loop.call_later(5.0, lambda: seen.append((threading.active_count(), world.loop.time())))

    simulate(3, change=look_around)

    assert seen == [(threads, 5.0)]


def test_the_seeds_of_the_gate_see_every_fault() -> None:
    """A change of the plan must not make the worlds peaceful unnoticed."""
    lines = [line for seed in range(0, SEEDS_IN_THE_GATE, 20) for line in simulate(seed)]

    for happening in ("fault die", "fault cut", "fault pause", "fault stop", "is lost", "reply lost", "lost=True"):
        assert any(happening in line for line in lines), happening


# --- planted faults -------------------------------------------------------------------------------------------


def first_broken(change: Callable[[World], None] = lambda world: None) -> list[str]:
    """The sentences about the first world that breaks a rule."""
    for seed in range(SEEDS_IN_THE_GATE):
        try:
            simulate(seed, change=change)
        except Broken as found:
            return found.sentences
    return []


def test_a_store_that_forgets_to_release_a_slot_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    free, calls = Groups.free, 0

    def forgetful(self: Groups, tokens: Any) -> dict[int, dict[str, int]]:
        nonlocal calls
        calls += 1
        return free(self, tokens) if calls % 5 else {}

    monkeypatch.setattr(Groups, "free", forgetful)

    assert any("still held" in sentence for sentence in first_broken())


def test_a_store_that_gives_more_slots_than_there_are_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Group, "has_room", lambda self: True)

    assert any(sentence.startswith("capacity:") for sentence in first_broken())


def test_a_store_that_answers_before_it_has_stored_is_found() -> None:
    def plant(world: World) -> None:
        finish, calls = world.store.finish, 0

        async def hasty(outcomes: list[Outcome], **options: Any) -> list[Finished]:
            nonlocal calls
            calls += 1
            if calls % 5:
                return await finish(outcomes, **options)
            await asyncio.sleep(0)
            return [Finished(job_id=each.job_id, token=each.token, state=each.state) for each in outcomes]

        world.store.finish = hasty  # type: ignore[method-assign, assignment]  # the planted fault

    found = first_broken(plant)
    assert any(sentence.startswith(("fenced:", "one owner:", "reclaim:")) for sentence in found), found


def test_a_worker_that_ignores_a_lost_lease_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt = Execution.interrupt

    def deaf(self: Execution, reason: Interruption, **options: Any) -> None:
        if reason is not Interruption.LOST:
            interrupt(self, reason, **options)

    monkeypatch.setattr(Execution, "interrupt", deaf)

    found = first_broken()
    assert any("after its lease" in sentence for sentence in found), found
