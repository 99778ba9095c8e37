"""What a job's groups cost the server: twice as much for twice as many, and not four times.

Counted are the rounds of all loops, by functions that are those of the store with a counter in each loop. So a square
shows wherever it is, and a slow machine does not.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import cache

import pytest

from qo.job import State
from qo.policy.groups import MOST_GROUPS
from qo.store.redis import RedisStore, calling
from qo.store.redis.server.functions import Function, Library, library
from qo.values import (
    Bounds,
    Claimed,
    Lease,
    Limit,
    Outcome,
    Registration,
    Renewal,
    Source,
    Standing,
    Submission,
    TaskOptions,
    Ticket,
)
from tests.conformance.suite.harness import LEASE, fresh_id
from tests.servers.redis import Kind, shared_server
from tests.store.redis.redis_calls import KINDS, new_namespace

LOOP = re.compile(r"^\s*(for|while) .* do$", re.MULTILINE)
ASK_FOR_ROUNDS = """
redis.register_function({ function_name = library .. '_rounds', flags = { 'no-writes' }, callback = function()
  local counted = rounds
  rounds = 0
  return counted
end })
"""
GROUPS = (MOST_GROUPS // 4, MOST_GROUPS // 2, MOST_GROUPS)
JOBS = 10
MOST_GROWTH = 2.5
"""of what a doubling adds, to what the doubling before it added: 2 where each group costs the same, 4 for a square"""
SOME_ROUNDS = 20
"""that come and go, such as a second portion of names for one command"""
UNBOUNDED = Bounds(examine=10**6, portion=10**6)
"""no bound ends a step: the number of jobs is the same, whatever groups they have"""


@cache
def counting_library() -> Library:
    _, _, code = library().text.split("\n", 2)
    counted, loops = LOOP.subn(lambda loop: f"{loop[0]} rounds = rounds + 1", code)
    assert loops > 100
    return Library.of(f"local rounds = 0\n{counted}{ASK_FOR_ROUNDS}")


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "function", lambda operation: Function.of(operation, counting_library()))


async def rounds(store: RedisStore) -> int:
    """Since it was last asked for, by anybody in this process."""
    counted: int = await store.client.run(Function.of("rounds", counting_library()), [])
    return counted


# --- steps of jobs and callers that have so many groups -----------------------------------------------------------


def submissions(groups: int) -> list[Submission]:
    """Each with groups of its own."""
    own = [tuple(f"own-{job}-{number}" for number in range(groups)) for job in range(JOBS)]
    return [Submission(id=f"j{job}", task="work", user="u", parent="p", groups=own[job]) for job in range(JOBS)]


async def prepare(store: RedisStore, groups: int) -> None:
    """A task with as many groups again, half of which have a limit."""
    of_task = tuple(f"of-task-{number}" for number in range(groups))
    await store.register(Registration(name="w", tasks=(TaskOptions(name="work", groups=of_task),), capacity=JOBS))
    await store.set_limits([Limit(group=group, slots=JOBS, source=Source.OPERATOR) for group in of_task[::2]])


def claiming(store: RedisStore) -> Awaitable[Claimed]:
    return store.claim(worker="w", tasks=["work"], capacity=JOBS, lease_ms=LEASE, claim_id=fresh_id("claim"))


async def submitted(store: RedisStore, groups: int) -> None:
    await prepare(store, groups)
    await store.submit(submissions(groups))


async def claimed(store: RedisStore, groups: int) -> tuple[Lease, ...]:
    await submitted(store, groups)
    return (await claiming(store)).leases


async def submit(store: RedisStore, groups: int) -> Awaitable[object]:
    await prepare(store, groups)
    return store.submit(submissions(groups))


async def claim(store: RedisStore, groups: int) -> Awaitable[object]:
    await submitted(store, groups)
    return claiming(store)


async def park(store: RedisStore, groups: int) -> Awaitable[object]:
    await submitted(store, groups)
    await store.set_paused(f"of-task-{groups - 1}", True)
    return claiming(store)


async def finish(store: RedisStore, groups: int) -> Awaitable[object]:
    leases = await claimed(store, groups)
    return store.finish([Outcome(job_id=each.job_id, token=each.token, state=State.SUCCEEDED) for each in leases])


async def hand_back(store: RedisStore, groups: int) -> Awaitable[object]:
    leases = await claimed(store, groups)
    return store.finish([Outcome(job_id=each.job_id, token=each.token, state=State.QUEUED) for each in leases])


async def renew(store: RedisStore, groups: int) -> Awaitable[object]:
    leases = await claimed(store, groups)
    return store.renew([Renewal(holder=each.job_id, token=each.token, lease_ms=LEASE) for each in leases])


async def read_leases(store: RedisStore, groups: int) -> Awaitable[object]:
    await claimed(store, groups)
    return store.leases()


async def read_line(store: RedisStore, groups: int) -> Awaitable[object]:
    await submitted(store, groups)
    return store.line(limit=JOBS)


async def read_jobs(store: RedisStore, groups: int) -> Awaitable[object]:
    await submitted(store, groups)
    return store.jobs()


async def look_for_blockers(store: RedisStore, groups: int) -> Awaitable[object]:
    await submitted(store, groups)
    return store.blockers("j0")


async def set_tier(store: RedisStore, groups: int) -> Awaitable[object]:
    await submitted(store, groups)
    return store.set_tier("u", Standing(tier="partner"))


async def set_priority(store: RedisStore, groups: int) -> Awaitable[object]:
    await submitted(store, groups)
    return store.set_priority(20, parent="p")


async def register(store: RedisStore, groups: int) -> Awaitable[object]:
    """Other groups than before."""
    await submitted(store, groups)
    others = TaskOptions(name="work", groups=tuple(f"other-{number}" for number in range(groups)))
    return store.register(Registration(name="w", tasks=(others,), capacity=JOBS))


def tickets(groups: int, *, callers: int = JOBS) -> list[Ticket]:
    own = [tuple(f"own-{holder}-{number}" for number in range(groups)) for holder in range(callers)]
    return [Ticket(holder=f"h{holder}", groups=names, lease_ms=LEASE) for holder, names in enumerate(own)]


async def acquire(store: RedisStore, groups: int) -> Awaitable[object]:
    """A worker could take a job, so every caller stands in line first."""
    await submitted(store, groups)
    return store.acquire(tickets(groups))


async def acquire_for_many(store: RedisStore, callers: int) -> Awaitable[object]:
    await submitted(store, 1)
    return store.acquire(tickets(JOBS, callers=callers))


async def release(store: RedisStore, groups: int) -> Awaitable[object]:
    grants = await store.acquire(tickets(groups))
    return store.release([(grant.holder, grant.token) for grant in grants])


Step = Callable[[RedisStore, int], Awaitable[Awaitable[object]]]
STEPS: list[Step] = [
    submit, claim, park, finish, hand_back, renew, read_leases, read_line, read_jobs, look_for_blockers, set_tier,
    set_priority, register, acquire, release,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
async def test_twice_the_groups_cost_twice_as_much(counting: None, kind: Kind, step: Step) -> None:
    await check_growth(kind, step)


@pytest.mark.parametrize("kind", KINDS)
async def test_twice_the_callers_cost_twice_as_much(counting: None, kind: Kind) -> None:
    await check_growth(kind, acquire_for_many)


async def check_growth(kind: Kind, step: Step) -> None:
    few, more, most = [await rounds_of(kind, step, number) for number in GROUPS]

    assert most - more <= MOST_GROWTH * (more - few) + SOME_ROUNDS, f"{few}, {more}, {most} rounds with {GROUPS}"


async def rounds_of(kind: Kind, step: Step, groups: int) -> int:
    store = await RedisStore.open(shared_server(kind).url, namespace=new_namespace(), bounds=UNBOUNDED)
    measured = await step(store, groups)
    await rounds(store)
    await measured
    counted = await rounds(store)
    await store.close()
    return counted
