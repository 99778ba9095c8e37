"""Why a job is not running, in words and as data."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from qo.job import ENDED, Job, State, moment
from qo.policy.confirming import message_now
from qo.policy.words import ago, clock_time, counted, span
from qo.values import Blockers, GroupStatus, Suspicion

_STOPPED = " It was running when its worker stopped responding, so"
_SUSPECTED = {
    Suspicion.NONE: "",
    Suspicion.SUSPECT: f"{_STOPPED} a worker runs only a few such jobs at once.",
    Suspicion.LAST: f"{_STOPPED} it waits to run alone.",
}
NAMED_AT_MOST = 3
"""How many holders of a full group are named; the others are counted."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A holder of a slot that the job needs. `holder` is None where the reader may not see its name."""

    group: str
    """The group."""
    slot_id: int
    """The number of the slot."""
    holder: str | None
    """The id of the job, or the caller's name."""
    since: datetime
    """When it took the slot."""


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """A group without room for the job.

    With `is_kept` it has a free slot, which is kept for a job or caller before this one: for `kept_for`, which is None
    where the reader may not see its name.
    """

    group: str
    """The group."""
    limit: int | None
    """How many slots it has. None: unlimited."""
    active: int
    """How many hold a slot now."""
    paused: bool = False
    """Whether nobody new starts in it."""
    closed_until: datetime | None = None
    """When a group that is kept in a bucket, and was full there, is tried again."""
    is_kept: bool = False
    """Whether its free slot is kept for somebody before this job."""
    kept_for: str | None = None
    """That job or caller, if the reader may see its name."""


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """`sentence` is for people; the other fields are the facts behind it."""

    job_id: str
    """The id of the job."""
    state: State
    """Its state."""
    sentence: str
    """All reasons, in words."""
    ahead: int | None = None
    """How many jobs are ahead in line. None unless the job is in line."""
    blocked_by: tuple[Blocked, ...] = ()
    """The groups without room for it."""
    holders: tuple[Holder, ...] = ()
    """Who holds the slots of these groups, and since when."""
    turn: tuple[str, ...] = ()
    """The groups in which a slot is kept for this job, because it is its turn."""
    scheduled_until: datetime | None = None
    """When it joins the line."""
    waits_for_phase: int | None = None
    """The phase that has to succeed first."""
    start_by: datetime | None = None
    """When the job fails, unless it has started before."""
    no_worker: bool = False
    """Whether no live worker takes its task."""
    worker: str | None = None
    """The worker that holds the job, else the worker of its task that the store heard of last, live or not."""
    worker_heard_at: datetime | None = None
    """When the worker that holds it, or else the last worker of its task, was last heard of."""


def explain(
    blockers: Blockers, *, now: datetime, visible: Collection[str] | None = None, daily_quota: int | None = None
) -> Why:
    """Explain in one sentence that a person understands, the strongest reason first.

    `visible` are the holders whose names the reader may see; None shows all. `daily_quota` is that of the job's user,
    where the job is deferred.
    """
    job = blockers.job
    groups = blockers.groups if job.state is State.QUEUED else ()
    holders = tuple(holder for group in groups for holder in _holders(group, visible))
    return Why(
        job_id=job.id,
        state=job.state,
        sentence=_sentence(blockers, holders, visible=visible, daily_quota=daily_quota, now=now)
        + _must_start(blockers, now),
        ahead=blockers.ahead,
        blocked_by=tuple(_blocked(group, visible) for group in groups),
        holders=holders,
        turn=blockers.turn,
        scheduled_until=job.run_at if job.state is State.SCHEDULED else None,
        waits_for_phase=blockers.waits_for,
        start_by=blockers.start_by,
        no_worker=not blockers.has_worker and job.state is State.QUEUED,
        worker=blockers.worker,
        worker_heard_at=blockers.heard_at,
    )


def named_in(blockers: Blockers) -> list[str]:
    """The jobs and callers whose names an explanation may contain, each once."""
    names = [slot.holder for group in blockers.groups for slot in group.slots]
    names += [group.kept for group in blockers.groups if group.kept is not None]
    return list(dict.fromkeys([*names, *blockers.kept_for]))


def _blocked(group: GroupStatus, visible: Collection[str] | None) -> Blocked:
    return Blocked(
        group=group.group,
        limit=group.limit,
        active=group.active,
        paused=group.paused,
        closed_until=group.closed_until,
        is_kept=group.has_room,
        kept_for=group.kept if group.has_room and _may_see(group.kept, visible) else None,
    )


def _may_see(name: str | None, visible: Collection[str] | None) -> bool:
    return visible is None or name in visible


def _holders(group: GroupStatus, visible: Collection[str] | None) -> list[Holder]:
    return [
        Holder(
            group=group.group,
            slot_id=slot.slot_id,
            holder=slot.holder if _may_see(slot.holder, visible) else None,
            since=moment(int(slot.token) // 1000),  # a token is the microsecond at which it was given
        )
        for slot in group.slots
    ]


def _sentence(
    blockers: Blockers,
    holders: Sequence[Holder],
    *,
    visible: Collection[str] | None,
    daily_quota: int | None,
    now: datetime,
) -> str:
    job = blockers.job
    if job.state is State.STARTING:
        return f"It is starting on worker {job.worker}{_heard_of(blockers, now)}."
    if job.state is State.RUNNING:
        assert job.started_at is not None
        since = clock_time(job.started_at, now=now)
        return f"It has been running since {since} on worker {job.worker}{_heard_of(blockers, now)}."
    if job.state in ENDED:
        return f"It has ended: {job.state.value}."
    if job.state is State.CONFIRMING:
        message = message_now(job)
        asked = "" if message is None else f' "{message}"'
        return f"It waits for a person to confirm{asked}."
    if job.state is State.SCHEDULED:
        return _scheduled(job, daily_quota, now)
    if job.state is State.WAITING:
        return _waiting(blockers, daily_quota, now)
    return _queued(blockers, holders, visible, now)


def _must_start(blockers: Blockers, now: datetime) -> str:
    start_by = blockers.start_by
    return "" if start_by is None else f" It must start by {clock_time(start_by, now=now)}, or it fails."


def _scheduled(job: Job, daily_quota: int | None, now: datetime) -> str:
    assert job.run_at is not None
    when = f"It is scheduled for {clock_time(job.run_at, now=now)}"
    if job.deferred:
        return f"{when}, {_over_quota(job, daily_quota)}."
    return f"{when}, as attempt {job.attempts + 1} of {job.max_attempts}." if job.attempts else f"{when}."


def _over_quota(job: Job, daily_quota: int | None) -> str:
    named = "daily quota" if daily_quota is None else f"quota of {counted(daily_quota, 'job')} a day"
    return f"because {job.user}'s {named} is used up until then"


def _waiting(blockers: Blockers, daily_quota: int | None, now: datetime) -> str:
    job = blockers.job
    if blockers.waits_for is None:
        at = "its time" if job.run_at is None else clock_time(job.run_at, now=now)
        because = f", {_over_quota(job, daily_quota)}" if job.deferred else ""
        return f"The phase before it has succeeded; it waits until {at}{because}."
    phase = f"phase {blockers.waits_for} of parent {job.parent}"
    match blockers.waits_for_state:
        case None:
            # A parent is forgotten with its jobs, once all of them have ended and the retention has passed.
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


def _queued(blockers: Blockers, holders: Sequence[Holder], visible: Collection[str] | None, now: datetime) -> str:
    reasons = [
        _kept(group, blockers.kept_for, visible)
        if group.has_room
        else _no_room(group, [each for each in holders if each.group == group.group], now)
        for group in blockers.groups
    ]
    if not blockers.has_worker:
        heard = ""
        if blockers.heard_at is not None:
            heard = f" ({blockers.worker} was last heard of {_ago(blockers.heard_at, now)})"
        reasons.insert(0, f"no worker for task {blockers.job.task} is running{heard}")
    if blockers.turn:
        return "; ".join([_turn(blockers.turn), *reasons]) + "."
    ahead = blockers.ahead or 0
    place = "It is the first in line" if ahead == 0 else f"{counted(ahead, 'job')} {_is(ahead)} ahead of it in line"
    suspected = _SUSPECTED[blockers.suspicion]
    if reasons:
        return f"{place}, {'and' if ahead else 'but'} {'; '.join(reasons)}.{suspected}"
    if suspected:
        return f"{place}.{suspected}"
    if ahead == 0:
        return f"{place} and starts as soon as a worker has free capacity."
    return f"{place}; nothing else holds it up."


def _turn(groups: Sequence[str]) -> str:
    slots = "slot" if len(groups) == 1 else "slots"
    return f"It is its turn: the next free {slots} of {_listed(groups)} {_is(len(groups))} kept for it"


def _kept(group: GroupStatus, kept_for: Mapping[str, Sequence[str]], visible: Collection[str] | None) -> str:
    if group.kept is None or not _may_see(group.kept, visible):
        return f"{group.group} has a free slot, kept for a job before it"
    lacking = kept_for.get(group.kept, ())
    waits = f" and waits for {_listed(lacking)}" if lacking else ""
    return f"{group.group} has a free slot, kept for {group.kept}, which stands before it{waits}"


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _no_room(group: GroupStatus, holders: Sequence[Holder], now: datetime) -> str:
    if group.paused:
        return f"{group.group} is paused"
    if group.closed_until is not None:
        return f"{group.group} is full elsewhere and is tried again at {clock_time(group.closed_until, now=now)}"
    if not group.limit:
        return f"{group.group} has a limit of 0, so nobody starts in it"
    by_holders = _by_holders(holders, now)
    if group.active > group.limit:
        return f"{group.group} is over its limit of {group.limit}: {group.active} slots are taken{by_holders}"
    taken = {1: "its slot is", 2: "both its slots are"}.get(group.limit, f"all its {group.limit} slots are")
    return f"{group.group} is full: {taken} taken{by_holders}"


def _by_holders(holders: Sequence[Holder], now: datetime) -> str:
    named = [
        f"{holder.holder} (for {span((now - holder.since).total_seconds())})"
        for holder in holders
        if holder.holder is not None
    ][:NAMED_AT_MOST]
    if not named:
        return ""
    if len(holders) > len(named):
        named.append(f"{len(holders) - len(named)} more")
    return f" by {_listed(named)}"


def _heard_of(blockers: Blockers, now: datetime) -> str:
    return "" if blockers.heard_at is None else f", which was last heard of {_ago(blockers.heard_at, now)}"


def _ago(at: datetime, now: datetime) -> str:
    return ago((now - at).total_seconds())


def _is(number: int) -> str:
    return "is" if number == 1 else "are"
