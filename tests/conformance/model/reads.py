"""What else can be read of the reference model: parents, blockers, groups, users, workers, figures, events, records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from qo.errors import ParentNotFound
from qo.event import AuditEntry, Feed
from qo.job import HELD, State, moment
from qo.values import (
    Blockers,
    GroupStatus,
    Observed,
    ParentStatus,
    Record,
    SeriesPoint,
    SlotInfo,
    Suspicion,
    UserUsage,
    WorkerInfo,
)
from tests.conformance.model.admission import DAY_MS
from tests.conformance.model.job_reads import JobReads, moment_or_none
from tests.conformance.model.kept import Kept, name_of
from tests.conformance.model.state import JobRow, WorkerRow, certain
from tests.conformance.model.turns import kept_now


class Reads(JobReads):
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
