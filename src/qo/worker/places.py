"""Places: what a worker runs, what it has room for, and what it owes to the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from qo.errors import LeaseLost, StoreUnavailable
from qo.job import State
from qo.loops.gathering import MOST_PER_CALL, Gathering
from qo.loops.portions import Portion, checkpoint_size
from qo.policy.suspects import Allowance
from qo.queue.queue import Queue
from qo.spans import whole_ms
from qo.values import Advance, Finished, Held, Lease, Outcome, Renewal, Suspicion
from qo.worker.execution import Execution
from qo.worker.heartbeat import Heartbeat
from qo.worker.hooks import Surroundings
from qo.worker.log import log_end, log_start
from qo.worker.numbers import LOST
from qo.worker.shared_slots import SharedSlots
from qo.worker.task import Task

log = logging.getLogger("qo.worker")


class Places:
    """The jobs of one run of a worker, each from its lease until the store knows its outcome.

    `stop`, `stop_now`, `rename` and `wake` may be called from any thread, all else belongs to the worker's event loop.
    """

    heartbeat: Heartbeat
    """The thread that renews the leases. It is there before the first job starts."""

    def __init__(self, queue: Queue, tasks: Mapping[str, Task], *, ends: dict[str, int]) -> None:
        """`tasks` may still grow. `ends` counts runs that have ended, by the job's state or `lost`."""
        self._settings = queue.settings
        self._store = queue.store
        self._draw = queue.system.draw
        self.new_id = queue.system.new_id
        self._loop: asyncio.AbstractEventLoop | None = None
        self.tasks = tasks
        self._ends = ends
        self.lease_ms = whole_ms(queue.settings.concurrency.default_lease_duration_secs)
        self.worker = ""
        """The name under which the worker claims, and empty until it runs."""
        self.capacity = 0
        """How many jobs may run at once."""
        self.stopping = False
        """The worker takes no more jobs."""
        self.grace_is_over = False
        """The worker stops, and hands back the jobs that still run."""
        self.changed = asyncio.Event()
        """Set when the worker has a reason to look again: a job ended, a claim is to be repeated, it is to stop."""
        self.shared: SharedSlots | None = None
        """The groups whose slots are kept in a bucket, if any."""
        self.surroundings = Surroundings()
        """What the handlers share."""
        self.running: dict[str, Execution] = {}
        """Executions by token."""
        self.admitting: dict[str, asyncio.Task[None]] = {}
        """By token, claimed jobs that wait for slots kept in a bucket. They take up capacity."""
        self.claiming = 0
        """How many jobs the claims under way may bring."""
        self.claiming_suspects = 0
        """How many of those may be suspects."""
        self.claiming_processes = 0
        """How many of those may need a process."""
        self._in_processes: set[str] = set()
        """The tokens of jobs that run in a process or are about to."""
        self._suspects: dict[str, Suspicion] = {}
        """By token, the suspects among the jobs that run or are about to."""
        self._allowance = Allowance()
        self.unreported: list[Execution] = []
        """Executions that may have begun without the store knowing."""
        self.outcomes: list[Outcome] = []
        """Outcomes that are still to be sent to the store."""
        self._ended: dict[str, Execution] = {}
        """By token, executions that have ended and whose outcome the store does not know yet."""
        self.when_owed: Callable[[], None] = _nothing
        """Called after each new outcome."""
        self._advancing: Gathering[Advance, Held] = Gathering(
            queue.store.advance, portion=Portion(MOST_PER_CALL, size=checkpoint_size)
        )

    # --- the worker begins, changes its name, stops -----------------------------------------------------------

    def open(self, *, worker: str, capacity: int) -> None:
        """Begin a run in this event loop."""
        self._loop = asyncio.get_running_loop()
        self.worker = worker
        self.capacity = capacity

    @property
    def is_open(self) -> bool:
        return self._loop is not None

    def rename(self, worker: str) -> None:
        """The store may have registered the worker under another name than the one it wanted."""
        self.worker = worker
        if self.shared is not None:
            self.shared.worker = worker
        self.wake()  # a wait for work is for one name

    def stop(self) -> None:
        self.stopping = True
        self.wake()

    def stop_now(self) -> None:
        self.grace_is_over = True
        self.stop()

    def wake(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.changed.set)

    # --- capacity ---------------------------------------------------------------------------------------------

    @property
    def taken(self) -> int:
        """How many jobs run or are about to."""
        return len(self.running) + len(self.admitting)

    @property
    def free(self) -> int:
        """How many more jobs may run; none in a worker that stops, and none beside a last suspect."""
        is_alone = Suspicion.LAST in self._suspects.values()
        return 0 if self.stopping or is_alone else self.capacity - self.taken

    @property
    def unclaimed(self) -> int:
        """How many more jobs may be claimed, if the claims under way bring all that they asked for."""
        return max(0, self.free - self.claiming)

    @property
    def unclaimed_suspects(self) -> int:
        """How many more suspects may be claimed, likewise."""
        return max(0, self._allowance.suspects - len(self._suspects) - self.claiming_suspects)

    def claimable(self, jobs: int) -> tuple[list[str], int]:
        """The tasks that a claim of at most so many jobs may ask for, and for how many of them.

        A job that needs a process is claimed only when one is free for it: otherwise it would wait here, while another
        worker might have one. So a claim asks for no more jobs than there are free processes, and while there is none,
        for the other tasks only.
        """
        pool = self.surroundings.pool
        if pool is None:
            return list(self.tasks), jobs
        free = pool.size - len(self._in_processes) - self.claiming_processes
        if free > 0:
            return list(self.tasks), min(jobs, free)
        others = [name for name, task in self.tasks.items() if not task.process]
        return others, jobs if others else 0

    def needs_processes(self, tasks: Iterable[str]) -> bool:
        return self.surroundings.pool is not None and any(self.tasks[name].process for name in tasks)

    # --- a job starts -----------------------------------------------------------------------------------------

    def take(self, leases: Iterable[Lease]) -> None:
        """Start claimed jobs, or first take the slots that some need from a bucket."""
        for lease in leases:
            if lease.suspicion:
                self._suspects[lease.token] = lease.suspicion
            if self.tasks[lease.task].process:
                self._in_processes.add(lease.token)
            if self.shared is not None and self.shared.wanted(lease.job):
                self.admitting[lease.token] = asyncio.create_task(self._admit(lease, self.shared))
            else:
                self._start(lease)

    async def _admit(self, lease: Lease, shared: SharedSlots) -> None:
        """Take the slots that are kept in a bucket, then start the job. Where one is full, hand the job back and close
        that group for a moment."""
        full, starts = None, False
        try:
            full = await shared.take(lease.token, lease.job)
            starts = full is None and not self.stopping and await self._is_still_leased(lease)
        finally:
            # Only now, and without a pause before the start: until then it takes up capacity.
            del self.admitting[lease.token]
            self.changed.set()
        if starts:
            self._start(lease)
            return
        self._suspects.pop(lease.token, None)
        self._in_processes.discard(lease.token)
        await shared.give_back(lease.token)
        self.hand_back(lease, closed={} if full is None else {full: whole_ms(shared.pause_seconds(full))})

    async def _is_still_leased(self, lease: Lease) -> bool:
        """Nothing has renewed the lease while the slots were being taken, which may have been long."""
        renewal = Renewal(holder=lease.job_id, token=lease.token, lease_ms=self.lease_ms)
        try:
            (held,) = (await self._store.renew([renewal])).held
        except StoreUnavailable:
            return False  # the round trip that hands the job back logs it
        return not held.lost

    def _start(self, lease: Lease) -> None:
        if log.isEnabledFor(logging.INFO):
            log_start(lease)
        execution = Execution(
            lease,
            self.tasks[lease.task],
            self._settings,
            draw=self._draw,
            advance=self._report,
            renew=self._store.renew,
            ended=self._end,
            surroundings=self.surroundings,
        )
        self.running[lease.token] = execution
        self.unreported.append(execution)
        self.heartbeat.hold(execution)

    async def _report(self, advance: Advance) -> Held:
        try:
            return await self._advancing.send(advance)
        except BaseException:
            self.changed.set()  # the store may not know that the job runs: the next round trip reports it
            raise

    # --- a job ends -------------------------------------------------------------------------------------------

    def _end(self, execution: Execution, outcome: Outcome | None) -> None:
        token = execution.lease.token
        del self.running[token]
        self._in_processes.discard(token)
        if self._suspects.pop(token, None) is not None and outcome is not None:
            self._allowance.note_end()
        if self.shared is not None:
            self.shared.give_back_soon(token)
        if outcome is None:
            self.heartbeat.let_go(token)
            log.warning("%s", LeaseLost(execution.lease.job_id, token))
            self._ends[LOST] += 1
            self.changed.set()
        else:
            self._ended[token] = execution
            self._owe(outcome)

    def hand_back(self, lease: Lease, *, closed: dict[str, int] | None = None) -> None:
        """Return a job that never started to its place in line; `closed` are groups to close, with milliseconds."""
        self._owe(Outcome(job_id=lease.job_id, token=lease.token, state=State.QUEUED, closed=closed or {}))

    def _owe(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.when_owed()
        self.changed.set()

    def looks(self, outcome: Outcome) -> int:
        """How many jobs this outcome counts for: ending a job of many groups is more work for the store."""
        execution = self._ended.get(outcome.token)
        return 1 if execution is None else execution.lease.looks

    def settle(self, outcome: Outcome, finished: Finished) -> None:
        """The store has answered the outcome. A job that never started has no end to log."""
        self.heartbeat.let_go(outcome.token)
        execution = self._ended.pop(outcome.token, None)
        if execution is not None:
            self._ends[LOST if finished.lost else str(finished.state)] += 1
            log_end(execution.task.name, outcome, finished)


def _nothing() -> None:
    pass
