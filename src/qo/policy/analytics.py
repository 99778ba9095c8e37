"""Figures of the last minutes, made from the store's figures of each minute."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from qo.job import State, moment
from qo.policy.figures import DEPTH, PROMISE_KEPT, PROMISE_MISSED
from qo.policy.groups import kind_of
from qo.policy.promises import Start
from qo.values import SeriesPoint, WorkerInfo

MINUTE_MS = 60_000
MOST_GROUPS = 20
"""How many groups are listed, those under most pressure. Those of one kind, such as `user:`, are one group here."""


class WaitSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The starts of one priority in each minute, and how long these jobs had waited, all together."""

    started: list[int]
    """How many jobs were claimed."""
    waited_seconds: list[float]
    """How long they had waited, all together."""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One number for each minute, the oldest first. The last one is the present minute, which is not over."""

    since: datetime
    """When the first minute began."""
    submitted: list[int]
    """Jobs that were submitted."""
    started: list[int]
    """Jobs that were claimed."""
    succeeded: list[int]
    """Jobs that succeeded."""
    failed: list[int]
    """Jobs that failed for good."""
    cancelled: list[int]
    """Jobs that were cancelled."""
    repeated: list[int]
    """Attempts that failed and will be repeated."""
    depth: list[int | None]
    """How many jobs were in line at the end of the minute. None where that is not known."""
    waits: dict[int, WaitSeries]
    """By priority."""


class PromiseFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs started inside the range that they were first promised, and how many did not."""

    kept: int
    """How many started inside their range."""
    missed: int
    """How many started before or after it."""


class GroupFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The slots of a group that jobs and callers took, and how often one did not get a slot. `group` is a kind for
    groups of that kind: `user` stands for all of `user:…`. The lists are as in `Series`; only the group that was asked
    for has them."""

    group: str
    """The group, or a kind of groups."""
    acquired: int
    """How many slots were taken."""
    rejected: int
    """How often a job or caller found no free slot."""
    median_wait_seconds: int | None
    """Half of those that took a slot had waited for at most so long. It is rounded up to a power of two."""
    acquired_by_minute: list[int] = []
    """How many were taken in each minute."""
    rejected_by_minute: list[int] = []
    """How often there was none in each minute."""


class Analytics(msgspec.Struct, frozen=True, kw_only=True):
    """The line now, and the last `minutes`."""

    waiting: int
    """How many jobs are in line."""
    running: int
    """How many jobs run."""
    workers: int
    """How many workers live."""
    capacity: int
    """How many jobs these workers run at once, at most."""
    minutes: int
    """How many minutes the figures cover."""
    submitted: int
    """How many jobs were submitted."""
    ended: dict[str, int]
    """How many jobs ended in each state. `scheduled` counts attempts that will be repeated."""
    average_wait_seconds: dict[int, float]
    """The average wait of the jobs that started, by priority."""
    average_run_seconds: float | None
    """The average run of the jobs that succeeded."""
    finished_per_minute: float
    """How many jobs succeeded in a minute, on average."""
    promise: PromiseFigures
    """How many jobs started in the range that they were promised."""
    series: Series
    """The same minute by minute."""
    groups: list[GroupFigures]
    """Those first where most did not get a slot, then those where most slots were taken."""
    starts: list[Start] = []
    """The newest starts that had a promise, where they were asked for."""


class _Figures:
    """The figures of each name: a count and a total for each minute."""

    def __init__(self, series: Iterable[SeriesPoint], *, first_minute: int, minutes: int) -> None:
        self.length = minutes + 1
        self.first_minute = first_minute
        self._counts: dict[str, list[int]] = {}
        self._totals_ms: dict[str, list[int]] = {}
        for point in series:
            index = point.minute - first_minute
            if 0 <= index < self.length:
                self._counts.setdefault(point.name, [0] * self.length)[index] = point.count
                self._totals_ms.setdefault(point.name, [0] * self.length)[index] = point.total_ms

    def counts(self, name: str) -> list[int]:
        return self._counts.get(name) or [0] * self.length

    def count(self, name: str) -> int:
        return sum(self._counts.get(name, ()))

    def totals_ms(self, name: str) -> list[int]:
        return self._totals_ms.get(name) or [0] * self.length

    def after(self, prefix: str) -> list[str]:
        """What follows this prefix in the names that have it, sorted."""
        return sorted(name.removeprefix(prefix) for name in self._counts if name.startswith(prefix))


def analyse(
    *,
    waiting: int,
    workers: Sequence[WorkerInfo],
    series: Sequence[SeriesPoint],
    minutes: int,
    now_ms: int,
    group: str | None = None,
) -> Analytics:
    """`group` is listed among the groups in any case."""
    figures = _Figures(series, first_minute=now_ms // MINUTE_MS - minutes, minutes=minutes)
    succeeded = figures.count("ended:succeeded")
    priorities = sorted(map(int, figures.after("wait:")))
    waits = {priority: _waits_of(priority, figures) for priority in priorities}
    return Analytics(
        waiting=waiting,
        running=sum(worker.running for worker in workers),
        workers=len(workers),
        capacity=sum(worker.capacity for worker in workers),
        minutes=minutes,
        submitted=figures.count("submitted"),
        ended={state: figures.count(f"ended:{state}") for state in figures.after("ended:")},
        average_wait_seconds={
            priority: sum(each.waited_seconds) / sum(each.started) for priority, each in waits.items()
        },
        average_run_seconds=sum(figures.totals_ms("ended:succeeded")) / succeeded / 1000 if succeeded else None,
        finished_per_minute=succeeded / minutes,
        promise=PromiseFigures(kept=figures.count(PROMISE_KEPT), missed=figures.count(PROMISE_MISSED)),
        series=Series(
            since=moment(figures.first_minute * MINUTE_MS),
            submitted=figures.counts("submitted"),
            started=[sum(each) for each in zip(*(wait.started for wait in waits.values()), strict=True)]
            or [0] * figures.length,
            succeeded=figures.counts(f"ended:{State.SUCCEEDED}"),
            failed=figures.counts(f"ended:{State.FAILED}"),
            cancelled=figures.counts(f"ended:{State.CANCELLED}"),
            repeated=figures.counts(f"ended:{State.SCHEDULED}"),
            depth=_depth(series, figures, waiting),
            waits=waits,
        ),
        groups=_groups(figures, None if group is None else kind_of(group)),
    )


def _waits_of(priority: int, figures: _Figures) -> WaitSeries:
    name = f"wait:{priority}"
    waited_seconds = [total / 1000 for total in figures.totals_ms(name)]
    return WaitSeries(started=figures.counts(name), waited_seconds=waited_seconds)


def _depth(series: Iterable[SeriesPoint], figures: _Figures, waiting: int) -> list[int | None]:
    """A minute in which the depth did not change has no figure: it is that of the minute before."""
    known = {point.minute - figures.first_minute: point.count for point in series if point.name == DEPTH}
    depth: list[int | None] = []
    for index in range(figures.length):
        depth.append(known.get(index, depth[-1] if depth else None))
    if not known:
        return [waiting] * figures.length
    depth[-1] = waiting
    return depth


def _groups(figures: _Figures, wanted: str | None) -> list[GroupFigures]:
    buckets: dict[str, list[int]] = defaultdict(list)
    for each in figures.after("acquired:"):
        name, _, seconds = each.rpartition(":")
        buckets[name].append(int(seconds))
    rejected = {name: figures.count(f"rejected:{name}") for name in figures.after("rejected:")}
    taken = {
        name: sum(figures.count(f"acquired:{name}:{bucket}") for bucket in found) for name, found in buckets.items()
    }

    def pressure(name: str) -> tuple[int, int, str]:
        return -rejected.get(name, 0), -taken.get(name, 0), name

    names = sorted({*buckets, *rejected}, key=pressure)
    listed = names[:MOST_GROUPS]
    if wanted is not None and wanted not in listed:
        listed.append(wanted)
    return [_group(name, sorted(buckets.get(name, ())), figures, with_minutes=name == wanted) for name in listed]


def _group(name: str, buckets: Sequence[int], figures: _Figures, *, with_minutes: bool) -> GroupFigures:
    by_bucket = {bucket: figures.counts(f"acquired:{name}:{bucket}") for bucket in buckets}
    acquired_by_minute = [sum(each) for each in zip(*by_bucket.values(), strict=True)] or [0] * figures.length
    rejected_by_minute = figures.counts(f"rejected:{name}")
    acquired = sum(acquired_by_minute)
    return GroupFigures(
        group=name,
        acquired=acquired,
        rejected=sum(rejected_by_minute),
        median_wait_seconds=_median({bucket: sum(counts) for bucket, counts in by_bucket.items()}, acquired),
        acquired_by_minute=acquired_by_minute if with_minutes else [],
        rejected_by_minute=rejected_by_minute if with_minutes else [],
    )


def _median(counts: dict[int, int], total: int) -> int | None:
    passed = 0
    for bucket, count in counts.items():
        passed += count
        if passed * 2 >= total:
            return bucket
    return None
