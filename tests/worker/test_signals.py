"""SIGTERM and SIGINT: the first is a request, the second an order, and nothing is lost or run twice by either."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import qo
from qo.worker.exchange import Exchange
from tests.processes import Process
from tests.worker.worker_process import Options, diary_of, started, until

GRACE_SECONDS = 30
AT_ONCE_SECONDS = GRACE_SECONDS / 2
"""far less than the grace period, and still enough on a machine that is busy with other things"""
STOPPING = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options(
        url=f"sqlite:///{tmp_path / 'qo.db'}",
        settings={"worker": {"grace_secs": GRACE_SECONDS}},
        diary=str(tmp_path / "diary"),
    )


@pytest.fixture
async def queue(options: Options) -> AsyncIterator[qo.Queue]:
    async with await qo.connect(options.url) as opened:
        yield opened


def with_grace(options: Options, seconds: float) -> Options:
    return msgspec.structs.replace(options, settings={"worker": {"grace_secs": seconds}})


def calls(options: Options) -> list[tuple[str, int, str]]:
    return diary_of(Path(options.diary))


async def has_called(options: Options, number: int) -> bool:
    return len(calls(options)) >= number


async def submit_all(queue: qo.Queue, *jobs: qo.New) -> list[str]:
    return [job.id for job in await queue.submit_many(jobs) if isinstance(job, qo.Job)]


async def check_all_in_line_as_if_never_started(queue: qo.Queue, job_ids: list[str]) -> None:
    """In the order in which they were submitted; and nobody is left who would run them."""
    waiting = await queue.jobs(status="queued", limit=1000)
    assert [(job.id, job.attempts, job.started_at, job.position) for job in waiting] == [
        (job_id, 0, None, position) for position, job_id in enumerate(job_ids, start=1)
    ]
    assert await queue.store.leases() == ()
    assert await queue.workers() == []


# --- the first signal -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", STOPPING, ids=lambda number: number.name)
async def test_a_signal_under_load_loses_no_attempt_and_runs_nothing_twice(
    queue: qo.Queue, options: Options, tmp_path: Path, number: signal.Signals
) -> None:
    signalled = tmp_path / "signalled"
    quick, held_up = {"seconds": 0.005}, {"seconds": 0.005, "until": str(signalled)}
    # The later ones wait for the signal, so that it comes in the middle however slowly it is sent.
    jobs = await submit_all(queue, *[qo.New("short", quick)] * 250, *[qo.New("short", held_up)] * 250)
    async with started(options) as worker:
        await until(lambda: has_called(options, 100))
        sent_at = time.monotonic()
        worker.signal(number)
        signalled.touch()
        assert await worker.ended() == 0
        assert time.monotonic() - sent_at < GRACE_SECONDS

    ran = [job_id for job_id, _, _ in calls(options)]
    assert 100 <= len(ran) <= 250 + options.concurrency
    assert {attempt for _, attempt, _ in calls(options)} == {1}
    assert len(set(ran)) == len(ran)
    succeeded = await queue.jobs(status="succeeded", limit=1000)
    assert {job.id: job.attempts for job in succeeded} == dict.fromkeys(ran, 1)
    await check_all_in_line_as_if_never_started(queue, [job_id for job_id in jobs if job_id not in ran])

    async with started(msgspec.structs.replace(options, names=("worker-2",))) as second:
        for job_id in jobs:
            await queue.wait(job_id, timeout=60)
        await stop_and_check(second, number)
    assert sorted(job_id for job_id, _, _ in calls(options)) == sorted(jobs)
    assert {job.attempts for job in await queue.jobs(status="succeeded", limit=1000)} == {1}


@pytest.mark.parametrize("number", STOPPING, ids=lambda number: number.name)
async def test_handlers_that_outlast_the_grace_period_go_back_to_their_places_without_an_attempt_spent(
    queue: qo.Queue, options: Options, number: signal.Signals
) -> None:
    tasks = ("endless", "endless_thread", "endless", "endless_thread", "endless")
    jobs = await submit_all(queue, *map(qo.New, tasks))
    short = with_grace(msgspec.structs.replace(options, concurrency=3), 0.5)
    async with started(short) as worker:
        await until(lambda: has_called(options, 3))
        await stop_and_check(worker, number)

    assert sorted(job_id for job_id, _, _ in calls(options)) == sorted(jobs[:3])
    await check_all_in_line_as_if_never_started(queue, jobs)


async def test_one_signal_stops_every_worker_of_a_process_idle_or_not(
    queue: qo.Queue, options: Options, tmp_path: Path
) -> None:
    signalled = tmp_path / "signalled"
    job_id, *_ = await submit_all(queue, qo.New("short", {"until": str(signalled)}))
    async with started(msgspec.structs.replace(options, names=("worker-1", "worker-2"))) as process:
        await until(lambda: has_called(options, 1))
        await until(lambda: has_workers(queue, "worker-1", "worker-2"))
        process.signal(signal.SIGTERM)
        signalled.touch()
        assert await process.ended() == 0

    job = await queue.get(job_id)
    assert (job.state, job.attempts) == (qo.State.SUCCEEDED, 1)
    assert await queue.workers() == []


async def test_a_synchronous_worker_heeds_signals_in_the_main_thread(
    queue: qo.Queue, options: Options, tmp_path: Path
) -> None:
    signalled = tmp_path / "signalled"
    running, endless = await submit_all(queue, qo.New("short", {"until": str(signalled)}), qo.New("endless"))
    async with started(msgspec.structs.replace(options, sync=True)) as process:
        await until(lambda: has_called(options, 2))
        process.signal(signal.SIGTERM)
        await process.line_with("SIGTERM: stopping when what runs has ended")
        signalled.touch()
        await queue.wait(running, timeout=60)
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0

    assert (await queue.get(running)).state is qo.State.SUCCEEDED
    await check_all_in_line_as_if_never_started(queue, [endless])


async def stop_and_check(process: Process, number: signal.Signals) -> None:
    """It ends well, long before the net would catch it."""
    sent_at = time.monotonic()
    process.signal(number)
    assert await process.ended() == 0
    assert time.monotonic() - sent_at < AT_ONCE_SECONDS


async def has_workers(queue: qo.Queue, *names: str) -> bool:
    return [worker.name for worker in await queue.workers()] == list(names)


# --- the second signal ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["endless", "endless_thread"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGINT, signal.SIGINT),
        (signal.SIGTERM, signal.SIGINT),
    ],
    ids=lambda number: number.name,
)
async def test_a_second_signal_hands_back_at_once_what_would_have_had_the_grace_period(
    queue: qo.Queue, options: Options, task: str, first: signal.Signals, second: signal.Signals
) -> None:
    jobs = await submit_all(queue, qo.New(task), qo.New(task))
    async with started(msgspec.structs.replace(options, concurrency=1)) as worker:
        await until(lambda: has_called(options, 1))
        worker.signal(first)
        await worker.line_with(f"{first.name}: stopping when what runs has ended")
        assert await queue.store.leases() != ()
        await stop_and_check(worker, second)

    await check_all_in_line_as_if_never_started(queue, jobs)


# --- in this process ------------------------------------------------------------------------------------------


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in STOPPING]


async def heeds_signals(before: list[Any]) -> bool:
    return all(now != then for now, then in zip(handlers(), before, strict=True))


async def test_the_handlers_of_before_are_back_when_run_has_returned(queue: qo.Queue) -> None:
    worker = qo.Worker(queue)
    worker.task("job")(lambda: None)
    before = handlers()
    for number in STOPPING:
        run = asyncio.create_task(worker.run())
        await until(lambda: heeds_signals(before))
        os.kill(os.getpid(), number)
        await asyncio.wait_for(run, AT_ONCE_SECONDS)
        assert handlers() == before


async def test_the_handlers_of_before_are_back_when_run_has_failed_or_was_cancelled(queue: qo.Queue) -> None:
    worker = qo.Worker(queue, "worker-1")
    worker.task("job")(lambda: None)
    before = handlers()
    run = asyncio.create_task(worker.run())
    await until(lambda: has_workers(queue, "worker-1"))
    assert await heeds_signals(before)
    run.cancel()
    await asyncio.wait({run}, timeout=AT_ONCE_SECONDS)
    assert run.cancelled()
    assert handlers() == before

    async def fails(*args: Any, **options: Any) -> Any:
        assert handlers() != before
        raise RuntimeError("no claim today")

    queue.store.claim = fails  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="no claim today"):
        await worker.run_until_idle()
    assert handlers() == before


async def test_the_handlers_of_before_are_back_only_when_the_last_worker_is_gone(queue: qo.Queue) -> None:
    workers = [qo.Worker(queue, f"worker-{number}") for number in (1, 2)]
    for worker in workers:
        worker.task("job")(lambda: None)
    before = handlers()
    first, last = [asyncio.create_task(worker.run()) for worker in workers]
    await until(lambda: has_workers(queue, "worker-1", "worker-2"))
    workers[0].stop()
    await asyncio.wait_for(first, AT_ONCE_SECONDS)
    assert await heeds_signals(before)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(last, AT_ONCE_SECONDS)
    assert handlers() == before


async def test_a_worker_that_was_cancelled_while_it_started_can_run_again(queue: qo.Queue) -> None:
    worker = qo.Worker(queue)
    worker.task("job")(lambda: "done")
    before = handlers()
    register, registering = queue.store.register, asyncio.Event()

    async def never_answered(*args: Any, **options: Any) -> Any:
        registering.set()
        await asyncio.Event().wait()

    queue.store.register = never_answered  # type: ignore[method-assign]
    run = asyncio.create_task(worker.run())
    await asyncio.wait_for(registering.wait(), AT_ONCE_SECONDS)
    run.cancel()
    await asyncio.wait({run}, timeout=AT_ONCE_SECONDS)
    assert run.cancelled()
    assert handlers() == before

    queue.store.register = register  # type: ignore[method-assign]
    await runs_a_job(queue, worker)


@pytest.mark.parametrize("failing_call", [1, 2], ids=["as it comes", "as it goes"])
async def test_a_worker_that_could_not_reach_the_store_as_it_came_or_went_can_run_again(
    queue: qo.Queue, failing_call: int
) -> None:
    worker = qo.Worker(queue)
    worker.task("job")(lambda: "done")
    before = handlers()
    register, calls_seen = queue.store.register, 0

    async def sometimes_away(*args: Any, **options: Any) -> Any:
        nonlocal calls_seen
        calls_seen += 1
        if calls_seen == failing_call:
            raise qo.StoreUnavailable("away")
        return await register(*args, **options)

    queue.store.register = sometimes_away  # type: ignore[method-assign]
    try:
        await worker.run_until_idle()
    except qo.StoreUnavailable:
        pass  # whether it tells of this is not what is tested here
    assert calls_seen >= failing_call
    assert handlers() == before

    await runs_a_job(queue, worker)


async def runs_a_job(queue: qo.Queue, worker: qo.Worker) -> None:
    job = await queue.submit("job")
    await asyncio.wait_for(worker.run_until_idle(), AT_ONCE_SECONDS)
    assert (await queue.get(job.id)).result == "done"
    assert await queue.workers() == []


async def test_a_stop_that_comes_just_before_a_round_trip_is_not_slept_through(
    queue: qo.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal may come between any two steps of the loop, also after it looked whether it is to stop."""
    worker = qo.Worker(queue)
    worker.task("job")(lambda: None)
    before_a_round_trip(monkeypatch, worker.stop)
    run = asyncio.create_task(worker.run())

    assert await ends_by_itself(run, worker)


async def test_a_second_signal_that_comes_just_before_a_round_trip_is_not_slept_through(
    queue: qo.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = qo.Worker(queue)
    begun = asyncio.Event()

    @worker.task
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    await queue.submit("endless")
    run = asyncio.create_task(worker.run())
    await asyncio.wait_for(begun.wait(), AT_ONCE_SECONDS)
    before_a_round_trip(monkeypatch, worker.stop_now)
    worker.stop()

    assert await ends_by_itself(run, worker)


def before_a_round_trip(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Do something once, between the worker's last look at its flags and its next round trip with the store."""

    async def act_and_go_on(exchange: Exchange) -> bool:
        monkeypatch.undo()
        act()
        return await exchange.next()

    monkeypatch.setattr(Exchange, "next", act_and_go_on)


async def ends_by_itself(run: asyncio.Task[None], worker: qo.Worker) -> bool:
    ended, _ = await asyncio.wait({run}, timeout=5)
    worker.stop_now()
    await asyncio.wait_for(run, AT_ONCE_SECONDS)
    return bool(ended)
