"""Short words for what the behaviour suite does to a store. Time is given, never waited for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, TypedDict

import msgspec

from qo.job import Job, JobError, State
from qo.store.contract import Store
from qo.store.paging import read_jobs
from qo.values import (
    Accepted,
    Advance,
    Finished,
    Grant,
    GroupStatus,
    Lease,
    Limit,
    LimitIgnored,
    Outcome,
    Portion,
    Refusal,
    Registered,
    Registration,
    Renewal,
    Source,
    Standing,
    Submission,
    TaskOptions,
    Ticket,
    UpkeepDone,
    UpkeepRules,
)

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
LEASE = 300 * SECOND

TODAY = 20_000  # the day, counted from 1970
MIDNIGHT = TODAY * DAY
NOW = MIDNIGHT + 10 * HOUR

BROKEN = JobError(message="It broke.")

fresh_numbers = count(1)
_STEPS_AT_MOST = 20_000


def fresh_id(prefix: str) -> str:
    return f"{prefix}-{next(fresh_numbers)}"


def at(store: Store, now: int | None) -> Store:
    """Set the store's clock, and leave it so. None: the store's own."""
    store.clock = None if now is None else lambda: now
    return store


# --- submitting -------------------------------------------------------------------------------------------------


def submission(job_id: str, *, task: str = "work", **fields: Any) -> Submission:
    return Submission(id=job_id, task=task, **fields)


async def try_submit(store: Store, job_id: str, *, now: int | None = NOW, **fields: Any) -> Accepted | Refusal:
    (answer,) = await at(store, now).submit([submission(job_id, **fields)])
    return answer


def accepted(answer: Accepted | Refusal) -> Accepted:
    assert isinstance(answer, Accepted), answer
    return answer


async def submit(store: Store, job_id: str, *, now: int | None = NOW, **fields: Any) -> Job:
    return accepted(await try_submit(store, job_id, now=now, **fields)).job


async def submit_all(store: Store, job_ids: Iterable[str], *, now: int | None = NOW, **fields: Any) -> list[Job]:
    """Many jobs alike."""
    return await submit_list(store, [submission(job_id, **fields) for job_id in job_ids], now=now)


async def submit_list(store: Store, submissions: Sequence[Submission], *, now: int | None = NOW) -> list[Job]:
    """Many jobs in as few steps as is polite."""
    jobs = []
    for start in range(0, len(submissions), 500):
        for answer in await at(store, now).submit(submissions[start : start + 500]):
            jobs.append(accepted(answer).job)
    return jobs


def without_history(job: Job) -> Job:
    """The job as operations answer it that do not read its history."""
    return msgspec.structs.replace(job, history=None)


def numbered(prefix: str, amount: int) -> list[str]:
    return [f"{prefix}{number:05d}" for number in range(1, amount + 1)]


# --- running ----------------------------------------------------------------------------------------------------


class ClaimArguments(TypedDict):
    """The arguments of a store's `claim`, for tests that repeat one."""

    worker: str
    tasks: Sequence[str]
    capacity: int
    lease_ms: int
    claim_id: str


async def claim(
    store: Store, *, capacity: int = 1, tasks: Sequence[str] = ("work",), worker: str = "w1", lease_ms: int = LEASE,
    now: int | None = NOW, suspects: int | None = None,
) -> list[Lease]:  # fmt: skip
    """All that a worker gets for its free capacity, asking again as long as a bound was what ended the search."""
    leases: list[Lease] = []
    for _ in range(_STEPS_AT_MOST):
        claimed = await at(store, now).claim(
            worker=worker,
            tasks=tasks,
            capacity=capacity - len(leases),
            lease_ms=lease_ms,
            claim_id=fresh_id("claim"),
            suspects=None if suspects is None else suspects - sum(lease.suspicion > 0 for lease in leases),
        )
        leases += claimed.leases
        if not claimed.more or len(leases) == capacity:
            return leases
    raise AssertionError("a claim said `more` without end")


async def start(store: Store, job_id: str, *, now: int | None = NOW, worker: str = "w1", **fields: Any) -> Lease:
    """Submit a job of a task of its own name and claim it, so that no other job gets in between."""
    fields.setdefault("task", f"task-of-{job_id}")
    await submit(store, job_id, now=now, **fields)
    (lease,) = await claim(store, tasks=[fields["task"]], worker=worker, now=now)
    assert lease.job.id == job_id
    return lease


async def run(store: Store, lease: Lease, *, now: int | None = NOW, **fields: Any) -> bool:
    """The handler reports something, which makes a starting job running. False: the lease was lost."""
    (held,) = await at(store, now).advance([Advance(job_id=lease.job.id, token=lease.token, **fields)])
    return not held.lost


async def finish(store: Store, lease: Lease, state: State, *, now: int | None = NOW, **fields: Any) -> Finished:
    (finished,) = await at(store, now).finish([outcome(lease, state, **fields)])
    return finished


def outcome(lease: Lease, state: State, **fields: Any) -> Outcome:
    return Outcome(job_id=lease.job.id, token=lease.token, state=state, **fields)


async def succeed(store: Store, *leases: Lease, now: int | None = NOW) -> list[Finished]:
    return await at(store, now).finish([outcome(lease, State.SUCCEEDED, result=b"1") for lease in leases])


async def fail(store: Store, lease: Lease, *, now: int | None = NOW, error: JobError = BROKEN) -> Finished:
    return await finish(store, lease, State.FAILED, error=error, now=now)


async def retry_later(store: Store, lease: Lease, *, at: int, now: int | None = NOW) -> Finished:
    return await finish(store, lease, State.SCHEDULED, retry_after_ms=at - (now or NOW), error=BROKEN, now=now)


async def hand_back(
    store: Store, lease: Lease, *, now: int | None = NOW, closed: dict[str, int] | None = None
) -> Finished:
    return await finish(store, lease, State.QUEUED, closed=closed or {}, now=now)


async def ask_to_confirm(store: Store, lease: Lease, *, now: int | None = NOW, message: str = "Go on?") -> Finished:
    return await finish(store, lease, State.CONFIRMING, message=message, now=now)


async def renew(store: Store, *leases: Lease, now: int | None = NOW, lease_ms: int = LEASE) -> list[bool]:
    """Which of them are still held."""
    renewals = [Renewal(holder=lease.job.id, token=lease.token, lease_ms=lease_ms) for lease in leases]
    return [not held.lost for held in (await at(store, now).renew(renewals)).held]


# --- time -------------------------------------------------------------------------------------------------------


async def catch_up(store: Store, *, now: int | None = NOW) -> list[str]:
    """Deal with all that has come due by now."""
    return await whole(lambda: at(store, now).catch_up())


async def pass_time(store: Store, *, since: int, until: int) -> list[str]:
    """Upkeep goes on every hundred seconds, so that no gap delays the end of a lease."""
    ids: list[str] = []
    for at in [*range(since, until, 100 * SECOND), until]:
        ids += await catch_up(store, now=at)
    return ids


async def whole(step: Any) -> list[str]:
    """Repeat a bounded step until there is no more of it; what it dealt with, in order."""
    ids: list[str] = []
    for _ in range(_STEPS_AT_MOST):
        portion: Portion = await step()
        ids += portion.ids
        if not portion.more:
            return ids
    raise AssertionError("a bounded step said `more` without end")


async def upkeep(store: Store, *, now: int | None, **rules: Any) -> UpkeepDone:
    """One step of upkeep."""
    return await at(store, now).upkeep(UpkeepRules(**rules))


async def whole_upkeep(store: Store, *, now: int | None, **rules: Any) -> UpkeepDone:
    """Upkeep until there is no more of it, and what it did in all."""
    steps: list[UpkeepDone] = []
    while not steps or steps[-1].more:
        assert len(steps) < _STEPS_AT_MOST, "upkeep said `more` without end"
        steps.append(await upkeep(store, now=now, **rules))
    return UpkeepDone(
        aged=tuple(job_id for one in steps for job_id in one.aged),
        failed=tuple(job_id for one in steps for job_id in one.failed),
        reminders=tuple(reminder for one in steps for reminder in one.reminders),
        forgotten=tuple(job_id for one in steps for job_id in one.forgotten),
    )


async def age(store: Store, *, now: int, period_ms: int = HOUR) -> list[str]:
    return list((await whole_upkeep(store, now=now, aging_period_ms=period_ms)).aged)


# --- limits, callers, workers -----------------------------------------------------------------------------------


async def limit(
    store: Store,
    group: str,
    slots: int,
    *,
    source: Source = Source.OPERATOR,
    now: int | None = NOW,
    by: str | None = None,
) -> tuple[LimitIgnored, ...]:
    return await at(store, now).set_limits([Limit(group=group, slots=slots, source=source)], by=by)


def ticket(holder: str, *groups: str, lease_ms: int = LEASE, **fields: Any) -> Ticket:
    return Ticket(holder=holder, groups=groups, lease_ms=lease_ms, **fields)


async def acquire(store: Store, holder: str, *groups: str, now: int | None = NOW, **fields: Any) -> Grant:
    (grant,) = await at(store, now).acquire([ticket(holder, *groups, **fields)])
    return grant


async def register(
    store: Store, name: str = "w1", *tasks: str | TaskOptions, capacity: int = 1, now: int | None = NOW, **fields: Any
) -> Registered:
    options = tuple(TaskOptions(name=task) if isinstance(task, str) else task for task in tasks)
    return await at(store, now).register(Registration(name=name, tasks=options, capacity=capacity, **fields))


def standing(tier: str = "partner", **fields: Any) -> Standing:
    return Standing(tier=tier, **fields)


# --- looking ----------------------------------------------------------------------------------------------------


def ids(leases: Iterable[Lease]) -> list[str]:
    return [lease.job.id for lease in leases]


async def state(store: Store, job_id: str) -> State:
    return (await store.job(job_id)).state


async def line(store: Store) -> list[str]:
    """The jobs in line, first to last."""
    return [job.id for job in await read_jobs(store, status="queued", limit=20_000)]


async def group_status(store: Store, name: str) -> GroupStatus:
    (status,) = await store.groups([name])
    return status


async def holders(store: Store, name: str) -> dict[int, str]:
    return {slot.slot_id: slot.holder for slot in (await group_status(store, name)).slots}


async def held(store: Store, *groups: str) -> dict[str, list[str]]:
    """Who holds each of these groups, by slot."""
    return {group: list((await holders(store, group)).values()) for group in groups}


async def active(store: Store, name: str) -> int:
    return (await group_status(store, name)).active


async def events_of(store: Store, subject: str) -> list[tuple[str, dict[str, Any]]]:
    feed = await store.events(0, limit=100_000)
    return [(event.kind, event.detail) for event in feed.events if event.subject == subject]


async def kinds_of(store: Store, subject: str) -> list[str]:
    return [kind for kind, _ in await events_of(store, subject)]


async def series(store: Store, prefix: str = "") -> dict[str, tuple[int, int]]:
    """Figures by name, summed over all minutes."""
    totals: dict[str, tuple[int, int]] = {}
    for point in await store.series(prefix=prefix):
        amount, total = totals.get(point.name, (0, 0))
        totals[point.name] = (amount + point.count, total + point.total_ms)
    return totals
