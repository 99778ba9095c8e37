"""`qo bench`: how fast a store is from here."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

import click
import msgspec

from qo.cli.options import Target, store_options
from qo.cli.output import show_json
from qo.cli.progress import Progress
from qo.cli.running import on_queue
from qo.cli.terminal import note, say
from qo.new_job import New
from qo.queue.queue import Queue
from qo.store.open import sqlite_file
from qo.values import Keep, UpkeepRules
from qo.worker.worker import Worker

NAMESPACE = "qo-bench"
TASK = "qo-bench"
LIST = 250
SINGLE_ROUNDS = 20
NOTHING = UpkeepRules(keep=Keep(ms=0, jobs=0, events=0, audit=0))


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """`one_ms` is the time from a submit until the result is known, at the median, with an idle worker."""

    store: str
    jobs: int
    submitted_per_second: float
    run_per_second: float
    one_ms: float


@click.command()
@click.option("--jobs", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="How many jobs.")
@store_options
def bench(target: Target, *, jobs: int) -> None:
    """Measure how many jobs a second this store takes and runs from here, and how long one job takes.

    The jobs do nothing. They stand in a namespace of their own, qo-bench, so no other job waits for them, and they are
    removed at the end; the store is busy meanwhile. The limits of the settings hold for them too.
    """
    if target.namespace is not None:
        raise click.UsageError(f"--namespace is not for qo bench, which uses {NAMESPACE}.", click.get_current_context())
    target = target._replace(namespace=NAMESPACE)
    figures = on_queue(target, lambda queue: _measure(queue, jobs, shown=not target.as_json), creates=True)
    if target.as_json:
        show_json(figures)
        return
    note(f"({figures.store})")
    say(f"{figures.submitted_per_second:,.0f} jobs a second submitted, in lists of {min(LIST, jobs)}.")
    say(f"{figures.run_per_second:,.0f} jobs a second run by one worker.")
    say(f"{figures.one_ms:.1f} ms from a submit to its result, with an idle worker (median of {SINGLE_ROUNDS}).")


async def _measure(queue: Queue, jobs: int, *, shown: bool) -> Figures:
    try:
        if (await queue.store_here.line(limit=0)).queued:
            await _clear(queue)  # an earlier run was interrupted
        with Progress("jobs submitted", total=jobs, shown=shown) as progress:
            submitting = await _submit(queue, jobs, progress)
        running = await _run(queue)
        one = await _run_one_by_one(queue)
    finally:
        await _remove(queue)
    return Figures(
        store=queue.store.location,
        jobs=jobs,
        submitted_per_second=jobs / submitting,
        run_per_second=jobs / running,
        one_ms=one * 1000,
    )


async def _submit(queue: Queue, jobs: int, progress: Progress) -> float:
    began = time.monotonic()
    for first in range(0, jobs, LIST):
        size = min(LIST, jobs - first)
        await queue.submit_many([New(TASK, {"number": first + number}) for number in range(size)])
        progress.add(size)
    return time.monotonic() - began


async def _run(queue: Queue) -> float:
    worker = _worker(queue)
    began = time.monotonic()
    await worker.run_until_idle()
    return time.monotonic() - began


async def _run_one_by_one(queue: Queue) -> float:
    worker = _worker(queue)
    running = asyncio.create_task(worker.run())
    try:
        seconds = []
        for _ in range(SINGLE_ROUNDS + 1):
            began = time.monotonic()
            job = await queue.submit(TASK)
            await queue.wait(job.id)
            seconds.append(time.monotonic() - began)
    finally:
        worker.stop()
        await running
    return statistics.median(seconds[1:])  # the first waits until the worker has registered


def _worker(queue: Queue) -> Worker:
    worker = Worker(queue)

    @worker.task(TASK)
    async def nothing(data: object, ctx: object) -> None: ...

    return worker


async def _clear(queue: Queue) -> None:
    for job in await queue.jobs(status="queued", limit=100_000):
        await queue.cancel(job.id)


async def _remove(queue: Queue) -> None:
    """Remove what was measured with: the jobs, and on SQLite the namespace's file."""
    await _clear(queue)
    while (await queue.store_here.upkeep(NOTHING)).more:
        pass
    file = sqlite_file(queue.settings.store.url, namespace=NAMESPACE)
    if file is not None:
        await queue.close()
        _remove_file(file)


def _remove_file(file: str) -> None:
    for ending in ("", "-wal", "-shm"):
        Path(f"{file}{ending}").unlink(missing_ok=True)
