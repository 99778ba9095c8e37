"""What turns cost the server, counted in commands: next to nothing while there are none, and with the most that there
can be, the same however many jobs a claim takes."""

from __future__ import annotations

import pytest

from qo.store.redis import RedisStore
from qo.values import Bounds, Registration, Submission, TaskOptions
from tests.servers.redis import Kind
from tests.store.redis.redis_calls import KINDS
from tests.store.redis.snapshot import snapshot
from tests.store.redis.test_lanes import claim, counted, counting, finish, limit, opened

__all__ = ["counting"]  # a fixture
TURNS = Bounds().turns
READS_OF_TURNS = 5
"""the set of turns, their jobs, their groups, the workers, and what was kept before"""
OFF = 0
MOST = 10**6
"""passes, before it is anybody's turn: turns are on, and there are none"""


async def register(store: RedisStore, *, turn_after: int) -> None:
    tasks = (TaskOptions(name="work"),)
    await store.register(Registration(name="w", tasks=tasks, capacity=1000, turn_after=turn_after))


def of(number: int, *groups: str) -> Submission:
    return Submission(id=f"j{number}", task="work", user=f"u{number % 10}", groups=groups)


# --- without turns ----------------------------------------------------------------------------------------------


async def commands_of_a_claim(kind: Kind, *, turn_after: int, slots: int, jobs: int) -> int:
    """Of a claim that takes five jobs of two groups with a limit."""
    store = await opened(kind)
    await register(store, turn_after=turn_after)
    await limit(store, "api", slots)
    await limit(store, "gpu", slots)
    await store.submit([of(number, "api", "gpu") for number in range(jobs)])
    await counted(store)
    assert len(await claim(store, 5)) == 5
    commands = (await counted(store)).commands
    await store.close()
    return commands


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("slots", "jobs", "more"),
    [
        pytest.param(100, 5, 0, id="nothing waits then"),
        pytest.param(100, 20, 2, id="nothing is parked"),
        pytest.param(5, 20, 1, id="both are full then"),
    ],
)
async def test_without_turns_a_claim_needs_at_most_one_command_more_for_each_limited_group(
    counting: None, kind: Kind, slots: int, jobs: int, more: int
) -> None:
    switched_off = await commands_of_a_claim(kind, turn_after=OFF, slots=slots, jobs=jobs)
    switched_on = await commands_of_a_claim(kind, turn_after=MOST, slots=slots, jobs=jobs)

    assert switched_on - switched_off <= more


@pytest.mark.parametrize("kind", KINDS)
async def test_without_turns_a_submit_and_a_finish_need_no_command_more(counting: None, kind: Kind) -> None:
    async def commands(turn_after: int) -> int:
        store = await opened(kind)
        await register(store, turn_after=turn_after)
        await limit(store, "api", 1)
        await store.submit([of(0, "api"), of(1, "api")])
        leases = await claim(store, 1)
        await counted(store)
        await store.submit([of(2, "api")])
        await finish(store, *leases)
        needed = (await counted(store)).commands
        await store.close()
        return needed

    assert await commands(MOST) == await commands(OFF)


# --- with turns -------------------------------------------------------------------------------------------------


async def with_turns(kind: Kind, turns: int) -> RedisStore:
    """Jobs of `api` and of a group of their own whose only slot is held; 200 jobs of `api` wait behind them."""
    store = await opened(kind)
    await limit(store, "api", 1000)
    await register(store, turn_after=1)
    for number in range(turns):
        own = f"own-{number}"
        await store.submit([Submission(id=f"holder-{number}", task="work", groups=(own,))])
        assert len(await claim(store, 1)) == 1
        await store.submit([Submission(id=f"turn-{number}", task="work", priority=10, groups=("api", own))])
        await limit(store, own, 1)
        assert await claim(store, 1) == ()
    await register(store, turn_after=MOST)
    await store.submit([of(number, "api") for number in range(200)])
    assert sum(job.turn for job in (await store.line(limit=300)).jobs) == turns
    return store


@pytest.mark.parametrize("kind", KINDS)
async def test_turns_cost_a_claim_the_same_however_many_jobs_it_takes(counting: None, kind: Kind) -> None:
    more: list[int] = []
    for capacity in (5, 50):
        commands: list[int] = []
        for turns in (0, TURNS):
            store = await with_turns(kind, turns)
            await counted(store)
            assert len(await claim(store, capacity)) == capacity
            commands.append((await counted(store)).commands)
            await snapshot(store)
            await store.close()
        more.append(commands[1] - commands[0])

    few, many = more
    assert few == many <= READS_OF_TURNS + TURNS  # and one for the holders of each limited group
