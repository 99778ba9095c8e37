"""LiveReader: what has changed in the store since it was last asked, for all operators of a process together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from qo.errors import JobNotFound
from qo.event import GRANTED, LIMIT, MOVED, PAUSED, RESUMED, TIER, Event
from qo.job import Estimate, Job, State, moment
from qo.policy.movement import Movement
from qo.policy.ordering import SPREAD_AT_MOST
from qo.policy.presenting import present
from qo.policy.reasons.line import LineReasons
from qo.policy.reasons.reason import ChangedReasons
from qo.queue.queue import Queue
from qo.service.stream import live_slots
from qo.service.stream.frames import Frame, HeldSlot, InFront, Overview
from qo.service.stream.known_keys import KnownKeys
from qo.service.stream.live_rows import LiveRows
from qo.service.stream.overview import Overviews, View
from qo.store.paging import read_line
from qo.values import GroupStatus, WorkerInfo

FIRST_OF_THE_LINE = 10_000
"""So many jobs are known from the beginning, with their keys."""
EVENTS_AT_ONCE = 1000
MOST_CHANGES = 500
"""With more jobs changed than this, watchers read the present state instead."""
MOST_MOVES = 64
"""The neighbours of so many moved jobs are looked at; with more, watchers read the present state."""
MOST_IN_FRONT = 60
"""The estimates and movements of so many jobs are told with each reading of the line. Pages draw no more."""
GROUPS_EVERY_SECONDS = 1.0
HEARD_OF_SECONDS = 20
"""That workers were heard of again is told so often, and not with each of their heartbeats."""
NOT_OF_JOBS = frozenset({GRANTED, LIMIT, PAUSED, RESUMED, TIER})
"""Events of callers, groups and users."""


class TooMuchChanged(Exception):
    """More has changed than a frame has, or the events are no longer kept."""


class LiveReader:
    """Only one call at a time. A call either changes what is kept here and returns that, or does neither: it may be
    cancelled, and repeated when it has failed."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.cursor = 0
        """The last event of the feed that is in what was returned."""
        self.overviews = Overviews(queue)
        self._waiting = 0
        self._groups: dict[str, GroupStatus] = {}
        self._workers: tuple[WorkerInfo, ...] = ()
        self._overview: Overview | None = None
        self._reasons: LineReasons | None = None
        self._known = KnownKeys(())
        self._rows = LiveRows()
        self._slots: live_slots.Slots = {}
        self._front: list[InFront] = []
        self._groups_wanted = False
        """Whether something happened that may have changed the groups and workers."""
        self._groups_due = 0.0

    async def begin(self) -> None:
        """Read the present state."""
        store = self._queue.store_here
        # The cursor is older than what is read after it, so an event may repeat that, but none can fall between them.
        cursor = (await store.events(None)).cursor
        self.overviews.stop()
        view, line = await asyncio.gather(self.overviews.make(), read_line(store, limit=FIRST_OF_THE_LINE))
        waiting, groups, workers = (await store.line(limit=0)).queued, await store.groups(), await store.workers()
        self._known = KnownKeys(line.jobs)
        self._take_view(view)
        self._take_front()
        self._take_groups(groups)
        self._slots = await self._read_slots(groups)
        self._take_workers(workers)
        self._rows = LiveRows()
        self.cursor, self._waiting = cursor, waiting

    def present(self) -> Frame:
        """The present state, as it was last read."""
        return Frame(
            at=self._queue.system.now(),
            waiting=self._waiting,
            changed=[],
            gone=[],
            groups=list(self._groups.values()),
            workers=list(self._workers),
            overview=self._overview,
            # The page may have read its rows before the line was last read, and no later frame says the same again.
            reasons=None if self._reasons is None else self._reasons.of_first(MOST_IN_FRONT) or None,
            front=self._front,
            slots=live_slots.all_of(self._slots),
        )

    async def next(self, *, wait: bool = True) -> Frame | None:
        """What has changed since the last call; None if nothing has. Raises `TooMuchChanged`; then `begin` has to be
        called.

        It waits a while for a change. Without `wait` it reads what there is, groups and workers included.
        """
        store = self._queue.store_here
        if not wait:
            self._groups_wanted, self._groups_due = True, 0.0
        events, cursor = await self._events(self._patience() if wait else 0.0)
        touched = await self._touched(events)
        view = self.overviews.finished()
        self._groups_wanted = self._groups_wanted or bool(events) or view is not None
        jobs = (await store.jobs(ids=touched)).jobs if touched else ()
        groups, workers, slots = None, None, None
        if self._groups_wanted and self._now() >= self._groups_due:
            groups, workers = await asyncio.gather(store.groups(), store.workers())
            slots = await self._read_slots(groups)
        waiting = self._waiting if groups is None and not touched else (await store.line(limit=0)).queued
        # From here on nothing is awaited.
        is_news = bool(touched) or waiting != self._waiting
        self.cursor, self._waiting = cursor, waiting
        overview, reasons = (None, None) if view is None else self._take_view(view)
        changed, gone = self._take_jobs(touched, jobs)
        frame = Frame(
            at=self._queue.system.now(),
            waiting=waiting,
            changed=changed,
            gone=gone,
            groups=None if groups is None else self._take_groups(groups) or None,
            workers=None if workers is None else self._take_workers(workers),
            overview=overview,
            reasons=reasons,
            front=None if view is None else self._take_front(),
            slots=None if slots is None else self._take_slots(slots),
        )
        parts = (frame.groups, frame.workers, frame.overview, frame.reasons, frame.front, frame.slots)
        return frame if is_news or any(part is not None for part in parts) else None

    def _patience(self) -> float:
        """How long nothing but an event is news."""
        left = self.overviews.seconds_left()
        return max(min(left, self._groups_due - self._now()), 0.0) if self._groups_wanted else left

    def _now(self) -> float:
        return self._queue.system.monotonic()

    # --- the feed ---------------------------------------------------------------------------------------------

    async def _events(self, seconds: float) -> tuple[list[Event], int]:
        store = self._queue.store_here
        feed = await store.events(self.cursor, limit=EVENTS_AT_ONCE, timeout_seconds=seconds)
        events = list(feed.events)
        while len(feed.events) == EVENTS_AT_ONCE and not feed.reset and len(_jobs_in(events)) <= MOST_CHANGES:
            feed = await store.events(feed.cursor, limit=EVENTS_AT_ONCE)
            events += feed.events
        if feed.reset:
            raise TooMuchChanged
        return events, feed.cursor

    async def _touched(self, events: Sequence[Event]) -> list[str]:
        """The ids of the jobs that may have changed. Those of callers may be among them."""
        touched = _jobs_in(events)
        moved = _subjects(events, MOVED)
        if len(moved) > MOST_MOVES or len(touched) > MOST_CHANGES:
            raise TooMuchChanged
        for spread in await asyncio.gather(*map(self._spread_beside, moved)):
            touched |= dict.fromkeys(spread)
        for user in _subjects(events, TIER):
            page = await self._queue.store_here.jobs(user=user, status=State.QUEUED, limit=MOST_CHANGES)
            touched |= dict.fromkeys(job.id for job in page.jobs)
            if page.next is not None:
                raise TooMuchChanged
        if len(touched) > MOST_CHANGES:
            raise TooMuchChanged
        return list(touched)

    async def _spread_beside(self, job_id: str) -> list[str]:
        """The neighbours of a moved job that got other keys to make room for it. They have no event of their own.

        The nearest ones always get other keys then, so that usually only these are looked at.
        """
        for neighbours in (1, SPREAD_AT_MOST // 2):
            try:
                line = await self._queue.store_here.line(limit=neighbours, around=job_id)
            except JobNotFound:  # it has ended since, and is not kept
                return []
            spread = [job.id for job in line.jobs if job.id != job_id and self._known.get(job.id) != job.key]
            if not spread:
                return []
        return spread

    # --- what was read ----------------------------------------------------------------------------------------

    def _take_jobs(
        self, touched: Sequence[str], jobs: Sequence[Job]
    ) -> tuple[list[dict[str, Any]], list[tuple[str, int]]]:
        """The rows of the jobs that changed, and those that left the line."""
        now, settings = self._queue.system.now(), self._queue.settings
        estimates = self._queue.line_view.estimates_at_hand(jobs)
        found = {job.id: (job, estimate) for job, estimate in zip(jobs, estimates, strict=True)}
        changed: list[dict[str, Any]] = []
        gone: list[tuple[str, int]] = []
        for job_id in touched:
            job, estimate = found.get(job_id, (None, None))
            key = None if job is None else job.key
            key_before = self._known.change(job_id, key)
            if key is None and key_before is not None:
                gone.append((job_id, key_before))
                key_before = None
            if job is not None:
                shown = present(job, settings, usage=None, estimate=estimate, now=now)
                reasons = () if self._reasons is None else self._reasons.of(job)
                sequence = None if key is None else self._queue.line_view.sequence_at_hand(job_id, key)
                changed.append(self._rows.row(shown, waits_for=reasons, key_before=key_before, sequence=sequence))
        return changed, gone

    def _take_view(self, view: View) -> tuple[Overview | None, list[ChangedReasons] | None]:
        """The overview and the reasons of jobs, as far as they are not what they were."""
        self.overviews.taken()
        self._known.take(view.line)
        overview = None if view.overview == self._overview else view.overview
        changed = None
        if self._reasons is not None and self._reasons is not view.reasons:
            changed = view.reasons.changes_since(self._reasons, most=MOST_CHANGES) or None
        self._overview, self._reasons = view.overview, view.reasons
        return overview, changed

    def _take_front(self) -> list[InFront] | None:
        """The first rows of the last reading, if they are not what they were. A job that has changed since would be
        told what was right before."""
        before, self._front = (
            self._front,
            [
                _in_front(job.id, estimate, movement)
                for job, estimate, movement in self._queue.line_view.front(MOST_IN_FRONT)
                if self._known.get(job.id) == job.key
            ],
        )
        return None if self._front == before else self._front

    async def _read_slots(self, groups: Sequence[GroupStatus]) -> live_slots.Slots:
        wanted = live_slots.most_wanted(groups)
        return live_slots.slots_of(await self._queue.store_here.groups(wanted)) if wanted else {}

    def _take_slots(self, slots: live_slots.Slots) -> dict[str, list[HeldSlot] | None] | None:
        before, self._slots = self._slots, slots
        return live_slots.changes(before, slots) or None

    def _take_groups(self, groups: Sequence[GroupStatus]) -> list[GroupStatus]:
        """Those that changed. One that is no longer there is like one that nobody has named: unlimited and empty."""
        before, self._groups = self._groups, {group.group: group for group in groups}
        self._groups_wanted = False
        self._groups_due = self._now() + GROUPS_EVERY_SECONDS
        changed = [group for group in groups if before.get(group.group) != group]
        return changed + [GroupStatus(group=name) for name in before if name not in self._groups]

    def _take_workers(self, workers: tuple[WorkerInfo, ...]) -> list[WorkerInfo] | None:
        """All of them, if any has changed."""
        before, self._workers = self._workers, workers
        return list(workers) if [*map(_but_renewed, workers)] != [*map(_but_renewed, before)] else None


def _in_front(job_id: str, estimate: Estimate | None, movement: Movement) -> InFront:
    seconds, message = None, None if estimate is None else estimate.message
    if estimate is not None and estimate.upper_bound is not None:
        bounds = (estimate.lower_bound or 0, estimate.estimate_seconds or 0, estimate.upper_bound)
        seconds, message = (round(bounds[0]), round(bounds[1]), round(bounds[2])), None
    return InFront(job_id, seconds, message, movement.gained)


def _jobs_in(events: Sequence[Event]) -> dict[str, None]:
    return dict.fromkeys(event.subject for event in events if event.kind not in NOT_OF_JOBS)


def _subjects(events: Sequence[Event], kind: str) -> dict[str, None]:
    return dict.fromkeys(event.subject for event in events if event.kind == kind)


def _but_renewed(worker: WorkerInfo) -> WorkerInfo:
    """The worker without what each heartbeat changes; only that it was heard of again is seen, some time later."""
    heard_at = moment(int(worker.heard_at.timestamp()) // HEARD_OF_SECONDS * HEARD_OF_SECONDS * 1000)
    return msgspec.structs.replace(worker, heard_at=heard_at, expires_at=heard_at)
