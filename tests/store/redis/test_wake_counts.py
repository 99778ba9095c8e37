"""A step wakes as many idle workers as jobs it made claimable, each on its own channel, never all."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator

import pytest

from qo.job import State
from qo.store.redis import RedisStore
from qo.values import Claimed, Limit, Outcome, Registration, Source, Submission, TaskOptions
from tests.servers.redis import shared_server

WORKERS = [f"worker-{number}" for number in range(5)]
LONG_SECONDS = 30.0
LEASE_MS = 60_000


@pytest.fixture(params=["valkey", "redis"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[RedisStore]:
    url = shared_server(request.param).url
    opened = await RedisStore.open(url, namespace=f"wake-{secrets.token_hex(6)}")
    yield opened
    await opened.close()


class Idle:
    """Workers that wait for work, each in its own call."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._calls: dict[str, asyncio.Task[Claimed]] = {}

    async def wait(self, *workers: str, tasks: tuple[str, ...] = ("work",)) -> None:
        """Returns when the server has put all of them down as idle."""
        for worker in workers:
            call = self._store.wait_for_work(worker=worker, tasks=tasks, timeout_seconds=LONG_SECONDS)
            self._calls[worker] = asyncio.create_task(call)
        async with asyncio.timeout(LONG_SECONDS):
            while await self.put_down() < len(self._calls):  # noqa: ASYNC110 - the server does not tell
                await asyncio.sleep(0.005)

    async def put_down(self) -> int:
        count: int = await self._store.client.command("HLEN", f"{self._store.client.prefix}idle_workers")
        return count

    async def woken(self, expected: int) -> list[str]:
        """Who was woken, once so many are; the others had every chance to be, and are then let go."""
        for _, ended in zip(range(expected), asyncio.as_completed(self._calls.values()), strict=False):
            await ended
        # Messages come in the order in which they were published, so one sent now comes behind any other.
        async with self._store.waking.listen("last") as last:
            await self._store.client.command("SPUBLISH", "last", "")
            assert await last.message(LONG_SECONDS) is not None
        woken = [worker for worker, call in self._calls.items() if call.done()]
        for call in self._calls.values():
            call.cancel()
        await asyncio.gather(*self._calls.values(), return_exceptions=True)
        return woken


@pytest.fixture
def idle(store: RedisStore) -> Idle:
    return Idle(store)


def jobs(*ids: str, task: str = "work", groups: tuple[str, ...] = ()) -> list[Submission]:
    return [Submission(id=job_id, task=task, groups=groups) for job_id in ids]


async def test_two_jobs_wake_two_of_five(store: RedisStore, idle: Idle) -> None:
    await idle.wait(*WORKERS)
    await store.submit(jobs("a", "b"))

    assert len(await idle.woken(2)) == 2


async def test_a_worker_that_does_not_take_the_task_sleeps_on(store: RedisStore, idle: Idle) -> None:
    await idle.wait("worker-0", tasks=("other",))
    await idle.wait("worker-1", tasks=("work", "other"))
    await store.submit(jobs("a", "b", "c"))

    assert await idle.woken(1) == ["worker-1"]


async def test_a_job_that_is_parked_wakes_nobody_and_its_freed_slot_wakes_one(store: RedisStore, idle: Idle) -> None:
    await store.set_limits([Limit(group="hot", slots=1, source=Source.OPERATOR)])
    await store.submit(jobs("a", groups=("hot",)))
    (lease,) = (await store.claim(worker="busy", tasks=["work"], capacity=1, lease_ms=LEASE_MS, claim_id="c")).leases
    await idle.wait(*WORKERS)
    await store.submit(jobs("b", "c", groups=("hot",)))
    assert await idle.put_down() == len(WORKERS)
    await store.finish([Outcome(job_id="a", token=lease.token, state=State.SUCCEEDED)])

    assert len(await idle.woken(1)) == 1


@pytest.mark.parametrize("gate", ["global", "work"])
async def test_a_gate_that_opens_wakes_as_many_as_wait_behind_it(store: RedisStore, idle: Idle, gate: str) -> None:
    await store.set_paused(gate, True)
    await store.submit(jobs("a", "b", "c"))
    await idle.wait(*WORKERS)
    await store.set_paused(gate, False)

    assert len(await idle.woken(3)) == 3


async def test_a_raised_limit_wakes_as_many_as_now_fit(store: RedisStore, idle: Idle) -> None:
    await store.set_limits([Limit(group="hot", slots=0, source=Source.OPERATOR)])
    await store.submit(jobs("a", "b", "c", "d", groups=("hot",)))
    await idle.wait(*WORKERS)
    await store.set_limits([Limit(group="hot", slots=2, source=Source.OPERATOR)])

    assert len(await idle.woken(2)) == 2


@pytest.mark.parametrize("group", ["hot", "work", "global"])
async def test_a_limit_raised_to_ten_starts_ten_jobs_of_one_lane_at_once(
    store: RedisStore, idle: Idle, group: str
) -> None:
    """The jobs count, and not their lane: each worker has room for one, and each is woken once."""
    workers = [f"single-{number}" for number in range(14)]
    await store.set_limits([Limit(group=group, slots=0, source=Source.OPERATOR)])
    await store.submit(jobs(*(f"j{number}" for number in range(50)), groups=("hot",)))
    await idle.wait(*workers)
    await store.set_limits([Limit(group=group, slots=10, source=Source.OPERATOR)])

    woken = await idle.woken(10)
    started = [
        lease.job_id
        for worker in woken
        for lease in (
            await store.claim(worker=worker, tasks=["work"], capacity=1, lease_ms=LEASE_MS, claim_id=f"of {worker}")
        ).leases
    ]

    assert started == [f"j{number}" for number in range(10)]


@pytest.mark.parametrize("gate", ["global", "work"])
async def test_behind_a_gate_the_jobs_of_open_groups_count_as_far_as_they_fit(
    store: RedisStore, idle: Idle, gate: str
) -> None:
    """Two jobs of one lane are ready, three of twenty fit into a group that has got room behind the gate."""
    await store.set_limits([Limit(group="hot", slots=0, source=Source.OPERATOR)])
    await store.submit([*jobs(*(f"hot-{number}" for number in range(20)), groups=("hot",)), *jobs("a", "b")])
    await store.set_paused(gate, True)
    await store.set_limits([Limit(group="hot", slots=3, source=Source.OPERATOR)])
    await idle.wait(*(f"single-{number}" for number in range(8)))
    await store.set_paused(gate, False)

    assert len(await idle.woken(5)) == 5


async def test_a_job_that_joins_a_parked_lane_whose_group_has_room_wakes_one(store: RedisStore, idle: Idle) -> None:
    await store.set_limits([Limit(group="hot", slots=0, source=Source.OPERATOR)])
    await store.submit(jobs("a", groups=("hot",)))
    await idle.wait("worker-0", tasks=("work",))
    await idle.wait("worker-1", tasks=("work",))
    await store.set_limits([Limit(group="hot", slots=5, source=Source.OPERATOR)])
    await store.submit(jobs("b", groups=("hot",)))

    assert len(await idle.woken(2)) == 2


async def test_a_worker_that_left_is_not_woken_in_place_of_another(store: RedisStore, idle: Idle) -> None:
    await idle.wait("worker-0", "worker-1")
    await store.register(Registration(name="worker-0", tasks=(), capacity=1))
    await store.submit(jobs("a"))

    assert await idle.woken(1) == ["worker-1"]


async def test_who_comes_after_the_job_finds_it_without_a_message(store: RedisStore) -> None:
    await store.submit(jobs("a"))

    assert (await store.wait_for_work(worker="late", tasks=["work"], timeout_seconds=LONG_SECONDS)).more


async def test_a_job_that_comes_due_is_found_when_it_does(store: RedisStore) -> None:
    await store.register(Registration(name="worker-0", tasks=(TaskOptions(name="work"),), capacity=1))
    seconds, milliseconds = await store.client.command("TIME")
    soon = int(seconds) * 1000 + int(milliseconds) // 1000 + 300
    await store.submit([Submission(id="a", task="work", run_at_ms=soon)])

    assert (await store.wait_for_work(worker="worker-0", tasks=["work"], timeout_seconds=LONG_SECONDS)).more
    assert (await store.claim(worker="worker-0", tasks=["work"], capacity=1, lease_ms=LEASE_MS, claim_id="c")).leases
