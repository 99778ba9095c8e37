"""A store in memory has no threads: each step runs in its caller's turn, and threads take turns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import apsw
import pytest
import pytest_asyncio

from qo.errors import StoreUnavailable
from qo.store.sqlite.file.inline_writer import InlineWriter
from qo.store.sqlite.store import SQLiteStore
from tests.store.good_values import submission


@pytest_asyncio.fixture
async def store() -> AsyncIterator[SQLiteStore]:
    opened = await SQLiteStore.open(":memory:")
    yield opened
    await opened.close()


async def test_opening_using_and_closing_it_starts_no_thread() -> None:
    before = threading.active_count()
    store = await SQLiteStore.open(":memory:")
    await store.submit([submission(id="a")])
    await store.jobs()

    assert threading.active_count() == before
    await store.close()
    assert threading.active_count() == before


async def test_a_call_takes_effect_in_the_turn_in_which_it_begins(store: SQLiteStore) -> None:
    submitting = asyncio.create_task(store.submit([submission(id="a")]))
    counting = asyncio.create_task(store.line(limit=0))
    await asyncio.sleep(0)
    submitting.cancel()

    assert (await counting).queued == 1


async def test_a_loop_of_calls_leaves_other_tasks_their_turns(store: SQLiteStore) -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    for _ in range(10):
        await store.line(limit=0)
    other.cancel()

    assert turns >= 10


async def test_an_operation_that_fails_changes_nothing_and_the_next_one_works(store: SQLiteStore) -> None:
    def half(db: apsw.Connection) -> None:
        db.execute("DELETE FROM job")
        raise ValueError("in the middle")

    await store.submit([submission(id="a")])
    with pytest.raises(ValueError, match="in the middle"):
        await store.writer.call(half)

    assert [job.id for job in (await store.jobs()).jobs] == ["a"]


async def test_threads_with_event_loops_of_their_own_share_it(store: SQLiteStore) -> None:
    async def submit(name: str) -> None:
        for number in range(30):
            await store.submit([submission(id=f"{name}-{number}")])

    await asyncio.gather(*(asyncio.to_thread(asyncio.run, submit(name)) for name in "abcd"), submit("here"))

    assert (await store.line(limit=0)).queued == 150


async def test_a_renewal_comes_before_the_next_call_of_a_busy_thread(store: SQLiteStore) -> None:
    order: list[str] = []
    first_runs, renewal_waits = threading.Event(), threading.Event()

    def first(db: apsw.Connection) -> None:
        first_runs.set()
        renewal_waits.wait(10)

    async def busy() -> None:
        await store.writer.call(first)
        await store.writer.call(lambda db: order.append("next"))

    async def renew() -> None:
        await store.writer.call(lambda db: order.append("renewal"), urgent=True)

    def seen_waiting() -> None:
        assert isinstance(store.writer, InlineWriter)
        while not store.writer.urgent_waiters:
            pass
        renewal_waits.set()

    working = asyncio.create_task(asyncio.to_thread(asyncio.run, busy()))
    await asyncio.to_thread(first_runs.wait, 10)
    renewing = asyncio.create_task(asyncio.to_thread(asyncio.run, renew()))
    await asyncio.to_thread(seen_waiting)
    await asyncio.gather(working, renewing)

    assert order == ["renewal", "next"]


async def test_a_closed_one_is_refused(store: SQLiteStore) -> None:
    await store.close()
    await store.close()

    with pytest.raises(StoreUnavailable, match="is closed"):
        await store.line(limit=0)
