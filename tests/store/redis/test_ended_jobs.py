"""Jobs that have ended and are still kept: who changes those that have not is not kept waiting by them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from qo.job import Job
from qo.store.paging import read_jobs
from qo.store.redis import RedisStore
from qo.values import Wanted
from tests.conformance.suite.harness import NOW, at, claim, numbered, standing, submit_all, succeed
from tests.servers.redis import Kind, shared_server
from tests.store.redis.redis_calls import KINDS, new_namespace

ENDED = 1200
"""three looks of the server at rows"""


async def looks_at_rows(store: RedisStore, change: Awaitable[object]) -> int:
    """How often the server looked rows up for it."""
    before = await _calls_of(store, "hmget")
    await change
    return await _calls_of(store, "hmget") - before


async def _calls_of(store: RedisStore, command: str) -> int:
    for line in (await store.client.command("INFO", "commandstats")).decode().splitlines():
        if line.startswith(f"cmdstat_{command}:calls="):
            return int(line.partition("calls=")[2].partition(",")[0])
    return 0


async def with_ended_jobs(store: RedisStore, name: str, count: int) -> None:
    """A user and a parent of this name, with so many ended jobs and three that wait."""
    await submit_all(store, numbered(f"{name}-ended-", count), user=name, parent=name)
    while held := await claim(store, capacity=400):
        await succeed(store, *held)
    await submit_all(store, numbered(f"{name}-", 3), user=name, parent=name, task="other")


CHANGES: dict[str, Callable[[RedisStore, str], Awaitable[object]]] = {
    "a tier": lambda store, name: at(store, NOW).set_tier(name, standing("plain")),
    "a priority": lambda store, name: at(store, NOW).set_priority(20, parent=name),
    "the end": lambda store, name: at(store, NOW).cancel(parent=name),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_of_what_waits_does_not_look_at_what_has_ended(kind: Kind, change: str) -> None:
    store = await RedisStore.open(shared_server(kind).url, namespace=new_namespace())
    await with_ended_jobs(store, "few", 1)
    await with_ended_jobs(store, "many", ENDED)

    few = await looks_at_rows(store, CHANGES[change](store, "few"))
    many = await looks_at_rows(store, CHANGES[change](store, "many"))

    assert few > 0
    assert many == few
    await store.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("of", ["user", "parent"])
@pytest.mark.parametrize("newest_first", [False, True])
async def test_a_page_of_jobs_is_read_without_the_others(kind: Kind, of: str, newest_first: bool) -> None:
    store = await RedisStore.open(shared_server(kind).url, namespace=new_namespace())
    await with_ended_jobs(store, "few", 5)
    await with_ended_jobs(store, "many", ENDED)
    pages: list[tuple[Job, ...]] = []

    async def read(name: str) -> None:
        wanted = Wanted(user=name) if of == "user" else Wanted(parent=name)
        pages.append((await store.jobs(limit=7, newest_first=newest_first, **wanted)).jobs)

    few, many = await looks_at_rows(store, read("few")), await looks_at_rows(store, read("many"))

    ended = numbered("many-ended-", ENDED)
    assert [job.id for job in pages[1]] == [*numbered("many-", 3), *(ended[:-5:-1] if newest_first else ended[:4])]
    assert many == few
    await store.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_search_that_passes_over_many_finds_what_is_behind_them(kind: Kind) -> None:
    store = await RedisStore.open(shared_server(kind).url, namespace=new_namespace())
    await with_ended_jobs(store, "many", 2 * ENDED)
    await at(store, NOW).cancel(job_id="many-00002")

    found = await read_jobs(store, user="many", status="cancelled", limit=100)

    assert [job.id for job in found] == ["many-00002"]
    await store.close()
