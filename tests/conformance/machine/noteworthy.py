"""What a step of the state machine was about, for Hypothesis's statistics and the nightly's count of rare states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from qo.event import AGED, CANCEL_WANTED, GRANTED, LEASE_LOST, MOVED, RESCHEDULED
from qo.job import State
from qo.values import (
    Accepted,
    Claimed,
    Finished,
    Held,
    Portion,
    Refusal,
    RefusalReason,
    Reminder,
    Renewed,
    Suspicion,
    UpkeepDone,
)
from tests.conformance.model.state import Lane, ModelState, certain

EVENTS = {
    AGED: "a job aged",
    CANCEL_WANTED: "a running job was to be cancelled",
    GRANTED: "a slot was handed over to a waiting caller",
    LEASE_LOST: "a lease ended",
    RESCHEDULED: "a deferred job moved to another day",
}


def noteworthy(before: ModelState, model: Any, answer: Any, now: int) -> Iterable[str]:
    """What happened in a step that a history should have had to be worth anything."""
    after: ModelState = model.state
    new = after.events[-(after.last_event - before.last_event) :] if after.last_event > before.last_event else []
    kinds = {one.kind for one in new}
    yield from (EVENTS[kind] for kind in sorted(kinds & EVENTS.keys()))
    yield from of_the_answer(answer)
    yield from of_jobs(before, after, moved=MOVED in kinds)
    yield from of_lanes(before, model)
    yield from of_callers_and_groups(before, model, kinds, now)
    yield from of_the_clock(before, after)


def of_the_clock(before: ModelState, after: ModelState) -> Iterable[str]:
    if before.noted_at is None or after.noted_at is None:
        return
    if after.noted_at < before.noted_at:
        yield "the clock went back"
    if after.fallen_ms < before.fallen_ms:
        yield "the clock fell back by more than a lease"
    if after.noted_at - before.noted_at > before.lease_ms / 2:
        yield "a gap counted" if after.uncounted_ms == before.uncounted_ms else "a gap counted for nothing"


def of_the_answer(answer: Any) -> Iterable[str]:
    answers = answer.held if isinstance(answer, Renewed) else answer
    if isinstance(answer, UpkeepDone):
        answers = [*answer.reminders, answer]
    for one in answers if isinstance(answers, list | tuple) else [answers]:
        match one:
            case Refusal(reason=RefusalReason.FULL):
                yield "a submission was refused at the cap"
            case Refusal(reason=RefusalReason.PHASE_TAKEN):
                yield "a phase was taken"
            case Refusal(reason=RefusalReason.OVERDUE):
                yield "a submission could not start in time"
            case Accepted(known=True):
                yield "a submission was known already"
            case Held(lost=True) | Finished(lost=True):
                yield "a stale token was refused"
            case Reminder():
                yield "a reminder was due"
            case Claimed(more=True) | Portion(more=True) | UpkeepDone(more=True):
                yield "a bound ended a step"


def of_jobs(before: ModelState, after: ModelState, *, moved: bool) -> Iterable[str]:
    changed = [(before.jobs.get(job.id), job) for job in after.jobs.values()]
    known = [(old, one) for old, one in changed if old is not None]
    if any(one.state is State.STARTING and (old is None or old.token != one.token) for old, one in changed):
        yield "a job started"
    if any(one.suspicion and not old.suspicion for old, one in known):
        yield "a job became a suspect"
    if any(one.suspicion is Suspicion.LAST and one.token and old.token != one.token for old, one in known):
        yield "a last suspect started"
    if any(one.deferred and (old is None or not old.deferred) for old, one in changed):
        yield "a job was deferred"
    if any(one.state is State.WAITING and old is None for old, one in changed):
        yield "a phase had to wait"
    for old_state, state, what in CHANGES:
        if any(old.state is old_state and one.state is state for old, one in known):
            yield what
    if any(old.deferred and one.state is State.QUEUED and not one.deferred for old, one in known):
        yield "a deferred job joined"
    if any(old.quota_day is not None and one.quota_day is None and one.state is State.FAILED for old, one in known):
        yield "an overdue job gave its quota back"
    if moved and sum(old.key != one.key for old, one in known) > 1:
        yield "a move spread others out"
    if before.jobs.keys() - after.jobs.keys():
        yield "a job was forgotten"


def of_lanes(before: ModelState, model: Any) -> Iterable[str]:
    after: ModelState = model.state
    firsts_before, firsts = first_keys(before, model), first_keys(after, model)
    jobs = Counter(model.lane_of(one) for one in after.in_lanes())
    for lane, group in after.lanes.items():
        known = lane in before.lanes
        if group and before.lanes.get(lane) != group:
            yield "a lane was parked"
            if jobs[lane] > 1:
                yield "a lane of several jobs was parked"
            if known and before.lanes[lane] is not None:
                yield "a lane moved to another group"
        if known and firsts[lane] > firsts_before[lane]:
            yield "a lane went on with its next job"
        if known and firsts[lane] < firsts_before[lane]:
            yield "a job came to the front of its lane"


def first_keys(state: ModelState, model: Any) -> dict[Lane, int]:
    firsts: dict[Lane, int] = {}
    for one in state.in_lanes():
        lane, key = model.lane_of(one), certain(one.key)
        firsts[lane] = min(key, firsts.get(lane, key))
    return firsts


CHANGES = [
    (State.WAITING, State.QUEUED, "a phase was released"),
    (State.RUNNING, State.CONFIRMING, "a running job asked for confirmation"),
    (State.STARTING, State.CONFIRMING, "a starting job asked for confirmation"),
    (State.CONFIRMING, State.QUEUED, "a job was confirmed"),
    (State.CONFIRMING, State.FAILED, "nobody confirmed a job"),
    (State.FAILED, State.QUEUED, "a failed job was retried"),
    (State.STARTING, State.SCHEDULED, "an attempt is to be repeated later"),
    (State.QUEUED, State.FAILED, "a job in line was overdue"),
    (State.SCHEDULED, State.FAILED, "a scheduled job was overdue"),
    (State.WAITING, State.FAILED, "a phase that waited was overdue"),
]


def of_callers_and_groups(before: ModelState, model: Any, kinds: set[str], now: int) -> Iterable[str]:
    after: ModelState = model.state
    if model.open_groups():
        yield "a group was open"
    if any(not lease.is_job and token not in before.leases for token, lease in after.leases.items()):
        yield "a caller got slots"
    if len(before.tickets) > len(after.tickets) and not kinds & {GRANTED}:
        yield "a ticket was dropped or given back"
    if any(row.closed_until is not None and row.closed_until > now for row in after.groups.values()):
        yield "a group was closed for a while"
    if any(row.limit is not None and len(model.holders(name)) > row.limit for name, row in after.groups.items()):
        yield "a group was over a lowered limit"


BOUND = "a bound ended a step"
"""With the usual bounds no history is long enough for it."""
RARE = frozenset(
    {
        *EVENTS.values(),
        *(what for _, _, what in CHANGES),
        BOUND,
        "a submission was refused at the cap",
        "a phase was taken",
        "a submission could not start in time",
        "an overdue job gave its quota back",
        "a submission was known already",
        "a stale token was refused",
        "a reminder was due",
        "a job was deferred",
        "a deferred job joined",
        "a phase had to wait",
        "a job became a suspect",
        "a last suspect started",
        "a move spread others out",
        "a job was forgotten",
        "a lane of several jobs was parked",
        "a lane moved to another group",
        "a lane went on with its next job",
        "a job came to the front of its lane",
        "a ticket was dropped or given back",
        "a group was closed for a while",
        "a group was over a lowered limit",
        "a gap counted",
        "a gap counted for nothing",
        "the clock fell back by more than a lease",
        "the clock went back",
    }
)
"""What a nightly must have met a hundred times on SQLite and a hundred times on Redis, or it has not looked."""
