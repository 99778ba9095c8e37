"""The one thread that writes to an SQLite file: who shares its commits, who goes first, who need not wait for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from pathlib import Path

import apsw
import pytest

from qo.errors import JobNotFound, StoreUnavailable
from qo.store.sqlite import SQLiteStore
from qo.store.sqlite.operations import read_jobs as reading
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.view import View
from qo.values import Bounds, Renewal
from tests.conformance.suite.harness import NOW, at, submission, submit


class Gate:
    """Holds the writer in the middle of an operation until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._opened = threading.Event()

    def __call__(self, db: apsw.Connection) -> None:
        self.reached.set()
        assert self._opened.wait(timeout=30)

    def open(self) -> None:
        self._opened.set()


async def held_writer(store: SQLiteStore) -> tuple[Gate, asyncio.Task[None]]:
    gate = Gate()
    task = asyncio.create_task(store.writer.call(gate))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    return gate, task


async def test_readers_do_not_wait_for_the_writer(store: SQLiteStore) -> None:
    await submit(store, "a")
    gate, held = await held_writer(store)

    job = await asyncio.wait_for(store.job("a"), timeout=10)
    line = await asyncio.wait_for(store.line(limit=10), timeout=10)

    assert job.position == 1
    assert [each.id for each in line.jobs] == ["a"]
    assert not held.done()
    gate.open()
    await held


async def test_the_line_is_read_from_its_index_and_no_further_than_asked(store: SQLiteStore) -> None:
    await store.submit([submission(f"job-{number}") for number in range(2000)])

    async def steps_taken(limit: int) -> int:
        def read(db: apsw.Connection) -> int:
            steps = 0

            def count() -> bool:
                nonlocal steps
                steps += 1
                return False

            db.set_progress_handler(count, 1)
            try:
                assert len(reading.line(View(db, NOW, Bounds()), limit=limit).jobs) == limit
            finally:
                db.set_progress_handler(None)
            return steps

        return await store.read(read)

    assert await steps_taken(10) < 1000
    assert await steps_taken(100) < 11 * await steps_taken(10)


async def test_operations_that_gather_meanwhile_share_one_commit(store: SQLiteStore) -> None:
    commits: list[int] = []

    def note_commit() -> bool:
        commits.append(1)
        return False  # let it be a commit

    await store.writer.call(lambda db: db.set_commit_hook(note_commit))
    gate, held = await held_writer(store)
    waiting = [asyncio.create_task(submit(store, f"job-{number}")) for number in range(40)]
    await asyncio.sleep(0)
    commits.clear()

    gate.open()
    await asyncio.gather(held, *waiting)

    assert len(commits) == 2  # the one that was held, and one for all forty


async def test_an_operation_that_fails_takes_nothing_with_it(store: SQLiteStore) -> None:
    gate, held = await held_writer(store)
    good = asyncio.create_task(submit(store, "good"))
    bad = asyncio.create_task(store.retry("nobody"))
    also_good = asyncio.create_task(submit(store, "also-good"))
    await asyncio.sleep(0)

    gate.open()
    await asyncio.gather(held, good, also_good)

    with pytest.raises(JobNotFound):
        await bad
    assert [job.id for job in (await store.jobs()).jobs] == ["good", "also-good"]


async def test_a_renewal_goes_before_everything_that_waits(store: SQLiteStore) -> None:
    gate, held = await held_writer(store)
    order: list[str] = []

    async def note(name: str, operation: Awaitable[object]) -> None:
        await operation
        order.append(name)

    tasks = [asyncio.create_task(note("submit", submit(store, f"job-{number}"))) for number in range(3)]
    await asyncio.sleep(0)
    renewal = at(store, NOW).renew([Renewal(holder="a", token="1", lease_ms=1000)])
    tasks.append(asyncio.create_task(note("renew", renewal)))
    await asyncio.sleep(0)

    gate.open()
    await asyncio.gather(held, *tasks)

    assert order == ["renew", "submit", "submit", "submit"]


async def test_closing_finishes_what_has_arrived_and_refuses_what_comes_later(tmp_path: Path) -> None:
    store = await SQLiteStore.open(str(tmp_path / "qo.db"))
    gate, held = await held_writer(store)
    arrived = asyncio.create_task(submit(store, "arrived"))
    await asyncio.sleep(0)
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)

    with pytest.raises(StoreUnavailable, match="is closed"):
        await submit(store, "late")
    gate.open()
    await asyncio.gather(held, arrived, closing)

    again = await SQLiteStore.open(str(tmp_path / "qo.db"))
    assert [job.id for job in (await again.jobs()).jobs] == ["arrived"]
    await again.close()


async def test_a_caller_that_gives_up_waiting_disturbs_nobody(store: SQLiteStore) -> None:
    gate, held = await held_writer(store)
    gives_up = asyncio.create_task(submit(store, "gave-up"))
    stays = asyncio.create_task(submit(store, "stays"))
    await asyncio.sleep(0)

    gives_up.cancel()
    gate.open()
    await asyncio.gather(held, stays)

    # Its operation was on its way already; only the answer has nobody to go to.
    assert [job.id for job in (await store.jobs()).jobs] == ["gave-up", "stays"]


async def test_a_disk_that_takes_no_more_fails_the_operations_and_changes_nothing(store: SQLiteStore) -> None:
    await submit(store, "before")
    pages = await store.writer.call(lambda db: db.pragma("page_count"))
    await store.writer.call(lambda db: db.pragma("max_page_count", pages))

    with pytest.raises(StoreUnavailable, match="nothing was changed"):
        await store.submit([submission(f"job-{number}", payload=b'"' + b"x" * 4000 + b'"') for number in range(200)])

    await store.writer.call(lambda db: db.pragma("max_page_count", 1_000_000))
    await submit(store, "after")
    assert [job.id for job in (await store.jobs()).jobs] == ["before", "after"]


async def test_the_writer_lives_on_after_a_commit_that_failed_in_whatever_way(store: SQLiteStore) -> None:
    def broken_hook() -> bool:
        raise RuntimeError("not a database error at all")

    with pytest.raises(StoreUnavailable, match="nothing was changed"):
        await store.writer.call(lambda db: db.set_commit_hook(broken_hook))
    with pytest.raises(StoreUnavailable, match="nothing was changed"):
        await submit(store, "refused")

    def mend(db: apsw.Connection) -> None:
        db.set_commit_hook(None)

    await store.writer.call(mend)
    await submit(store, "accepted")
    assert [job.id for job in (await store.jobs()).jobs] == ["accepted"]


async def test_all_that_one_look_reads_is_of_one_state(store: SQLiteStore) -> None:
    await submit(store, "a")

    def count(db: apsw.Connection) -> int:
        found: int = sql.value(db, "SELECT count(*) FROM job")
        return found

    def count_before_and_after_another_process_writes(db: apsw.Connection) -> tuple[int, int]:
        before = count(db)
        other = apsw.Connection(db.filename)
        other.execute("DELETE FROM job")
        other.close()
        return before, count(db)

    assert await store.look(count_before_and_after_another_process_writes) == (1, 1)
    assert await store.look(count) == 0
