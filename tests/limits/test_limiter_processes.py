"""A limiter that processes share: killed and frozen ones, as an outside witness sees it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator

import pytest

import qo
from qo.event import LEASE_LOST
from qo.store.contract import HANDED_OVER_LEASE_MS
from tests.limits.limiter_process import CROWD, LIMITS, LimiterWitness, limiter_nursery
from tests.nursery import Nursery
from tests.worker.processes_on_a_store import (
    LEASE_SECONDS,
    SETTINGS,
    can_write,
    check_nothing_is_held,
    events_of,
    queue_fixture,  # noqa: F401 - asked for by name
    url_fixture,  # noqa: F401 - asked for by name
)
from tests.worker.witness import Report
from tests.worker.worker_process import Options, until

PROCESSES = 8
KILLS = 4
KILL_EVERY_SECONDS = 0.1
ALIVE_SECONDS = 1
"""how long a place in line outlives its process"""
SLACK_SECONDS = 2
"""for a busy machine, and until those who wait ask again"""
HANDED_OVER_SECONDS = HANDED_OVER_LEASE_MS / 1000
"""a slot that was handed over in line is held so long at most until its first renewal, by the dead too"""
MANY = 300
SHORT_LEASES = {**SETTINGS, "limiter": {"waiter_alive_secs": ALIVE_SECONDS}}
LONG_LEASES = {"limiter": {"waiter_alive_secs": ALIVE_SECONDS}}


@pytest.fixture
async def witness() -> AsyncIterator[LimiterWitness]:
    async with LimiterWitness.listening() as listening:
        assert isinstance(listening, LimiterWitness)
        yield listening


# --- killed ---------------------------------------------------------------------------------------------------


async def test_200_callers_on_8_processes_are_never_over_a_limit_though_some_are_killed_inside(
    queue: qo.Queue, url: str, witness: LimiterWitness
) -> None:
    async with limiter_nursery(Options(url=url, settings=SHORT_LEASES, witness_port=witness.port)) as processes:
        fire = Fire(processes, witness)
        await fire.begin()
        for _ in range(KILLS):
            await fire.kill_one()
            await fire.start_another()
            await asyncio.sleep(KILL_EVERY_SECONDS)
        in_use_seconds = await seconds_until_all_slots_are_in_use(witness)
        await fire.kill_all()
        empty_seconds = await seconds_until_nothing_is_held(queue)

    lost_at = {int(event.detail["token"]): event.at.timestamp() for event in await events_of(queue, [LEASE_LOST])}
    assert fire.killed, "nobody was killed inside"
    over_seconds = max(lost_at[token] - killed_at for token, killed_at in fire.killed.items())
    print(  # noqa: T201 - with -rP
        f"{len(witness.entered_at)} entries, most inside {dict(witness.most)}; {len(fire.killed)} killed inside, "
        f"their leases over after {over_seconds:.1f} s at most, all slots in use again after {in_use_seconds:.1f} s; "
        f"nothing held {empty_seconds:.1f} s after all were killed"
    )
    assert witness.mistakes == []
    assert witness.most["providers"] == LIMITS["providers"], "a limit that nobody ran into proves nothing"
    assert over_seconds < 1.5 * LEASE_SECONDS + SLACK_SECONDS
    # A freed slot may go to one of the dead who are still in line, for one more lease.
    assert in_use_seconds < 2 * 1.5 * LEASE_SECONDS + SLACK_SECONDS
    assert empty_seconds < 1.5 * LEASE_SECONDS + SLACK_SECONDS
    await check_nothing_is_held(queue)


class Fire:
    """Kills processes while callers of theirs are inside."""

    def __init__(self, processes: Nursery, witness: LimiterWitness) -> None:
        self._processes, self._witness = processes, witness
        self._alive: list[str] = []
        self._born = 0
        self._rng = random.Random(1)
        self.killed: dict[int, float] = {}
        """by token of those who were inside: when"""

    async def begin(self) -> None:
        for _ in range(PROCESSES):
            await self.start_another()

        async def many_have_entered_and_one_is_inside() -> bool:
            return len(self._witness.entered_at) > MANY and self._witness.inside() != []

        await until(many_have_entered_and_one_is_inside)

    async def start_another(self) -> None:
        self._born += 1
        self._alive.append(f"hammer-{self._born}")
        await self._processes.order("start", self._alive[-1])

    async def kill_one(self) -> None:
        """One that is inside, if any is: soon after the first kill those who died in line may have all slots."""
        inside = [report.process for report in self._witness.inside()]
        await self._kill(self._rng.choice(inside or self._alive))

    async def kill_all(self) -> None:
        for name in tuple(self._alive):
            await self._kill(name)

    async def _kill(self, name: str) -> None:
        self._alive.remove(name)
        inside = [report.token for report in self._witness.inside(name)]
        await self._processes.order("kill", name)
        # Who left in the last moment has perhaps given its slot back.
        self.killed |= {token: time.time() for token in inside if token not in self._witness.left}


async def seconds_until_all_slots_are_in_use(witness: LimiterWitness) -> float:
    """Each of the total was taken by somebody since now. How many of a provider are taken depends on who stands in
    line: while many wait for one provider that is full, others get no more than what it leaves of the total."""
    began = time.monotonic()
    slots = {("providers", number) for number in range(LIMITS["providers"])}

    async def all_were_taken() -> bool:
        return all(witness.taken_at.get(slot, began) > began for slot in slots)

    await until(all_were_taken)
    return time.monotonic() - began


async def seconds_until_nothing_is_held(queue: qo.Queue) -> float:
    began = time.monotonic()

    async def nothing_is_held() -> bool:
        await queue.store.catch_up()
        return sum([group.active for group in await queue.limits()]) == 0

    await until(nothing_is_held)
    return time.monotonic() - began


async def test_behind_a_killed_holder_and_fifty_killed_waiters_it_is_one_lease_to_the_slot(
    queue: qo.Queue, url: str, witness: LimiterWitness
) -> None:
    async with (
        limiter_nursery(Options(url=url, settings=SHORT_LEASES, witness_port=witness.port)) as processes,
        await qo.connect(url, settings=SHORT_LEASES) as own,
    ):
        await processes.order("start", "crowd-1")
        await until_in_line(queue, CROWD)
        entering = asyncio.create_task(seconds_to_enter(own))
        await until_in_line(queue, CROWD + 1)
        await processes.order("kill", "crowd-1")
        waited_seconds = await entering

    assert [report.process for report in witness.seen_inside] == ["crowd-1"]
    assert waited_seconds < 1.5 * LEASE_SECONDS + SLACK_SECONDS


async def test_fifty_killed_waiters_before_a_living_one_cost_it_seconds_and_not_leases(
    queue: qo.Queue, url: str, witness: LimiterWitness
) -> None:
    """The slot goes to the first of the dead, for the time in which one who is handed a slot must show up. By then the
    others are not in line any more. Leases are far longer here."""
    async with (
        limiter_nursery(Options(url=url, settings=LONG_LEASES, witness_port=witness.port)) as processes,
        await qo.connect(url, settings=LONG_LEASES) as own,
    ):
        limiter = qo.Limiter({"ollama": 1, "gemini": 1}, queue=own)
        async with limiter.acquire("ollama"):
            await processes.order("start", "crowd-1")
            await until_in_line(queue, CROWD + 1)
            entering = asyncio.create_task(seconds_to_enter(own))
            await until_in_line(queue, CROWD + 2)
            await processes.order("kill", "crowd-1")
        waited_seconds = await entering
        await asyncio.to_thread(limiter.close)

    assert waited_seconds < HANDED_OVER_SECONDS + ALIVE_SECONDS + SLACK_SECONDS


async def until_in_line(queue: qo.Queue, number: int) -> None:
    async def are_in_line() -> bool:
        return (await queue.limit("provider:ollama")).waiting == number

    await until(are_in_line)


async def seconds_to_enter(queue: qo.Queue) -> float:
    limiter = qo.Limiter({"ollama": 1, "gemini": 1}, queue=queue)
    began = time.monotonic()
    async with limiter.acquire("ollama"):
        waited = time.monotonic() - began
    await asyncio.to_thread(limiter.close)
    return waited


# --- frozen ---------------------------------------------------------------------------------------------------


async def test_a_process_frozen_beyond_its_leases_hears_that_they_are_lost_and_takes_nothing_from_the_new_holder(
    queue: qo.Queue, url: str, witness: LimiterWitness
) -> None:
    async with (
        limiter_nursery(Options(url=url, settings=SHORT_LEASES, witness_port=witness.port)) as processes,
        await qo.connect(url, settings=SHORT_LEASES) as own,
    ):
        await processes.order("start", "sleeper-1")
        in_task, in_thread = await the_two_inside(witness)
        await stop_outside_of_a_write(processes, "sleeper-1", queue)
        limiter = qo.Limiter({"ollama": 1, "gemini": 1}, queue=own)
        async with limiter.acquire("ollama") as ollama, limiter.acquire("gemini") as gemini:
            await processes.order("wake", "sleeper-1")
            told = [await processes.line_with("in ") for _ in range(2)]
            await processes.line_with("all have left")
            groups = [await queue.limit("provider:ollama"), await queue.limit("provider:gemini")]
            assert (ollama.lost, gemini.lost) == (False, False)
        await asyncio.to_thread(limiter.close)

    assert sorted(told) == [f"in task: LeaseLost {in_task.token}", f"in thread: lost {in_thread.token}"]
    assert [slot.token for group in groups for slot in group.slots] == [ollama.token, gemini.token]
    assert (int(ollama.token) > in_task.token, int(gemini.token) > in_thread.token) == (True, True)
    await check_nothing_is_held(queue)


async def the_two_inside(witness: LimiterWitness) -> list[Report]:
    async def two_are() -> bool:
        return len(witness.inside()) == 2

    await until(two_are)
    return sorted(witness.inside(), key=lambda report: "provider:ollama" not in report.slots)


async def stop_outside_of_a_write(processes: Nursery, name: str, queue: qo.Queue) -> None:
    """Whoever is stopped in the middle of one keeps everybody from writing, on a file."""
    await processes.order("stop", name)
    while not await can_write(queue):
        await processes.order("wake", name)
        await processes.order("stop", name)
