"""What a process that will be killed does to a store: every writing operation, in random order.

Each line of the diary is one thing of one process: `begin` what it is about to do, `answered` with what must be true
from then on, `refused` with the error. A process does one thing at a time, so a `begin` that is its last line is an
operation in the middle of which it was killed.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from qo.errors import InvalidTransition, MoveRefused, SlotNotFound
from qo.job import Job, JobError, Progress, State
from qo.store.sqlite import SQLiteStore
from qo.values import (
    Accepted,
    Advance,
    Average,
    Finished,
    Keep,
    Limit,
    Outcome,
    Record,
    Registration,
    Reminder,
    Renewal,
    Source,
    Standing,
    Submission,
    TaskOptions,
    Ticket,
    Unlimited,
    UpkeepRules,
)

LEASE_MS = 250
TASKS = ("build", "mail")
GROUPS = ("gpu", "api")
LIMITED = (*GROUPS, "global", "priority:50")
PAUSED = ("gpu", "mail")
WAITING = (State.QUEUED, State.SCHEDULED, State.WAITING, State.CONFIRMING)
PRIORITIES = (20, 50, 90)
CALLERS_AT_MOST = 3
IN_LINE_AT_MOST = 60  # a change of standing goes through all jobs of a user, and most submits here bring one
REMINDER_AGES_MS = (20, 60)
UNCONFIRMED_AFTER_MS = 150

COUNTER = "counter"
OBSERVED = Average(name="observed", first=1.0, weight=0.5)
RUN_SECONDS = Average(name="run_seconds", first=1.0, weight=0.5)
BROKEN = JobError(message="It broke.")
ALL_ERRORS_KEPT, FEW_ERRORS_KEPT = TASKS
ERRORS_KEPT = {ALL_ERRORS_KEPT: 1_000_000, FEW_ERRORS_KEPT: 10}

OVERTAKEN = (InvalidTransition, MoveRefused, SlotNotFound)
"""Another process has ended, moved or taken it meanwhile. Any other error is not a race and ends the program."""

Action = Callable[[], Awaitable[None]]


class Victim:
    def __init__(self, store: SQLiteStore, name: str, *, diary: int, signals: int) -> None:
        self.store = store
        self.name = name
        self.rng = random.Random(name)
        self.count = 0
        self.leases: list[tuple[str, str]] = []
        self.callers: list[tuple[str, str | None]] = []
        self._diary = diary
        self._signals = signals

    async def live(self) -> None:
        actions = self.actions()
        while True:
            try:
                await self.rng.choice(actions)()
            except OVERTAKEN:
                continue

    def actions(self) -> list[Action]:
        flow: list[Action] = [self.submit, self.submit, self.claim, partial(self.finish, State.SUCCEEDED)]
        endings = [State.FAILED, State.SCHEDULED, State.CONFIRMING, State.CANCELLED, State.QUEUED]
        running: list[Action] = [self.renew, self.advance, *(partial(self.finish, state) for state in endings)]
        people = [self.prioritise_job, self.prioritise_parent, self.move, self.cancel_job, self.cancel_parent]
        people += [self.retry, self.confirm, self.set_tier]
        limits = [self.set_limits, self.remove_limit, self.set_paused, self.revoke, self.acquire, self.release]
        upkeep = [self.register, self.catch_up, self.age, self.fail_unconfirmed, self.take_reminders, self.forget]
        figures = [self.note_promises, self.observe, self.record_estimate_errors, self.put_record]
        # Jobs have to come, run and end more often than anything else, or the rest finds nothing to change.
        return [*flow * 2, *running, *people, *limits, *upkeep, *figures]

    # --- writing down -----------------------------------------------------------------------------------------

    async def write(
        self,
        operation: str,
        *arguments: Any,
        variant: str | None = None,
        facts: Callable[[Any], Iterable[object]] = lambda answer: (),
        **named: Any,
    ) -> Any:
        """Carry out a writing operation; `facts` are what its answer acknowledges."""
        kind = operation if variant is None else f"{operation}:{variant}"
        self._note("begin", kind)
        self._signal(kind)
        begun_at = time.perf_counter()
        try:
            answer = await getattr(self.store, operation)(*arguments, **named)
            # In one line with the answer, because a kill between two lines would make an answer without its facts.
            self._note("answered", kind, *facts(answer))
        except OVERTAKEN as error:
            self._note("refused", kind, type(error).__name__)
            raise
        finally:
            self._signal(f"{kind}={time.perf_counter() - begun_at}")
        return answer

    def _signal(self, word: str) -> None:
        """Write a word for the killing program: the operation that begins, or the one that ended with its seconds."""
        os.write(self._signals, f"{word}\n".encode())

    def _note(self, *words: object) -> None:
        os.write(self._diary, f"{' '.join(map(str, (self.name, *words)))}\n".encode())

    def new_name(self) -> str:
        self.count += 1
        return f"{self.name}-{self.count}"

    async def pick(self, *states: State, has_parent: bool = False) -> Job | None:
        for state in self.rng.sample(states, len(states)):
            jobs = (await self.store.jobs(status=state, limit=20)).jobs
            if fitting := [job for job in jobs if job.parent or not has_parent]:
                return self.rng.choice(fitting)
        return None

    # --- a job's way through ----------------------------------------------------------------------------------

    async def submit(self) -> None:
        """A few jobs in one call; their ids tell how many, so that a part of them would be noticed."""
        if (await self.store.line(limit=0)).queued >= IN_LINE_AT_MOST:
            return
        batch, size = self.new_name(), self.rng.randint(1, 4)
        parent = self.rng.choice((None, batch))
        has_phases = parent is not None and self.rng.random() < 0.5
        submissions = [
            self.submission(f"{batch}/{size}/{number}", parent=parent, phase=number if has_phases else None)
            for number in range(1, size + 1)
        ]
        await self.write("submit", submissions, facts=accepted_ids)

    def submission(self, job_id: str, *, parent: str | None, phase: int | None) -> Submission:
        return Submission(
            id=job_id,
            task=self.rng.choice(TASKS),
            groups=tuple(self.rng.sample(GROUPS, self.rng.randint(0, 2))),
            user=self.rng.choice(("u1", "u2")),
            standing=Standing(tier="partner", user_limit=3, daily_quota=100_000, boost=self.rng.choice((0, 5))),
            parent=parent,
            phase=phase,
            run_at_ms=self.rng.choice((None, None, now_ms() + 30)),
            max_attempts=self.rng.choice((1, 50)),
        )

    async def claim(self) -> None:
        claimed = await self.write(
            "claim",
            worker=self.name,
            tasks=TASKS,
            capacity=3,
            lease_ms=LEASE_MS,
            claim_id=self.new_name(),
            facts=lambda claimed: [lease.token for lease in claimed.leases],
        )
        self.leases += [(lease.job.id, lease.token) for lease in claimed.leases]

    async def has_lease(self) -> bool:
        if not self.leases:
            await self.claim()
        return bool(self.leases)

    async def finish(self, state: State) -> None:
        if not await self.has_lease():
            return
        job_id, token = self.leases.pop()
        outcome = Outcome(job_id=job_id, token=token, state=state, **self.outcome_fields(state))
        await self.write("finish", [outcome], variant=state, facts=new_states)

    def outcome_fields(self, state: State) -> dict[str, Any]:
        soon = self.rng.randint(0, 50)
        match state:
            case State.SUCCEEDED:
                return {"result": b"1", "averages": (RUN_SECONDS,)}
            case State.FAILED:
                return {"error": BROKEN}
            case State.SCHEDULED:
                return {"error": BROKEN, "retry_after_ms": soon}
            case State.QUEUED:
                return {"closed": {self.rng.choice(GROUPS): soon}}
            case _:
                return {"message": "A person decides."}

    async def renew(self) -> None:
        if await self.has_lease():
            job_id, token = self.leases[-1]
            renewal = Renewal(holder=job_id, token=token, lease_ms=LEASE_MS)
            await self.write("renew", [renewal], worker=self.name, tickets=[holder for holder, _ in self.callers])

    async def advance(self) -> None:
        if await self.has_lease():
            job_id, token = self.leases[-1]
            report = Advance(job_id=job_id, token=token, stage="code", progress=Progress(done=1), checkpoint=b"half")
            await self.write("advance", [report])

    # --- changes by people ------------------------------------------------------------------------------------

    async def prioritise_job(self) -> None:
        if job := await self.pick(*WAITING):
            await self.write("set_priority", self.rng.choice(PRIORITIES), job_id=job.id, variant="job")

    async def prioritise_parent(self) -> None:
        if job := await self.pick(State.QUEUED, State.WAITING, has_parent=True):
            await self.write(
                "set_priority", self.rng.choice(PRIORITIES), parent=job.parent, by=self.new_name(), variant="parent"
            )

    async def move(self) -> None:
        jobs = (await self.store.jobs(status=State.QUEUED, limit=5)).jobs
        if len(jobs) >= 2:
            first, second = self.rng.sample(jobs, 2)
            is_before = self.rng.choice((True, False))
            before, after = (second.id, None) if is_before else (None, second.id)
            await self.write("move", first.id, before=before, after=after)

    async def cancel_job(self) -> None:
        if job := await self.pick(*WAITING, State.RUNNING):
            await self.write("cancel", job_id=job.id, variant="job", facts=cancelled_ids)

    async def cancel_parent(self) -> None:
        if job := await self.pick(State.QUEUED, State.WAITING, has_parent=True):
            await self.write("cancel", parent=job.parent, by=self.new_name(), variant="parent", facts=cancelled_ids)

    async def retry(self) -> None:
        if job := await self.pick(State.FAILED):
            await self.write("retry", job.id)

    async def confirm(self) -> None:
        if job := await self.pick(State.CONFIRMING):
            await self.write("confirm", job.id)

    async def set_tier(self) -> None:
        standing = Standing(tier="cto_scale", user_limit=self.rng.randint(1, 5), daily_quota=100_000)
        await self.write("set_tier", "u1", standing)

    # --- limits and callers -----------------------------------------------------------------------------------

    async def set_limits(self) -> None:
        limit = Limit(group=self.rng.choice(LIMITED), slots=self.rng.randint(1, 6), source=Source.OPERATOR)
        await self.write("set_limits", [limit], variant="set")

    async def remove_limit(self) -> None:
        await self.write("set_limits", [Unlimited(group=self.rng.choice(LIMITED))], variant="remove")

    async def set_paused(self) -> None:
        await self.write("set_paused", self.rng.choice(PAUSED), self.rng.random() < 0.2)

    async def revoke(self) -> None:
        group = (await self.store.groups([self.rng.choice(GROUPS)]))[0]
        if group.slots:
            await self.write("revoke", group.group, self.rng.choice(group.slots).slot_id, force=True)

    async def acquire(self) -> None:
        if len(self.callers) < CALLERS_AT_MOST:
            wait_ms = self.rng.choice((0, 200))
            ticket = Ticket(holder=self.new_name(), groups=GROUPS, lease_ms=LEASE_MS, wait_ms=wait_ms)
            (grant,) = await self.write("acquire", [ticket])
            self.callers.append((grant.holder, grant.token))

    async def release(self) -> None:
        if not self.callers:
            await self.acquire()
        await self.write("release", [self.callers.pop()])

    # --- workers and upkeep -----------------------------------------------------------------------------------

    async def register(self) -> None:
        task = TaskOptions(name="mail", limit=self.rng.choice((None, 2, 4)))
        await self.write("register", Registration(name=self.name, tasks=(task,), capacity=3))

    async def catch_up(self) -> None:
        await self.write("catch_up", facts=lambda done: done.ids)

    async def age(self) -> None:
        await self.write("upkeep", UpkeepRules(aging_period_ms=50), variant="age", facts=lambda done: done.aged)

    async def fail_unconfirmed(self) -> None:
        rules = UpkeepRules(unconfirmed_after_ms=UNCONFIRMED_AFTER_MS, unconfirmed_error=BROKEN)
        await self.write("upkeep", rules, variant="fail", facts=lambda done: done.failed)

    async def take_reminders(self) -> None:
        rules = UpkeepRules(reminder_ages_ms=REMINDER_AGES_MS)
        await self.write("upkeep", rules, variant="remind", facts=lambda done: map(reminder_name, done.reminders))

    async def forget(self) -> None:
        keep = Keep(ms=3_600_000, jobs=1_000_000, events=100, audit=1_000_000)
        await self.write("upkeep", UpkeepRules(keep=keep), variant="forget")

    # --- figures and service data -----------------------------------------------------------------------------

    async def note_promises(self) -> None:
        if job := await self.pick(State.QUEUED):
            await self.write("note_promises", {job.id: (0, 1000)})

    async def observe(self) -> None:
        await self.write("observe", [(OBSERVED, self.rng.random())], variant="averages")

    async def record_estimate_errors(self) -> None:
        """Record two unique numbers, so that a lost or a doubled one would be noticed."""
        task = self.rng.choice(TASKS)
        self.count += 1
        number = float(self.name.removeprefix("p")) * 1_000_000 + self.count
        ratios = (number, number + 0.5)
        lasting = ratios if task == ALL_ERRORS_KEPT else ()
        await self.write(
            "observe", errors={task: ratios}, keep_errors=ERRORS_KEPT[task], variant="errors", facts=lambda _: lasting
        )

    async def put_record(self) -> None:
        version = (await self.store.records(COUNTER)).get(COUNTER, Record()).version
        await self.write("put_record", COUNTER, version + 1, version=version, facts=lambda written: [written])


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def accepted_ids(answers: Iterable[object]) -> list[str]:
    return [answer.job.id for answer in answers if isinstance(answer, Accepted)]


def cancelled_ids(jobs: Iterable[Job]) -> list[str]:
    """The jobs that are cancelled; a running job has only been asked to stop."""
    return [job.id for job in jobs if job.state is State.CANCELLED]


def new_states(answers: Iterable[Finished]) -> list[str]:
    return [word for answer in answers if answer.state is not None for word in (answer.job_id, answer.state)]


def reminder_name(reminder: Reminder) -> str:
    """A job that asks again is reminded again, so a reminder is named by the time of the question too."""
    return f"{reminder.job_id}#{reminder.number}@{reminder.confirmation_required_at.isoformat()}"
