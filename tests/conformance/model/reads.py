"""What can be read of the reference model, and the snapshot that a store's whole state is compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack

import msgspec

from qo.errors import ParentNotFound
from qo.event import AuditEntry, Feed
from qo.job import ENDED, HELD, Job, State, moment, status_of
from qo.policy.ordering import MOVED_COUNTED_AT_MOST, place_of, priority_of, was_moved
from qo.store.paging import Cursor, EndedCursor
from qo.values import (
    Blockers,
    GroupStatus,
    InLine,
    JobsPage,
    Lease,
    LinePage,
    Observed,
    ParentStatus,
    Place,
    Record,
    SeriesPoint,
    SlotInfo,
    Suspicion,
    UserUsage,
    Wanted,
    WorkerInfo,
)
from tests.conformance.model.admission import DAY_MS
from tests.conformance.model.kept import Kept, name_of
from tests.conformance.model.state import JobRow, LeaseRow, WorkerRow, certain
from tests.conformance.model.turns import kept_now
from tests.conformance.model.upkeep import Upkeep


def comes_after(place: Cursor, cursor: Cursor, *, newest_first: bool) -> bool:
    if place.in_line != cursor.in_line or cursor.last is None:
        return cursor.in_line or not place.in_line
    if newest_first and not place.in_line:
        return certain(place.last) < cursor.last
    return certain(place.last) > cursor.last


def is_wanted(job: Job, wanted: Wanted) -> bool:
    fields = ("user", "task", "parent", "project", "tier", "priority")
    return (
        wanted.get("status") in (None, job.status, job.state)
        and all(wanted.get(field) in (None, getattr(job, field)) for field in fields)
        and job.id.startswith(wanted.get("id_prefix") or "")
    )


class Reads(Upkeep):
    def job(self, job_id: str) -> Job:
        return self.as_job(self.row(job_id), with_history=True)

    def as_job(self, row: JobRow, *, with_history: bool = False) -> Job:
        return Job(
            id=row.id,
            task=row.task,
            state=row.state,
            status=status_of(row.state, row.stage),
            priority=row.priority,
            groups=self.groups_of_job(row),
            submitted_at=moment(row.submitted_at),
            attempts=row.attempts,
            max_attempts=row.max_attempts,
            stage=row.stage,
            tier=row.tier,
            user=row.user,
            project=row.project,
            parent=row.parent,
            phase=row.phase,
            unique=row.unique,
            key=row.key if row.state is State.QUEUED else None,
            position=self.rank(row) if row.state is State.QUEUED else None,
            position_original=row.position_original,
            displaced=row.displaced,
            iterations=row.iterations,
            iterations_batch=row.iterations_batch,
            iterations_granted=row.iterations_granted,
            iterations_max=row.iterations_max,
            progress=row.progress,
            result=None if row.result is None else msgspec.json.decode(row.result),
            error=row.error,
            message=row.message,
            worker=row.worker,
            token=None if row.token is None else str(row.token),
            timeout_seconds=None if row.timeout_ms is None else row.timeout_ms / 1000,
            cancel_wanted=row.cancel_wanted,
            run_at=moment_or_none(row.run_at),
            deferred=row.deferred,
            joined_at=moment_or_none(row.joined_at),
            started_at=moment_or_none(row.started_at),
            confirmation_required_at=moment_or_none(row.confirmation_required_at),
            finished_at=moment_or_none(row.finished_at),
            trace=row.trace,
            history=row.history if with_history else None,
        )

    def counts(self) -> dict[State, int]:
        return dict(Counter(row.state for row in self.state.jobs.values()))

    def as_lease(self, lease: LeaseRow, *, with_payload: bool = True) -> Lease:
        row = self.state.jobs[lease.holder]
        return Lease.of(
            self.as_job(row),
            token=str(lease.token),
            expires_at_ms=self.ends_at(lease),
            slots=self.limited_slots(lease),
            payload=row.payload if with_payload else b"",
            checkpoint=row.checkpoint if with_payload else None,
            suspicion=row.suspicion,
        )

    def payload(self, job_id: str) -> tuple[bytes, bytes | None]:
        row = self.row(job_id)
        return row.payload, row.checkpoint

    def jobs(
        self,
        *,
        ids: Sequence[str] | None = None,
        limit: int = 100,
        newest_first: bool = False,
        after: str | None = None,
        **wanted: Unpack[Wanted],
    ) -> JobsPage:
        if ids is not None:
            known = (job_id for job_id in dict.fromkeys(ids) if job_id in self.state.jobs)
            return JobsPage(jobs=tuple(map(self.job, known)))
        if wanted.get("ended"):
            return self.ended_jobs(limit, newest_first, EndedCursor.read(after), wanted)
        others = [row for row in self.state.jobs.values() if row.state is not State.QUEUED]
        others.sort(key=lambda row: row.number, reverse=newest_first)
        found: list[Job] = []
        looked_at = 0
        cursor = Cursor.read(after)
        for row in (*self.in_line(), *others):
            place = Cursor(row.state is State.QUEUED, row.key if row.state is State.QUEUED else row.number)
            if not comes_after(place, cursor, newest_first=newest_first):
                continue
            looked_at += 1
            if is_wanted(job := self.as_job(row, with_history=True), wanted):
                found.append(job)
            if len(found) == limit or looked_at == self.bounds.page:
                return JobsPage(jobs=tuple(found), next=place.text())
        return JobsPage(jobs=tuple(found))

    def ended_jobs(self, limit: int, newest_first: bool, cursor: EndedCursor | None, wanted: Wanted) -> JobsPage:
        ended = [row for row in self.state.jobs.values() if row.state in ENDED]
        places = {EndedCursor(certain(row.finished_at), row.number): row for row in ended}
        found: list[Job] = []
        looked_at = 0
        for place in sorted(places, reverse=newest_first):
            if cursor is not None and (place >= cursor if newest_first else place <= cursor):
                continue
            looked_at += 1
            if is_wanted(job := self.as_job(places[place], with_history=True), wanted):
                found.append(job)
            if len(found) == limit or looked_at == self.bounds.page:
                return JobsPage(jobs=tuple(found), next=place.text())
        return JobsPage(jobs=tuple(found))

    def line(self, *, limit: int, after: str | None = None, around: str | None = None) -> LinePage:
        if around is not None:
            line, row = self.in_line(), self.row(around)
            first = max(0, line.index(row) - limit) if row in line else len(line)
            neighbours = line[first : line.index(row) + limit + 1] if row in line else []
            return self.line_page(neighbours, following=None)
        cursor, at_most = Cursor.read(after), min(limit, self.bounds.page)
        behind = [row for row in self.in_line() if comes_after(Cursor(True, row.key), cursor, newest_first=False)]
        page = behind[:at_most]
        following = Cursor(True, page[-1].key).text() if page and len(page) == at_most else None
        return self.line_page(page, following=following)

    def line_page(self, rows: Sequence[JobRow], *, following: str | None) -> LinePage:
        return LinePage(
            jobs=tuple(self.as_in_line(row) for row in rows),
            queued=len(self.in_line()),
            next_sequence=self.state.next_sequence,
            task_groups={name: options.groups for name, options in self.state.tasks.items() if options.groups},
            next=following,
        )

    def as_in_line(self, row: JobRow) -> InLine:
        return InLine(
            id=row.id,
            task=row.task,
            key=certain(row.key),
            undisturbed_key=row.undisturbed_key,
            tier=row.tier,
            groups=self.groups_of_job(row),
            passed=row.passed,
            turn=row.turn,
            suspicion=row.suspicion,
        )

    def positions(self, job_ids: Sequence[str]) -> dict[str, Place]:
        return {row.id: self.place(row) for row in self.in_line() if row.id in job_ids}

    def place(self, row: JobRow) -> Place:
        position, original, placed_ahead = self.rank(row), certain(row.position_original), None
        moved = [job for job in self.state.jobs.values() if job.key is not None and was_moved(place_of(job.key))]
        if position > original and len(moved) <= MOVED_COUNTED_AT_MOST:
            ahead = [other for other in self.in_line() if certain(other.key) < certain(row.key)]
            placed_ahead = sum(other.sequence > row.sequence for other in ahead)
        return Place(position=position, original=original, placed_ahead=placed_ahead, displaced=row.displaced)

    def parent(self, parent: str) -> ParentStatus:
        if parent not in self.state.parents:
            raise ParentNotFound(parent)
        jobs = tuple(self.as_job(row) for row in self.jobs_of_parent(parent))
        return ParentStatus(parent=parent, priority=self.state.parents[parent], jobs=jobs)

    def blockers(self, job_id: str, *, now: int) -> Blockers:
        row = self.row(job_id)
        groups, kept = self.groups_of_job(row), kept_now(self, now)
        blocking = [group for group in groups if not self.has_room(group)]
        kept_for: dict[str, tuple[str, ...]] = {}
        turn: tuple[str, ...] = ()
        if row.state is State.QUEUED:
            blocking = [group for group in groups if not self.has_room_for(group, row, kept)]
            turn = tuple(group for group in groups if group in kept.groups_of(row))
            for group in blocking:
                keeper = kept.first(group)
                if keeper is None or not self.has_room(group):
                    continue
                lacks = [one for one in self.all_groups(keeper) if not self.has_room(one)]
                kept_for[name_of(keeper)] = tuple(lacks)
        waits_for = certain(row.phase) - 1 if row.state is State.WAITING and row.due_at is None else None
        before = self.phase(certain(row.parent), waits_for) if waits_for is not None else None
        heard_last = self.heard_last(row)
        return Blockers(
            job=self.as_job(row),
            ahead=self.rank(row) - 1 if row.state is State.QUEUED else None,
            groups=tuple(self.group(group, kept) for group in blocking),
            kept_for=kept_for,
            turn=turn,
            waits_for=waits_for,
            waits_for_state=before.state if before is not None else None,
            has_worker=any(w.expires_at > now and w.handles(row.task) for w in self.state.workers.values()),
            worker=None if heard_last is None else heard_last.name,
            heard_at=None if heard_last is None else moment(heard_last.heard_at),
            start_by=moment_or_none(self.latest_start(row)),
            suspicion=row.suspicion if row.state is State.QUEUED else Suspicion.NONE,
        )

    def phase(self, parent: str, phase: int) -> JobRow | None:
        """The newest of them: those before it, if any, were cancelled."""
        found = [job for job in self.jobs_of_parent(parent) if job.phase == phase]
        return max(found, key=lambda job: job.number, default=None)

    def leases(self, *, worker: str | None = None) -> tuple[Lease, ...]:
        held = [lease for _, lease in sorted(self.state.leases.items()) if lease.is_job]
        return tuple(
            self.as_lease(lease, with_payload=False) for lease in held if worker is None or lease.worker == worker
        )

    def group(self, group: str, kept: Kept) -> GroupStatus:
        row, keeper = self.group_row(group), kept.first(group)
        slots = sorted((lease.slots[group], lease) for lease in self.holders(group))
        return GroupStatus(
            group=group,
            limit=row.limit,
            source=row.source,
            paused=row.paused,
            closed_until=None if row.closed_until is None else moment(row.closed_until + self.state.fallen_ms),
            active=len(slots),
            waiting=sum(self.parked(one) == group for one in self.state.in_lanes()),
            kept=None if keeper is None else name_of(keeper),
            slots=tuple(
                SlotInfo(
                    slot_id=number,
                    holder=lease.holder,
                    worker_id=lease.worker,
                    expires_at=moment(self.ends_at(lease)),
                    token=str(lease.token),
                )
                for number, lease in slots
            ),
        )

    def groups(self, names: Sequence[str] | None = None, *, now: int) -> tuple[GroupStatus, ...]:
        kept = kept_now(self, now)
        if names is not None:
            return tuple(self.group(name, kept) for name in names)
        named = {name for name, row in self.state.groups.items() if row.is_set()}
        held = {group for lease in self.state.leases.values() for group in lease.slots}
        return tuple(msgspec.structs.replace(self.group(name, kept), slots=()) for name in sorted(named | held))

    def usage(self, user: str, *, now: int) -> UserUsage:
        row = self.state.users.get(user)
        return UserUsage(
            user=user,
            tier=row.standing.tier if row else None,
            daily_quota=row.standing.daily_quota if row else None,
            used_today=self.used(user, now // DAY_MS),
            deferred=len(self.deferred_jobs(user)),
            today=now // DAY_MS,
        )

    def workers(self, *, now: int) -> tuple[WorkerInfo, ...]:
        return tuple(self.worker_info(row) for _, row in sorted(self.state.workers.items()) if row.expires_at > now)

    def worker_info(self, row: WorkerRow) -> WorkerInfo:
        return WorkerInfo(
            name=row.name,
            instance=row.instance,
            tasks=tuple(options.name for options in row.tasks),
            capacity=row.capacity,
            running=self.running(row.name),
            registered_at=moment(row.registered_at),
            heard_at=moment(row.heard_at),
            expires_at=moment(row.expires_at),
            host=row.host,
            pid=row.pid,
        )

    def heard_last(self, job: JobRow) -> WorkerRow | None:
        """The worker that holds the job, else the one heard of last of those that handle its task."""
        workers = self.state.workers.values()
        if job.state in HELD:
            return self.state.workers.get(certain(job.worker))
        return min((w for w in workers if w.handles(job.task)), key=lambda w: (-w.heard_at, w.name), default=None)

    def series(self, *, prefix: str = "", since_minute: int = 0) -> tuple[SeriesPoint, ...]:
        return tuple(
            SeriesPoint(name=name, minute=minute, count=count, total_ms=total_ms)
            for (name, minute), (count, total_ms) in sorted(self.state.series.items())
            if name.startswith(prefix) and minute >= since_minute
        )

    def audit(
        self, *, subject: str | None = None, limit: int = 100, after: int | None = None
    ) -> tuple[AuditEntry, ...]:
        newest_first = [entry for entry in reversed(self.state.audit) if after is None or entry.id < after]
        return tuple(entry for entry in newest_first if subject is None or entry.subject == subject)[:limit]

    def observed(self, names: Sequence[str] = (), *, tasks: Sequence[str] = ()) -> Observed:
        return Observed(
            averages={name: self.state.averages[name] for name in names if name in self.state.averages},
            errors={task: self.state.estimate_errors.get(task, ()) for task in tasks},
        )

    def events(
        self,
        after: int | None,
        *,
        kinds: Collection[str] | None = None,
        subjects: Collection[str] | None = None,
        limit: int = 1000,
    ) -> Feed:
        if after is None:
            return Feed((), self.state.last_event)
        oldest_kept = self.state.events[0].id if self.state.events else 1
        if after < oldest_kept - 1:
            return Feed((), self.state.last_event, reset=True)
        wanted = [
            event
            for event in self.state.events
            if event.id > after
            and (kinds is None or event.kind in kinds)
            and (subjects is None or event.subject in subjects)
        ]
        events = tuple(wanted[:limit])
        return Feed(events, events[-1].id if len(events) == limit else self.state.last_event)

    def might_claim(self, worker: str, tasks: Sequence[str], suspects: int | None, *, now: int) -> bool:
        """Whether a claim would find something, or would first have to deal with what has come due."""
        jobs, leases = self.state.jobs.values(), self.state.leases.values()
        is_due = any(job.task in tasks and self.is_due(job, now) for job in jobs)
        is_over = any(lease.expires_at <= self.counted(now) for lease in leases)
        is_overdue = any(self.is_overdue(job, now) for job in jobs)
        found = self.search_whole_line(tasks, 1, self.taker(worker, suspects, now))
        return is_due or is_over or is_overdue or bool(found)

    def records(self, name: str | None = None, *, prefix: str = "") -> Mapping[str, Record]:
        return {
            known: record
            for known, record in sorted(self.state.records.items())
            if (known.startswith(prefix) if name is None else known == name)
        }

    # --- everything -------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        state = self.state
        return {
            "jobs": {
                row.id: {
                    "job": self.as_job(row, with_history=True),
                    "key": row.key,
                    "parked": self.parked(row),
                    "due_at": row.due_at,
                    "steady_at": row.steady_at,
                    "start_by": row.start_by,
                    "steady_start_by": row.steady_start_by,
                    "overdue_message": row.overdue_message,
                    "quota_day": row.quota_day,
                    "deferred": row.deferred,
                    "boost": row.boost,
                    "iterations_batch": row.iterations_batch,
                    "aged_at": row.aged_at,
                    "reminded": row.reminded,
                    "ended_token": None if row.ended_token is None else str(row.ended_token),
                    "payload": row.payload,
                    "checkpoint": row.checkpoint,
                    "contact": row.contact,
                    "suspicion": int(row.suspicion),
                    "number": row.number,
                    "passed": row.passed,
                    "turn": row.turn,
                }
                for row in state.jobs.values()
            },
            "groups": {
                name: {
                    "limit": row.limit,
                    "source": None if row.source is None else int(row.source),
                    "paused": row.paused,
                    "closed_until": row.closed_until,
                }
                for name, row in state.groups.items()
                if row.is_set()
            },
            "slots": self.slots_by_group(),
            "leases": {
                str(token): {
                    "holder": lease.holder,
                    "job": lease.is_job,
                    "worker": lease.worker,
                    "claim": lease.claim,
                    "expires_at": lease.expires_at,
                }
                for token, lease in state.leases.items()
            },
            "tickets": {
                ticket.holder: {
                    "key": ticket.key,
                    "groups": ticket.groups,
                    "parked": self.parked(ticket),
                    "expires_at": ticket.expires_at,
                    "lease_ms": ticket.lease_ms,
                    "wait_ms": ticket.wait_ms,
                    "passed": ticket.passed,
                    "turn": ticket.turn,
                }
                for ticket in state.tickets.values()
            },
            "open": self.open_groups(),
            "states": self.counts(),
            "counts": dict(Counter(priority_of(certain(row.key)) for row in self.in_line())),
            "users": {name: (row.standing, row.pinned) for name, row in state.users.items()},
            "quota": dict(state.quota),
            "parents": dict(state.parents),
            "tasks": {
                task: (options.groups, options.max_attempts)
                for task, options in state.tasks.items()
                if options.groups or options.max_attempts
            },
            "workers": {
                name: {
                    "instance": row.instance,
                    "tasks": tuple(options.name for options in row.tasks),
                    "capacity": row.capacity,
                    "heard_at": row.heard_at,
                    "expires_at": row.expires_at,
                }
                for name, row in state.workers.items()
            },
            "events": list(state.events),
            "audit": list(state.audit),
            "series": dict(state.series),
            "averages": dict(state.averages),
            "clock": {
                "noted_at": state.noted_at,
                "lease_ms": state.lease_ms,
                "turn_after": state.turn_after,
                "uncounted_ms": state.uncounted_ms,
                "fallen_ms": state.fallen_ms,
                "renewed_since_gap": state.renewed_since_gap,
                "token_at_gap": state.token_at_gap,
                "next_sequence": state.next_sequence,
                "last_token": state.last_token,
            },
        }

    def slots_by_group(self) -> dict[str, dict[int, str]]:
        by_group: dict[str, dict[int, str]] = {}
        for token, lease in self.state.leases.items():
            for group, number in lease.slots.items():
                by_group.setdefault(group, {})[number] = str(token)
        return by_group

    def open_groups(self) -> list[tuple[str, int, str, int]]:
        """The groups that have room and something parked, by task ("" for callers) and suspicion, with the first key
        there."""
        heads: dict[tuple[str, int, str], int] = {}
        for waiting in self.state.in_lanes():
            task, suspicion = (waiting.task, int(waiting.suspicion)) if isinstance(waiting, JobRow) else ("", 0)
            group = self.parked(waiting)
            if group is not None and self.has_room(group):
                key = certain(waiting.key)
                heads[task, suspicion, group] = min(heads.get((task, suspicion, group), key), key)
        return sorted((task, suspicion, group, key) for (task, suspicion, group), key in heads.items())


def moment_or_none(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else moment(milliseconds)
