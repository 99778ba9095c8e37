"""What can be read of jobs in the reference model: a job, its lease, pages of jobs, the line, and places in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Unpack

import msgspec

from qo.job import ENDED, Job, State, moment, status_of
from qo.policy.ordering import MOVED_COUNTED_AT_MOST, place_of, was_moved
from qo.store.paging import Cursor, EndedCursor
from qo.values import InLine, JobsPage, Lease, LinePage, Place, Wanted
from tests.conformance.model.state import JobRow, LeaseRow, certain
from tests.conformance.model.upkeep import Upkeep


class JobReads(Upkeep):
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

    def leases(self, *, worker: str | None = None) -> tuple[Lease, ...]:
        held = [lease for _, lease in sorted(self.state.leases.items()) if lease.is_job]
        return tuple(
            self.as_lease(lease, with_payload=False) for lease in held if worker is None or lease.worker == worker
        )


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


def moment_or_none(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else moment(milliseconds)
