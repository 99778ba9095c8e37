"""The heartbeat keeps leases alive, handlers learn of lost ones, and a dead worker's jobs come back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

import qo
from qo.errors import StoreUnavailable
from qo.queue.queue import Queue
from qo.store.contract import Store
from qo.values import Registration, Renewal, Renewed, WorkerInfo
from tests.worker.running import running, soon, until

LEASE_SECONDS = 0.6


@pytest.fixture
def overrides() -> dict[str, Any]:
    return {"concurrency": {"default_lease_duration_secs": LEASE_SECONDS}}


async def test_a_handler_that_blocks_the_event_loop_for_twice_its_lease_keeps_it(queue: qo.Queue) -> None:
    worker, other = qo.Worker(queue, "worker-1"), qo.Worker(queue, "worker-2")
    lease_ends: list[float] = []

    @worker.task
    async def blocks(data: Any, ctx: qo.Context) -> str:
        time.sleep(2 * LEASE_SECONDS)  # noqa: ASYNC251 - that is what a careless handler does
        return ctx.token

    async def steal() -> None:
        """Another process, here another loop in a thread, looks for leases that ran out all the while."""
        while not stolen.is_set():
            portion = await queue.store.catch_up()
            lease_ends.extend(time.monotonic() for _ in portion.ids)
            await asyncio.sleep(0.01)

    stolen = threading.Event()
    thief = threading.Thread(target=lambda: asyncio.run(steal()))
    job = await queue.submit("blocks")
    thief.start()
    await soon(worker.run_until_idle())
    stolen.set()
    thief.join()
    ended = await queue.get(job.id)

    assert (ended.state, ended.attempts, lease_ends) == (qo.State.SUCCEEDED, 1, [])
    assert ended.started_at is not None
    assert ended.finished_at is not None
    assert (ended.finished_at - ended.started_at).total_seconds() >= 2 * LEASE_SECONDS
    assert other.name == "worker-2"


async def test_a_handler_whose_lease_is_revoked_is_interrupted_and_its_result_refused(
    queue: qo.Queue, worker: qo.Worker
) -> None:
    begun, was_interrupted = asyncio.Event(), asyncio.Event()
    seen: list[tuple[bool, float]] = []
    runs = []

    @worker.task(max_concurrent=1)
    async def stubborn(data: Any, ctx: qo.Context) -> str:
        runs.append(ctx.token)
        if len(runs) > 1:
            return "second run"
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append((ctx.lost, time.monotonic()))
            was_interrupted.set()
        return "first run"

    job = await queue.submit("stubborn")
    async with running(worker):
        await soon(begun.wait())
        revoked_at = time.monotonic()
        assert await queue.release_slot("stubborn", 0, by="ops", force=True) == job.id
        ended = await queue.wait(job.id, timeout=10)
        await soon(was_interrupted.wait())

    ((lost, at),) = seen
    assert lost
    assert at - revoked_at < 1
    assert (ended.result, ended.attempts, len(runs)) == ("second run", 2, 2)


async def test_a_report_with_a_lost_lease_raises_and_changes_nothing(queue: qo.Queue, worker: qo.Worker) -> None:
    begun, revoked = threading.Event(), threading.Event()
    raised = []

    @worker.task(max_concurrent=1)
    def reports(data: Any, ctx: Any) -> str:
        if ctx.attempt == 2:
            return "second run"
        begun.set()
        revoked.wait(10)
        try:
            ctx.progress(1)
        except qo.LeaseLost as error:
            raised.append(str(error))
            raise
        return "first run"

    job = await queue.submit("reports")
    async with running(worker):
        await asyncio.to_thread(begun.wait, 10)
        await queue.release_slot("reports", 0, force=True)
        revoked.set()
        ended = await queue.wait(job.id, timeout=10)

    assert (ended.result, ended.progress) == ("second run", None)
    assert "Stop the work" in raised[0]


async def test_the_jobs_of_a_dead_worker_come_back_in_their_old_places_one_lease_later(
    queue: qo.Queue, worker: qo.Worker
) -> None:
    jobs = [await queue.submit("build") for _ in range(3)]
    dead = await queue.store.claim(
        worker="dead", tasks=["build"], capacity=2, lease_ms=round(LEASE_SECONDS * 1000), claim_id="its last"
    )
    died_at = time.monotonic()
    order: list[tuple[str, int]] = []

    @worker.task
    async def build(data: Any, ctx: qo.Context) -> None:
        order.append((ctx.job.id, ctx.attempt))

    await queue.pause("build")
    async with running(worker):
        await until(lambda: _all_waiting(queue, 3))
        waited = time.monotonic() - died_at
        back = await queue.jobs(status="queued")
        await queue.resume("build")
        for job in jobs:
            await queue.wait(job.id, timeout=10)

    assert len(dead.leases) == 2
    assert [job.id for job in back] == [job.id for job in jobs]
    # The first two are suspects, of which a worker takes one at first.
    assert order[0] == (jobs[0].id, 2)
    assert sorted(order) == sorted([(jobs[0].id, 2), (jobs[1].id, 2), (jobs[2].id, 1)])
    # The server counts in whole milliseconds, and its lease began before `died_at`.
    assert LEASE_SECONDS - 0.01 <= waited < 6 * LEASE_SECONDS


async def _all_waiting(queue: qo.Queue, number: int) -> bool:
    return (await queue.store.line(limit=0)).queued == number


async def test_a_renewal_does_not_wait_behind_a_busy_writer(queue: qo.Queue) -> None:
    """Submits are piled up; a renewal that comes last, from a thread of its own as a heartbeat's does, is answered
    before all but the ones under way."""
    if queue.store.location == "the memory of this process":
        pytest.skip("calls of a store in memory do not pile up; tests/store/sqlite/test_inline_writer.py has its rule")
    piled = [asyncio.create_task(queue.store.submit(_submissions(n))) for n in range(300)]
    await asyncio.sleep(0)
    await asyncio.to_thread(asyncio.run, queue.store.renew([], worker="worker-1"))
    still_waiting = sum(not task.done() for task in piled)
    await asyncio.gather(*piled)

    assert still_waiting >= 100


def _submissions(number: int) -> list[Any]:
    from qo.values import Submission

    return [Submission(id=f"{number}-{each}", task="build") for each in range(10)]


class Away:
    """A store of which these methods raise while it is away `now`, and are counted."""

    def __init__(self, store: Store, *names: str) -> None:
        self.now = False
        self.refused: Counter[str] = Counter()
        for name in names:
            setattr(store, name, self._unless_away(name, getattr(store, name)))

    def _unless_away(self, name: str, method: Any) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            if self.now:
                self.refused[name] += 1
                raise StoreUnavailable("The store is away; try again.")
            return await method(*args, **kwargs)

        return call


async def test_a_worker_keeps_its_jobs_while_the_store_is_away(queue: Queue, worker: qo.Worker) -> None:
    """Renewals and finishes fail for longer than a lease; when the store is back, the job ends as if nothing was."""
    begun, release = asyncio.Event(), asyncio.Event()

    @worker.task
    async def works() -> str:
        begun.set()
        await release.wait()
        return "done"

    away = Away(queue.store, "renew", "finish", "claim", "advance", "catch_up", "wait_for_work")
    job = await queue.submit("works")
    async with running(worker):
        await soon(begun.wait())
        away.now = True
        release.set()

        async def refused_often() -> bool:
            return away.refused["renew"] >= 3 and away.refused["finish"] >= 1

        await until(refused_often)
        away.now = False
        ended = await queue.wait(job.id, timeout=10)

    assert (ended.result, ended.attempts) == ("done", 1)


async def test_a_lease_is_kept_until_the_store_has_taken_the_outcome(queue: Queue, worker: qo.Worker) -> None:
    """The handler has ended, but for three leases nothing can be finished."""
    worker.task("works")(lambda: "done")
    finish, renewed = queue.store.finish, 0
    renew = queue.store.renew

    async def refused(*args: Any, **kwargs: Any) -> Any:
        raise StoreUnavailable("The store takes no outcomes; try again.")

    async def counted(renewals: Sequence[Renewal], **kwargs: Any) -> Renewed:
        nonlocal renewed
        renewed += len(renewals)
        return await renew(renewals, **kwargs)

    queue.store.finish, queue.store.renew = refused, counted  # type: ignore[method-assign]
    job = await queue.submit("works")

    async def renewed_for_three_leases() -> bool:
        return renewed >= 9

    async with running(worker):
        await until(renewed_for_three_leases)
        queue.store.finish = finish  # type: ignore[method-assign]
        ended = await queue.wait(job.id, timeout=10)

    assert (ended.result, ended.attempts) == ("done", 1)


async def test_a_worker_that_was_forgotten_registers_again(queue: qo.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a sleep of its machine: it is gone from the registry, while its process lives on."""
    monkeypatch.setattr("qo.worker.joining.LIFETIME_MS", 300)
    worker = qo.Worker(queue, "worker-1")
    worker.task("job")(lambda: None)
    away = Away(queue.store, "renew")
    found: list[WorkerInfo] = []

    async def is_registered() -> bool:
        found[:] = await queue.workers()
        return bool(found)

    async def could_not_renew() -> bool:
        return away.refused["renew"] >= 1

    async with running(worker):
        await until(is_registered)
        (before,) = found
        away.now = True
        await queue.store.register(Registration(name="worker-1", instance=before.instance, tasks=(), capacity=0))
        await until(could_not_renew)
        meanwhile = await queue.workers()
        away.now = False
        await until(is_registered)
        (again,) = found

    assert meanwhile == []
    assert (again.name, again.tasks) == (before.name, before.tasks) == ("worker-1", ("job",))
    assert again.registered_at > before.registered_at
