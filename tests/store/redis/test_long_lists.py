"""Lists longer than Lua can hand to one command, and answers longer than one step should make: all comes through."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import TypeVar

import pytest

from qo.job import State
from qo.store.paging import read_jobs
from qo.store.redis import RedisStore
from qo.values import Bounds, Outcome, Submission, Ticket
from tests.conformance.suite.harness import LEASE, NOW, at, claim, numbered, submit_all
from tests.servers.redis import Kind, shared_server
from tests.store.redis.redis_calls import KINDS, new_namespace
from tests.store.redis.snapshot import snapshot

Read = TypeVar("Read")

LONG = 4500
"""each names two groups and more; Lua's stack holds 8,000"""


@pytest.mark.parametrize("kind", KINDS)
async def test_a_long_list_of_callers_comes_in_and_leaves(kind: Kind) -> None:
    store = await RedisStore.open(shared_server(kind).url, namespace=new_namespace())
    tickets = [
        Ticket(holder=f"h{number}", groups=(f"user:u{number}", f"own-{number}"), lease_ms=LEASE, wait_ms=0)
        for number in range(LONG)
    ]

    grants = await at(store, NOW).acquire(tickets)
    left = await at(store, NOW).release([(grant.holder, grant.token) for grant in grants])

    assert all(grant.token is not None for grant in grants)
    assert left == [True] * LONG
    assert (await snapshot(store))["slots"] == {}
    await store.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_long_list_of_jobs_is_submitted(kind: Kind) -> None:
    store = await RedisStore.open(shared_server(kind).url, namespace=new_namespace())
    submissions = [
        Submission(id=f"{number}", task="work", user=f"u{number}", groups=(f"own-{number}",)) for number in range(LONG)
    ]

    await at(store, NOW).submit(submissions)

    assert (await store.line(limit=0)).queued == LONG
    await snapshot(store)
    await store.close()


# --- what is read in parts ----------------------------------------------------------------------------------------


async def calls(store: RedisStore, read: Awaitable[Read]) -> tuple[int, Read]:
    """How many functions the server ran for it, and what it answered."""
    before = await _functions_run(store)
    answer = await read
    return await _functions_run(store) - before, answer


async def _functions_run(store: RedisStore) -> int:
    told: bytes = await store.client.command("INFO", "commandstats")
    return sum(int(found) for found in re.findall(rb"cmdstat_fcall(?:_ro)?:calls=(\d+)", told))


@pytest.mark.parametrize("kind", KINDS)
async def test_jobs_with_large_results_are_read_in_parts(kind: Kind) -> None:
    bounds = Bounds(claim_bytes=2500)
    store = await RedisStore.open(shared_server(kind).url, namespace=new_namespace(), bounds=bounds)
    ids, result = numbered("j", 7), b'"' + b"x" * 998 + b'"'
    await submit_all(store, ids)
    leases = await claim(store, capacity=7)
    await store.finish(
        [Outcome(job_id=each.job_id, token=each.token, state=State.SUCCEEDED, result=result) for each in leases]
    )
    await submit_all(store, ["waits"])

    parts, jobs = await calls(store, store.jobs())
    one_part, page = await calls(store, store.jobs(limit=3))

    assert [job.id for job in jobs.jobs] == ["waits", *ids]
    assert [job.result for job in jobs.jobs[1:]] == ["x" * 998] * 7
    assert [job.id for job in page.jobs] == ["waits", *ids[:2]]
    assert (parts, one_part) == (3, 1)
    await store.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_line_of_jobs_with_many_groups_is_read_in_parts(kind: Kind) -> None:
    store = await RedisStore.open(shared_server(kind).url, namespace=new_namespace())
    groups, ids = tuple(f"g{number}" for number in range(64)), numbered("j", 500)
    await submit_all(store, ids, groups=groups)

    parts, line = await calls(store, store.line(limit=1000))
    one_part, page = await calls(store, store.line(limit=400))

    assert [each.id for each in line.jobs] == ids
    assert [each.id for each in page.jobs] == ids[:400]
    assert line.jobs[-1].groups == ("global", "work", "priority:50", *groups)
    assert (parts, one_part) == (2, 1)
    await store.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_search_reads_fewer_jobs_at_a_time_where_they_have_many_groups(kind: Kind) -> None:
    store = await RedisStore.open(shared_server(kind).url, namespace=new_namespace())
    groups, ids = tuple(f"g{number}" for number in range(64)), numbered("j", 500)
    await submit_all(store, ids, groups=groups)
    await submit_all(store, ["last"], user="u")

    parts, found = await calls(store, read_jobs(store, task="nobody's", limit=100))
    in_parts, all_found = await calls(store, read_jobs(store, limit=501))

    assert (list(found), [job.id for job in all_found]) == ([], [*ids, "last"])
    assert parts > 1
    assert in_parts > 1
    await store.close()
