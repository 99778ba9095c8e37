"""The processes of a worker: started when they are needed, used again, and replaced after some jobs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager

import msgspec

from qo.settings import Settings
from qo.worker.processes.messages import Run
from qo.worker.processes.process import Reply, WorkerProcess
from qo.worker.task import Task


class Pool:
    """At most `size` processes, each of which runs one job at a time and `jobs_per_process` in all."""

    def __init__(self, *, size: int, jobs_per_process: int) -> None:
        self.size = size
        self._jobs_per_process = jobs_per_process
        self._free = asyncio.Semaphore(size)
        self._idle: list[WorkerProcess] = []

    async def run(self, order: Run, reply: Reply) -> msgspec.Raw | None:
        """Run a job in a process. Raises what the handler raised, or `ProcessEnded`. If the caller is cancelled, the
        process and everything that it has started is killed, and gone when this ends."""
        async with self._free:
            process = await self._take()
            try:
                return await process.run(order, reply)
            finally:
                if not process.is_idle:
                    await process.end()
                elif process.jobs < self._jobs_per_process:
                    self._idle.append(process)
                else:
                    await process.retire()

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        await asyncio.gather(*(process.retire() for process in idle))

    async def _take(self) -> WorkerProcess:
        while self._idle:
            process = self._idle.pop()
            if process.is_alive:
                return process
            await process.end()
        return await WorkerProcess.start()


def most_processes(settings: Settings) -> int:
    return settings.worker.processes or os.cpu_count() or 1


def capacity_of(tasks: Collection[Task], concurrency: int, settings: Settings) -> int:
    """How many jobs a worker can run at once. Others plan with this number, so a worker all of whose tasks need a
    process says how many processes it has."""
    if tasks and all(task.process for task in tasks):
        return min(concurrency, most_processes(settings))
    return concurrency


@asynccontextmanager
async def pool_for(tasks: Iterable[Task], settings: Settings) -> AsyncIterator[Pool | None]:
    """The processes of a worker, if one of its tasks needs any."""
    if not any(task.process for task in tasks):
        yield None
        return
    pool = Pool(size=most_processes(settings), jobs_per_process=settings.worker.jobs_per_process)
    try:
        yield pool
    finally:
        await pool.close()
