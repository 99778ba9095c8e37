"""The slots of a group over time: what ran in each, what holds it now, and what would run in it next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from heapq import heappop, heappush

import msgspec

from qo.job import moment
from qo.policy.estimates.forecast import Forecast
from qo.policy.estimates.replay import NEVER
from qo.values import GroupStatus, SlotInfo

MOST_ENDED_JOBS = 2000
"""How many ended jobs of a group the past is made from, the newest."""
MOST_EXPECTED = 20
"""How many runs are expected for each slot."""
NOTE = (
    "The forecast is one possible course: it assumes that no further job comes, that runs take as long as they did, "
    "and that callers keep their slots."
)


class EndedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a job that has ended. `slots` are the numbers that it had in its limited groups."""

    job: str
    worker: str | None
    slots: Mapping[str, int]
    started_at: datetime
    ended_at: datetime
    outcome: str


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A run that held a slot and is over."""

    slot: int
    """The number of the slot."""
    job: str
    """The id of the job."""
    worker: str | None
    """The worker that ran it."""
    started_at: datetime
    """When it was claimed."""
    ended_at: datetime
    """When the run was over."""
    outcome: str
    """The state that it led to, or `lost` or `revoked`."""


class Holds(msgspec.Struct, frozen=True, kw_only=True):
    """A job or a caller that holds a slot. `expires_at` is the end of its lease, unless that is renewed."""

    slot: int
    """The number of the slot."""
    holder: str
    """The id of the job, or the caller's name."""
    worker: str | None
    """The worker that runs the job. None for a caller."""
    since: datetime
    """When it took the slot."""
    expires_at: datetime
    """When its lease ends, unless that is renewed."""
    ends_at: datetime | None
    """When the run will probably end. None for a caller: nobody knows how long it keeps the slot."""


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """A job in line, and the run that the forecast expects of it."""

    slot: int
    """The number of the slot."""
    job: str
    """The id of the job."""
    starts_at: datetime
    """When it will probably start."""
    ends_at: datetime
    """When it will probably end."""


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Each list is sorted by slot and time. The past begins at `since`; it has no callers, who leave no trace."""

    group: str
    """The group."""
    since: datetime | None
    """When the past begins. None if there is none."""
    past: list[Ran]
    """Runs that are over."""
    now: list[Holds]
    """Who holds a slot."""
    forecast: list[Expected]
    """Jobs in line, where the forecast puts them."""
    note: str = NOTE
    """What the forecast assumes, for people."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A job in line as the replay saw it, in seconds from the replay's beginning."""

    job: str
    starts: float
    ends: float


def timeline_of(group: GroupStatus, *, ended: Iterable[EndedAttempt], forecast: Forecast) -> Timeline:
    """The timeline of a group that was read with its slots."""
    past = sorted(_past(group.group, ended), key=lambda ran: (ran.slot, ran.started_at))
    holders = {slot.holder for slot in group.slots}
    frees_after = {slot.slot_id: _frees_after(slot, forecast) for slot in group.slots}
    # A job that has started since the replay holds a slot already.
    runs = [run for run in runs_in(group.group, forecast) if run.job not in holders]
    return Timeline(
        group=group.group,
        since=min((ran.started_at for ran in past), default=None),
        past=past,
        now=[_holds(slot, frees_after[slot.slot_id], forecast) for slot in group.slots],
        forecast=[
            Expected(slot=slot, job=run.job, starts_at=_at(run.starts, forecast), ends_at=_at(run.ends, forecast))
            for slot, run in deal_out(runs, limit=group.limit, frees_after=frees_after)
        ],
    )


def runs_in(group: str, forecast: Forecast) -> list[Run]:
    """The runs of jobs in line that need a slot of this group. What was only extrapolated is left out."""
    line = forecast.situation.line
    return [
        Run(job=job.id, starts=starts, ends=ends)
        for job, starts, ends in zip(line, forecast.starts, forecast.ends, strict=True)
        if ends != NEVER and group in job.groups
    ]


def deal_out(runs: Sequence[Run], *, limit: int | None, frees_after: Mapping[int, float]) -> list[tuple[int, Run]]:
    """The slot of each run, by slot and time: the lowest number that is free when the run starts.

    `frees_after` has the slots that are held now, and after how many seconds each is free; NEVER for one that is kept.
    A run for which no number is free gets none: the limit was lowered, or a slot was taken since the replay.
    """
    free: list[int] = []
    unused = 0
    """The lowest number that was never taken. All numbers below it are held or in `free`."""
    held = [(after, slot) for slot, after in frees_after.items() if after != NEVER]
    held.sort()
    dealt: list[tuple[int, Run]] = []
    so_far: Counter[int] = Counter()
    for run in sorted(runs, key=lambda each: each.starts):
        while held and held[0][0] <= run.starts:
            _, slot = heappop(held)
            # A number of `unused` or above is found there in its turn. One above a lowered limit is not used again.
            if slot < unused and (limit is None or slot < limit):
                heappush(free, slot)
        while not free and unused in frees_after and frees_after[unused] > run.starts:
            unused += 1
        if free:
            slot = heappop(free)
        elif limit is None or unused < limit:
            slot, unused = unused, unused + 1
        else:
            continue
        heappush(held, (run.ends, slot))
        so_far[slot] += 1
        if so_far[slot] <= MOST_EXPECTED:
            dealt.append((slot, run))
    return sorted(dealt, key=lambda each: (each[0], each[1].starts))


def _past(group: str, ended: Iterable[EndedAttempt]) -> list[Ran]:
    return [
        Ran(
            slot=attempt.slots[group],
            job=attempt.job,
            worker=attempt.worker,
            started_at=attempt.started_at,
            ended_at=attempt.ended_at,
            outcome=attempt.outcome,
        )
        for attempt in ended
        if group in attempt.slots
    ]


def _frees_after(slot: SlotInfo, forecast: Forecast) -> float:
    if slot.token in forecast.lease_ends:
        return forecast.lease_ends[slot.token]
    rank = forecast.ranks.get(slot.holder)
    return NEVER if rank is None else forecast.ends[rank]


def _holds(slot: SlotInfo, frees_after: float, forecast: Forecast) -> Holds:
    return Holds(
        slot=slot.slot_id,
        holder=slot.holder,
        worker=slot.worker_id,
        since=moment(int(slot.token) // 1000),  # a token is the microsecond at which it was given
        expires_at=slot.expires_at,
        ends_at=None if frees_after == NEVER else _at(frees_after, forecast),
    )


def _at(seconds: float, forecast: Forecast) -> datetime:
    return moment(round((forecast.made_at + seconds) * 1000))
