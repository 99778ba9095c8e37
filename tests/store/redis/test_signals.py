"""What a worker has to hear at once is told to it and to nobody else, and is not missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import pytest
from redis import Redis

from qo.event import CANCEL_WANTED
from qo.store.redis import RedisStore
from qo.store.redis.store import NET_SECONDS
from qo.values import Submission
from tests.conformance.suite.harness import NOW, acquire, at, claim, limit, submit, ticket
from tests.servers.redis import Kind, shared_server
from tests.store.redis.redis_calls import KINDS, new_namespace

SEVERAL_PAGES = 2500
"""signals; a look at the feed brings 1,000 at most"""
AT_ONCE = 50


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture
async def store(kind: Kind) -> AsyncIterator[RedisStore]:
    opened = await RedisStore.open(shared_server(kind).url, namespace=new_namespace())
    yield opened
    await opened.close()


@pytest.fixture
async def told(kind: Kind, store: RedisStore) -> AsyncIterator[Callable[[], list[str]]]:
    """To whom something was told since the last call."""
    channels, end = f"{store.client.prefix}signals:", f"{store.client.prefix}end"
    with Redis.from_url(shared_server(kind).url) as client, client.monitor() as monitor:

        def since_the_last_call() -> list[str]:
            client.execute_command("ECHO", end)
            heard = []
            while (command := monitor.next_command()["command"]) != f"ECHO {end}":
                if command.startswith(f"SPUBLISH {channels}"):
                    heard.append(command.split()[1].removeprefix(channels))
            return heard

        yield since_the_last_call


async def test_a_freed_slot_is_told_to_the_one_who_gets_it_and_to_nobody_else(
    store: RedisStore, told: Callable[[], list[str]]
) -> None:
    await limit(store, "gpu", 1)
    held = await acquire(store, "holds", "gpu", worker="w0")
    await at(store, NOW).acquire([ticket(f"waits-{number}", "gpu", worker=f"w{number}") for number in (1, 2, 3)])
    assert told() == []

    await at(store, NOW).release([("holds", held.token)])

    assert told() == ["w1"]


async def test_a_wanted_cancel_and_a_lost_lease_are_told_to_the_worker_that_has_the_job(
    store: RedisStore, told: Callable[[], list[str]]
) -> None:
    await limit(store, "work", 2)
    for name in ("a", "b"):
        await submit(store, name)
    (first,) = await claim(store, capacity=1, worker="w1")
    await claim(store, capacity=1, worker="w2")

    await at(store, NOW).cancel(job_id=first.job.id)
    assert told() == ["w1"]
    await at(store, NOW).revoke("work", 1, force=True)
    assert told() == ["w2"]


async def test_a_listener_that_comes_late_hears_everything_without_waiting_for_the_next_look(store: RedisStore) -> None:
    for first in range(0, SEVERAL_PAGES, AT_ONCE):
        numbers = range(first, first + AT_ONCE)
        await at(store, NOW).submit([Submission(id=f"{number}", task="work", parent="p") for number in numbers])
        await claim(store, capacity=AT_ONCE)
    cursor = (await store.events(None)).cursor
    await at(store, NOW).cancel(parent="p")

    heard: list[str] = []
    async with aclosing(store.signals("w1", cursor)) as feeds, asyncio.timeout(NET_SECONDS):
        async for feed in feeds:
            heard += [event.subject for event in feed.events if event.kind == CANCEL_WANTED]
            if len(heard) == SEVERAL_PAGES:
                break

    assert set(heard) == {f"{number}" for number in range(SEVERAL_PAGES)}
