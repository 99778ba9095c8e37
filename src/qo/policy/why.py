"""Why a job is not running, in words and as data."""

from __future__ import annotations

from datetime import datetime

import msgspec

from qo.job import ENDED, Job, State
from qo.policy.confirming import message_now
from qo.policy.words import ago, clock_time, counted, span

NAMED_AT_MOST = 3


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a slot that the job would need. `holder` is None where the asker may not see it."""

    group: str
    slot_id: int
    holder: str | None
    since: datetime


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """A group without room for the job."""

    group: str
    limit: int | None
    active: int
    paused: bool = False
    closed_until: datetime | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a store knows of a job's way to its start."""

    job: Job
    ahead: int | None
    blocked_by: tuple[Blocked, ...]
    holders: tuple[Holder, ...]
    waits_for: int | None
    waits_for_state: State | None
    has_worker: bool
    now: datetime
    daily_quota: int | None = None
    """That of the job's user, where the job is deferred."""
    worker: str | None = None
    """the one that holds the job, else the one of its task that was heard of last, live or not"""
    heard_at: datetime | None = None
    """when that was"""


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """`sentence` for people; the rest is what it was made from."""

    job_id: str
    state: State
    sentence: str
    ahead: int | None = None
    blocked_by: tuple[Blocked, ...] = ()
    holders: tuple[Holder, ...] = ()
    scheduled_until: datetime | None = None
    waits_for_phase: int | None = None
    no_worker: bool = False
    worker: str | None = None
    """the one that holds the job, else the one of its task that was heard of last, live or not"""
    worker_heard_at: datetime | None = None


def explain(facts: Facts) -> Why:
    """One sentence a person understands; the strongest reason first."""
    job = facts.job
    return Why(
        job_id=job.id,
        state=job.state,
        sentence=_sentence(facts),
        ahead=facts.ahead,
        blocked_by=facts.blocked_by if job.state is State.QUEUED else (),
        holders=facts.holders if job.state is State.QUEUED else (),
        scheduled_until=job.run_at if job.state is State.SCHEDULED else None,
        waits_for_phase=facts.waits_for,
        no_worker=not facts.has_worker and job.state is State.QUEUED,
        worker=facts.worker,
        worker_heard_at=facts.heard_at,
    )


def _sentence(facts: Facts) -> str:
    job = facts.job
    if job.state is State.STARTING:
        return f"It is starting on worker {job.worker}{_heard_of(facts)}."
    if job.state is State.RUNNING:
        assert job.started_at is not None
        since = clock_time(job.started_at, now=facts.now)
        return f"It has been running since {since} on worker {job.worker}{_heard_of(facts)}."
    if job.state in ENDED:
        return f"It has ended: {job.state.value}."
    if job.state is State.CONFIRMING:
        message = message_now(job)
        asked = "" if message is None else f' "{message}"'
        return f"It waits for a person to confirm{asked}."
    if job.state is State.SCHEDULED:
        assert job.run_at is not None
        return f"It is scheduled for {clock_time(job.run_at, now=facts.now)}{_what_it_is_scheduled_for(facts)}."
    if job.state is State.WAITING:
        return _waiting(facts)
    return _queued(facts)


def _what_it_is_scheduled_for(facts: Facts) -> str:
    job = facts.job
    if job.deferred:
        return _over_quota(facts)
    return f", as attempt {job.attempts + 1} of {job.max_attempts}" if job.attempts else ""


def _over_quota(facts: Facts) -> str:
    quota = facts.daily_quota
    named = "daily quota" if quota is None else f"quota of {counted(quota, 'job')} a day"
    return f", because {facts.job.user}'s {named} is used up until then"


def _waiting(facts: Facts) -> str:
    job = facts.job
    if facts.waits_for is None:
        at = "its time" if job.run_at is None else clock_time(job.run_at, now=facts.now)
        return f"The phase before it has succeeded; it waits until {at}{_over_quota(facts) if job.deferred else ''}."
    phase = f"phase {facts.waits_for} of parent {job.parent}"
    match facts.waits_for_state:
        case None:
            # A parent whose jobs have all ended is forgotten with them after the retention.
            ended = "it has not been submitted yet, or it ended so long ago that it is no longer kept"
            then = "submit it, and this one goes on when it has succeeded"
            return f"It waits for {phase}, which is not known here: {ended}; {then}."
        case State.FAILED:
            return f"It waits for {phase}, which has failed; retry that one and this one goes on."
        case State.CANCELLED:
            then = "submit that phase again under a new id and this one goes on"
            return f"It waits for {phase}, which was cancelled; {then}."
        case State.CONFIRMING:
            return f"It waits for {phase}, which waits for a person to confirm."
        case state:
            return f"It waits for {phase}, which is {state.value}."


def _queued(facts: Facts) -> str:
    reasons = [_blocked(blocked, facts) for blocked in facts.blocked_by]
    if not facts.has_worker:
        heard = "" if facts.heard_at is None else f" ({facts.worker} was last heard of {_ago(facts, facts.heard_at)})"
        reasons.insert(0, f"no worker for task {facts.job.task} is running{heard}")
    ahead = facts.ahead or 0
    place = "It is the first in line" if ahead == 0 else f"{counted(ahead, 'job')} {_is(ahead)} ahead of it in line"
    if reasons:
        return f"{place}, {'and' if ahead else 'but'} {'; '.join(reasons)}."
    if ahead == 0:
        return f"{place} and starts as soon as a worker has a free place."
    return f"{place}; nothing else holds it up."


def _blocked(blocked: Blocked, facts: Facts) -> str:
    if blocked.paused:
        return f"{blocked.group} is paused"
    if blocked.closed_until is not None:
        return (
            f"{blocked.group} is full elsewhere and is tried again at {clock_time(blocked.closed_until, now=facts.now)}"
        )
    if not blocked.limit:
        return f"{blocked.group} has a limit of 0, so nobody starts in it"
    by_whom = _by_whom(blocked, facts)
    if blocked.active > blocked.limit:
        return f"{blocked.group} is over its limit of {blocked.limit}: {blocked.active} slots are taken{by_whom}"
    taken = {1: "its slot is", 2: "both its slots are"}.get(blocked.limit, f"all its {blocked.limit} slots are")
    return f"{blocked.group} is full: {taken} taken{by_whom}"


def _by_whom(blocked: Blocked, facts: Facts) -> str:
    holders = [holder for holder in facts.holders if holder.group == blocked.group]
    named = [
        f"{holder.holder} (for {span((facts.now - holder.since).total_seconds())})"
        for holder in holders
        if holder.holder is not None
    ][:NAMED_AT_MOST]
    if not named:
        return ""
    if len(holders) > len(named):
        named.append(f"{len(holders) - len(named)} more")
    *others, last = named
    return f" by {', '.join(others)} and {last}" if others else f" by {last}"


def _heard_of(facts: Facts) -> str:
    return "" if facts.heard_at is None else f", which was last heard of {_ago(facts, facts.heard_at)}"


def _ago(facts: Facts, at: datetime) -> str:
    return ago((facts.now - at).total_seconds())


def _is(number: int) -> str:
    return "is" if number == 1 else "are"
