"""What lanes cost the server: a start costs the same however many wait in them, and a lane of one takes little memory.

Looks and commands are counted by functions that are those of the store with counters in them.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest

from qo.job import State
from qo.store.redis import RedisStore, calling
from qo.store.redis.server.functions import CALL, Function, Library, library
from qo.values import Lease, Limit, Outcome, Source, Submission
from tests.conformance.suite.harness import LEASE, NOW, fresh_id
from tests.servers.redis import Kind, shared_server
from tests.store.redis.redis_calls import KINDS, new_namespace
from tests.store.redis.snapshot import snapshot

TAKE = "local taken = take(candidates, from)"
COUNT_LOOK = "looks = looks + 1 "
COUNTED_CALL = """
local function counted_call(...)
  local _, name = ...
  commands = commands + 1
  on_lanes = on_lanes + (string.find(name or '', '}:lane', 1, true) and 1 or 0)
  return redis.call(...)
end
"""
ASK = """
redis.register_function({ function_name = library .. '_counted', flags = { 'no-writes' }, callback = function()
  local counted = { looks, commands, on_lanes }
  looks, commands, on_lanes = 0, 0, 0
  return counted
end })
"""
FEW, MANY = 60, 4000
ROUNDS = 12
LOOKS_A_START = 4
MOST_MEMORY = 0.35
"""of what everything else about a job takes, for its lane"""


@cache
def counting_library() -> Library:
    _, _, code = library().text.split("\n", 2)
    for act, counted in ((CALL, "counted_call"), (TAKE, COUNT_LOOK + TAKE)):
        assert code.count(act) == 1
        code = code.replace(act, counted)
    return Library.of(f"local looks, commands, on_lanes = 0, 0, 0\n{COUNTED_CALL}{code}{ASK}")


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "function", lambda operation: Function.of(operation, counting_library()))


class Counted(NamedTuple):
    looks: int
    commands: int
    on_lanes: int
    """the commands that read or write lanes"""


async def counted(store: RedisStore) -> Counted:
    """Since it was last asked for."""
    return Counted(*await store.client.run(Function.of("counted", counting_library()), []))


async def opened(kind: Kind) -> RedisStore:
    """Its clock stands still, because a wait that is not 0 is one more figure to write."""
    store = await RedisStore.open(shared_server(kind).url, namespace=new_namespace())
    store.clock = lambda: NOW
    return store


async def claim(store: RedisStore, capacity: int) -> tuple[Lease, ...]:
    claim_id = fresh_id("claim")
    return (await store.claim(worker="w", tasks=["work"], capacity=capacity, lease_ms=LEASE, claim_id=claim_id)).leases


async def finish(store: RedisStore, *leases: Lease) -> None:
    await store.finish([Outcome(job_id=each.job_id, token=each.token, state=State.SUCCEEDED) for each in leases])


async def limit(store: RedisStore, group: str, slots: int) -> None:
    await store.set_limits([Limit(group=group, slots=slots, source=Source.OPERATOR)])


# --- a user's limit under an api's limit, full by turns -----------------------------------------------------------


async def alternating(kind: Kind, waiting: int) -> tuple[float, list[int]]:
    """The looks a start, and the commands of each step of a story in which two groups are full by turns.

    `api` has two slots, and the user u may run one job. Jobs of others come before u's and go again.
    """
    store = await opened(kind)
    await limit(store, "api", 2)
    await limit(store, "user:u", 1)
    for begin in range(0, waiting, 500):
        numbers = range(begin, min(begin + 500, waiting))
        await store.submit([Submission(id=f"u{n}", task="work", user="u", groups=("api",)) for n in numbers])
    starts = looks = 0
    commands: list[int] = []

    async def count() -> None:
        nonlocal looks
        step = await counted(store)
        looks += step.looks
        commands.append(step.commands)

    await counted(store)
    (running,) = await claim(store, 2)  # u's second job is parked in user:u
    await count()
    for turn in range(ROUNDS):
        others = [
            Submission(id=f"o{turn}-{n}", task="work", user=f"other-{n}", priority=10, groups=("api",)) for n in (0, 1)
        ]
        await store.submit(others)
        await count()
        (first,) = await claim(store, 2)  # api is full
        await count()
        await finish(store, running)
        await count()
        (second,) = await claim(store, 2)  # u has room, and api is full again
        await count()
        assert await claim(store, 2) == ()
        await count()
        await finish(store, first, second)
        await count()
        (running,) = await claim(store, 2)  # api has room for a job of u, and u for one
        await count()
        assert [lease.job_id for lease in (first, second, running)] == [others[0].id, others[1].id, f"u{turn + 1}"]
        starts += 3
    if waiting == FEW:
        await snapshot(store)
    await store.close()
    return looks / starts, commands


@pytest.mark.parametrize("kind", KINDS)
async def test_a_start_costs_the_same_however_many_jobs_two_groups_block_by_turns(counting: None, kind: Kind) -> None:
    few_looks, few_commands = await alternating(kind, FEW)
    many_looks, many_commands = await alternating(kind, MANY)

    assert few_looks == many_looks <= LOOKS_A_START
    assert many_commands == few_commands


# --- lanes of many, and many lanes --------------------------------------------------------------------------------


async def counted_in_claim(kind: Kind, submissions: list[Submission], *, capacity: int) -> Counted:
    store = await opened(kind)
    await store.submit(submissions)
    await counted(store)
    leases = await claim(store, capacity)
    found = await counted(store)
    assert len(leases) == capacity
    await store.close()
    return found


@pytest.mark.parametrize("kind", KINDS)
async def test_a_claim_needs_no_command_for_each_job_of_one_lane(counting: None, kind: Kind) -> None:
    alike = [Submission(id=f"j{number}", task="work") for number in range(200)]

    few = await counted_in_claim(kind, alike, capacity=2)
    many = await counted_in_claim(kind, alike, capacity=50)

    assert many.commands == few.commands


@pytest.mark.parametrize("kind", KINDS)
async def test_a_claim_needs_no_command_for_each_lane_of_one_job(counting: None, kind: Kind) -> None:
    users = [Submission(id=f"j{number}", task="work", user=f"u{number}") for number in range(100)]

    few = await counted_in_claim(kind, users, capacity=2)
    many = await counted_in_claim(kind, users, capacity=50)

    assert many.on_lanes == few.on_lanes == 2  # one reads the records, one removes them


@pytest.mark.parametrize("kind", KINDS)
async def test_jobs_of_several_lanes_start_in_their_order(kind: Kind) -> None:
    """More jobs a lane than are read at a time, and users that come by turns, each for a while."""
    store = await opened(kind)
    turns = [3, 1, 70, 2, 40, 5, 1, 90, 8]
    submissions = [
        Submission(id=f"{turn}-{number}", task="work", user=f"u{turn % 3}")
        for turn, length in enumerate(turns)
        for number in range(length)
    ]
    await store.submit(submissions)

    started: list[str] = []
    for capacity in (1, 100, 4, 64, 51):
        started += [lease.job_id for lease in await claim(store, capacity)]
        await snapshot(store)

    assert started == [submission.id for submission in submissions]
    await store.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_lane_of_one_job_takes_little_memory(kind: Kind) -> None:
    store = await opened(kind)
    users = [Submission(id=f"job-{number:06}", task="work", user=f"user-{number:06}") for number in range(2000)]
    await store.submit(users)

    sizes = {key: await store.client.command("MEMORY", "USAGE", key, "SAMPLES", 0) for key in await keys_of(store)}

    lanes = sizes.pop(f"{store.client.prefix}lanes")
    assert not [key for key in sizes if key.startswith(f"{store.client.prefix}lane:")]
    assert lanes <= MOST_MEMORY * sum(sizes.values())
    await store.close()


async def keys_of(store: RedisStore) -> list[str]:
    """Without the feed and replies, which go again."""
    found = [key.decode() for key in await store.client.command("KEYS", f"{store.client.prefix}*")]
    return [key for key in found if not key.removeprefix(store.client.prefix).startswith(("events", "reply:"))]
