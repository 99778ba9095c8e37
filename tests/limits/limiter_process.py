"""Processes with callers of a limiter, for tests to start, stop and kill; and the witness that counts holders.

limiter_process.py '{"url": ...}'    forks, stops, wakes and kills such processes, one order a line

The first part of a process's name says what it does: "hammer-1", "crowd-1", "sleeper-1".
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress

import msgspec

import qo
from qo.limits.block import Lease
from qo.limits.on_store.slots import SlotsOnStore
from tests.nursery import Nursery, nursery, run_nursery, tell
from tests.processes import command_of
from tests.worker.witness import ACCEPTED, ENTER, LEAVE, Report, Witness
from tests.worker.worker_process import IMPORTED_BEFORE_FORKING, Options

PROVIDERS = {"ollama": 3, "gemini": 4}
TOTAL = 5
LIMITS = {**{f"provider:{name}": slots for name, slots in PROVIDERS.items()}, "providers": TOTAL}
TASKS, THREADS = 15, 10
"""Callers in each hammering process."""
CROWD = 50
SHORT_SECONDS, LONG_SECONDS = 0.004, 0.5
"""The longest duration of a block. Every tenth block is long, so that a test finds a caller inside."""
IMPORTED = (*IMPORTED_BEFORE_FORKING, qo.Limiter, SlotsOnStore)


# --- in the processes -----------------------------------------------------------------------------------------


class Reporter:
    """A process's one connection to the witness, for its tasks and threads. It blocks, but only for microseconds."""

    def __init__(self, port: int, process: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._answers = self._socket.makefile("rb")
        self._process = process
        self._turn = threading.Lock()

    def tell(self, what: str, lease: Lease) -> None:
        """Returns when the witness has the report."""
        report = Report(
            what=what,
            process=self._process,
            job=lease.token,
            attempt=1,
            token=int(lease.token),
            slots=dict(lease.slots),
            lost=lease.lost,
        )
        with self._turn:
            self._socket.sendall(msgspec.json.encode(report) + b"\n")
            assert self._answers.readline() == ACCEPTED


class Hammer:
    """Callers that enter and leave without end, some in tasks, some in threads."""

    def __init__(self, limiter: qo.Limiter, reporter: Reporter) -> None:
        self._limiter, self._reporter = limiter, reporter
        self._rng = random.Random()

    async def run(self) -> None:
        for _ in range(THREADS):
            threading.Thread(target=self._or_end_the_process, args=[self._in_thread], daemon=True).start()
        async with asyncio.TaskGroup() as callers:
            for _ in range(TASKS):
                callers.create_task(self._in_task())

    async def _in_task(self) -> None:
        while True:
            with suppress(qo.LeaseLost):
                async with self._limiter.acquire(self._provider()) as lease:
                    self._reporter.tell(ENTER, lease)
                    try:
                        await asyncio.sleep(self._seconds())
                    finally:
                        self._reporter.tell(LEAVE, lease)

    def _in_thread(self) -> None:
        while True:
            with suppress(qo.Timeout), self._limiter.acquire(self._provider(), timeout=5) as lease:
                self._reporter.tell(ENTER, lease)
                time.sleep(self._seconds())
                self._reporter.tell(LEAVE, lease)

    def _or_end_the_process(self, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def _provider(self) -> str:
        return self._rng.choice(tuple(PROVIDERS))

    def _seconds(self) -> float:
        return self._rng.uniform(0, SHORT_SECONDS) if self._rng.random() < 0.9 else LONG_SECONDS


async def hold(limiter: qo.Limiter, reporter: Reporter) -> None:
    async with limiter.acquire("ollama") as lease:
        reporter.tell(ENTER, lease)
        await asyncio.Event().wait()


async def crowd(limiter: qo.Limiter, reporter: Reporter) -> None:
    """A caller that enters, if there is room, and never leaves, and others in line behind it."""
    await asyncio.gather(*(hold(limiter, reporter) for _ in range(CROWD + 1)))


async def sleeper(limiter: qo.Limiter, reporter: Reporter) -> None:
    """A task and a thread that stay inside until they have lost their leases, and print how they notice."""

    async def in_task() -> None:
        try:
            await hold(limiter, reporter)
        except qo.LeaseLost as lost:
            tell(f"in task: LeaseLost {lost.token}")

    def in_thread() -> None:
        with limiter.acquire("gemini") as lease:
            reporter.tell(ENTER, lease)
            while not lease.lost:
                time.sleep(0.005)
        tell(f"in thread: lost {lease.token}")

    await asyncio.gather(in_task(), asyncio.to_thread(in_thread))
    tell("all have left")
    await asyncio.Event().wait()


async def live(name: str, options: Options) -> None:
    assert options.witness_port is not None
    async with await qo.connect(options.url, settings=options.settings) as queue:
        reporter = Reporter(options.witness_port, name)
        kind = name.partition("-")[0]
        if kind == "hammer":
            await Hammer(qo.Limiter(PROVIDERS, TOTAL, queue=queue), reporter).run()
        else:
            limiter = qo.Limiter({"ollama": 1, "gemini": 1}, queue=queue)
            await (crowd if kind == "crowd" else sleeper)(limiter, reporter)


# --- in the tests ---------------------------------------------------------------------------------------------


class LimiterWitness(Witness):
    """Counts the holders each time that a caller enters, and remembers which slot each had."""

    def __init__(self) -> None:
        super().__init__()
        self.most: Counter[str] = Counter()
        self.mistakes: list[str] = []
        self.entered_at: dict[int, float] = {}
        """The time of each entry, by token."""
        self.taken_at: dict[tuple[str, int], float] = {}
        """The time at which each slot was last taken, by group and number."""
        self.left: set[int] = set()
        """The tokens of callers that have left."""
        self.seen_inside: list[Report] = []

    def hear(self, report: Report, connection: asyncio.BaseTransport) -> bool:
        accepted = super().hear(report, connection)
        if report.what == ENTER:
            self.entered_at[report.token] = time.monotonic()
            self.taken_at |= dict.fromkeys(report.slots.items(), self.entered_at[report.token])
            self.seen_inside.append(report)
            self._count()
        elif report.what == LEAVE:
            self.left.add(report.token)
        return accepted

    def _count(self) -> None:
        for group, limit in LIMITS.items():
            numbers = [report.slots[group] for report in self.inside() if group in report.slots]
            self.most[group] = max(self.most[group], len(numbers))
            if len(numbers) > limit or len(set(numbers)) < len(numbers) or max(numbers, default=0) >= limit:
                self.mistakes.append(f"{group} was held by the slots {numbers}")


def limiter_nursery(options: Options) -> AbstractAsyncContextManager[Nursery]:
    return nursery(command_of("tests.limits.limiter_process", msgspec.json.encode(options).decode()))


if __name__ == "__main__":
    given = msgspec.json.decode(sys.argv[1], type=Options)
    run_nursery(lambda name: live(name, given))
