"""Lists longer than Lua can hand to one command: calls take them all the same."""

from __future__ import annotations

import pytest
from harness import LEASE, NOW
from redis_calls import KINDS, new_namespace
from redis_snapshot import snapshot
from servers import Kind, shared_server

from qo.store.redis import RedisStore
from qo.store.values import Submission, Ticket

LONG = 4500
"""each names two groups and more; Lua's stack holds 8,000"""


@pytest.mark.parametrize("kind", KINDS)
async def test_a_long_list_of_callers_comes_in_and_leaves(kind: Kind) -> None:
    store = await RedisStore.open(shared_server(kind).url, namespace=new_namespace())
    tickets = [
        Ticket(holder=f"h{number}", groups=(f"user:u{number}", f"own-{number}"), lease_ms=LEASE, wait_ms=0)
        for number in range(LONG)
    ]

    grants = await store.acquire(tickets, now=NOW)
    left = await store.release([(grant.holder, grant.token) for grant in grants], now=NOW)

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

    await store.submit(submissions, now=NOW)

    assert await store.waiting_count() == LONG
    await snapshot(store)
    await store.close()
