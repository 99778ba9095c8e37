"""The SQLite store: one file, any number of processes on one machine; `memory://` for one process.

Survives: what was answered is on the disk (WAL, synchronous=FULL), so `kill -9` of any process and power loss
lose nothing that was acknowledged. A memory store lives as long as its process.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from qo.errors import NoStoreYet
from qo.event import SIGNALS, AuditEntry, Feed
from qo.job import Job, JobError
from qo.spans import system_ms
from qo.store import check
from qo.store.away import until_there
from qo.store.check_value import check_by, check_group, check_job_error, check_priority
from qo.store.sqlite import places, reading, watching
from qo.store.sqlite.access import Access, location_of
from qo.store.sqlite.acquire import acquire, release
from qo.store.sqlite.advance import advance
from qo.store.sqlite.age import age, fail_unconfirmed, take_reminders
from qo.store.sqlite.cancel import cancel
from qo.store.sqlite.catch_up import catch_up
from qo.store.sqlite.claim import claim
from qo.store.sqlite.confirm import confirm
from qo.store.sqlite.file_trouble import MEMORY, FileTrouble
from qo.store.sqlite.finish import finish
from qo.store.sqlite.forget import forget
from qo.store.sqlite.move import move
from qo.store.sqlite.observe import observe, record_estimate_errors
from qo.store.sqlite.put_record import put_record
from qo.store.sqlite.register import register
from qo.store.sqlite.renew import renew
from qo.store.sqlite.retry import retry
from qo.store.sqlite.revoke import revoke
from qo.store.sqlite.set_limits import remove_limit, set_limits
from qo.store.sqlite.set_paused import set_paused
from qo.store.sqlite.set_priority import set_priority
from qo.store.sqlite.set_tier import set_tier
from qo.store.sqlite.submit import submit
from qo.store.values import (
    Accepted,
    Advance,
    Average,
    Blockers,
    Bounds,
    Claimed,
    Finished,
    Grant,
    GroupStatus,
    Held,
    InLine,
    Lease,
    Limit,
    LimitIgnored,
    Mean,
    Offer,
    Outcome,
    ParentStatus,
    Place,
    Portion,
    Record,
    Refusal,
    Registered,
    Registration,
    Reminder,
    Renewal,
    Renewed,
    SeriesPoint,
    Source,
    Standing,
    Submission,
    Ticket,
    UserUsage,
    WorkerInfo,
)
from qo.threads import in_thread

BETWEEN_LOOKS_SECONDS = 0.01
"""for who waits for some kinds of events only: a busy file changes hundreds of times a second"""
SIGNALS_SECONDS = 5.0
"""how long a listener to signals waits at most without hearing anything"""


class SQLiteStore(Access):
    """`store/base.py` on one SQLite file. Open with `SQLiteStore.open`."""

    kind: Literal["sql", "redis"] = "sql"

    @classmethod
    async def open(
        cls, path: str, *, bounds: Bounds | None = None, create: bool = True, waits: bool = False
    ) -> SQLiteStore:
        """`create` False: raises NoStoreYet where there is no file yet. `waits`: until the file can be used, such as
        when another process ends its write; otherwise raises StoreAway when that takes too long."""
        if not create and path != MEMORY and not await in_thread(os.path.exists, path):
            raise NoStoreYet(location_of(path))
        trouble = FileTrouble(path)

        async def open_file() -> SQLiteStore:
            return await in_thread(cls, path, bounds or Bounds(), trouble)

        try:
            return await (until_there(open_file) if waits else open_file())
        except asyncio.CancelledError:
            trouble.give_up_soon()  # the thread that opens it would be waited for when the process ends
            raise

    # --- a job's way through ----------------------------------------------------------------------------------

    async def submit(self, submissions: Sequence[Submission], *, now: int | None = None) -> list[Accepted | Refusal]:
        for submission in submissions:
            check.check_submission(submission)
        return await self._write(partial(submit, submissions=submissions), now)

    async def claim(
        self, *, worker: str, tasks: Sequence[str], places: int, lease_ms: int, claim_id: str, now: int | None = None
    ) -> Claimed:
        check.check_claim(worker=worker, tasks=tasks, places=places, lease_ms=lease_ms, claim_id=claim_id)
        return await self._write(
            partial(claim, worker=worker, tasks=tasks, places=places, lease_ms=lease_ms, claim_id=claim_id), now
        )

    async def renew(
        self,
        renewals: Sequence[Renewal],
        *,
        worker: str | None = None,
        instance: str = "",
        tickets: Sequence[str] = (),
        now: int | None = None,
    ) -> Renewed:
        check.check_renewals(renewals, worker=worker, instance=instance, tickets=tickets)
        operation = partial(renew, renewals=renewals, worker=worker, instance=instance, tickets=tickets)
        return await self._write(operation, now, urgent=True)

    async def advance(self, advances: Sequence[Advance], *, now: int | None = None) -> list[Held]:
        for item in advances:
            check.check_advance(item)
        return await self._write(partial(advance, advances=advances), now)

    async def finish(self, outcomes: Sequence[Outcome], *, now: int | None = None) -> list[Finished]:
        for outcome in outcomes:
            check.check_outcome(outcome)
        return await self._write(partial(finish, outcomes=outcomes), now)

    # --- changes by people ------------------------------------------------------------------------------------

    async def set_priority(
        self,
        priority: int,
        *,
        job_id: str | None = None,
        parent: str | None = None,
        by: str | None = None,
        now: int | None = None,
    ) -> tuple[Job, ...]:
        check_priority(priority)
        check.check_target(job_id=job_id, parent=parent, by=by)
        return await self._write(partial(set_priority, priority=priority, job_id=job_id, parent=parent, by=by), now)

    async def move(
        self,
        job_id: str,
        *,
        before: str | None = None,
        after: str | None = None,
        by: str | None = None,
        now: int | None = None,
    ) -> Job:
        check.check_move(job_id, before=before, after=after, by=by)
        return await self._write(partial(move, job_id=job_id, before=before, after=after, by=by), now)

    async def cancel(
        self,
        *,
        job_id: str | None = None,
        parent: str | None = None,
        message: str | None = None,
        by: str | None = None,
        now: int | None = None,
    ) -> tuple[Job, ...]:
        check.check_cancel(job_id=job_id, parent=parent, message=message, by=by)
        return await self._write(partial(cancel, job_id=job_id, parent=parent, message=message, by=by), now)

    async def retry(self, job_id: str, *, by: str | None = None, now: int | None = None) -> Job:
        check.check_job(job_id, by=by)
        return await self._write(partial(retry, job_id=job_id, by=by), now)

    async def confirm(self, job_id: str, *, by: str | None = None, now: int | None = None) -> Job:
        check.check_job(job_id, by=by)
        return await self._write(partial(confirm, job_id=job_id, by=by), now)

    async def set_tier(
        self, user: str, standing: Standing, *, by: str | None = None, now: int | None = None
    ) -> tuple[LimitIgnored, ...]:
        check.check_tier(user, standing, by=by)
        return await self._write(partial(set_tier, user=user, standing=standing, by=by), now)

    # --- limits -----------------------------------------------------------------------------------------------

    async def set_limits(
        self,
        limits: Sequence[Limit],
        *,
        exactly: Source | None = None,
        by: str | None = None,
        now: int | None = None,
    ) -> tuple[LimitIgnored, ...]:
        check.check_limits(limits, exactly=exactly)
        check_by(by)
        return await self._write(partial(set_limits, limits=limits, exactly=exactly, by=by), now)

    async def remove_limit(
        self, group: str, *, only: Source | None = None, by: str | None = None, now: int | None = None
    ) -> None:
        check.check_removal(group, only=only, by=by)
        await self._write(partial(remove_limit, group=group, only=only, by=by), now)

    async def set_paused(self, group: str, paused: bool, *, by: str | None = None, now: int | None = None) -> None:
        check_group(group)
        check_by(by)
        await self._write(partial(set_paused, name=group, paused=paused, by=by), now)

    async def revoke(
        self, group: str, slot_id: int, *, force: bool = False, by: str | None = None, now: int | None = None
    ) -> str:
        check.check_revoke(group, slot_id, by=by)
        return await self._write(partial(revoke, group=group, slot_id=slot_id, force=force, by=by), now)

    # --- slots without a job ----------------------------------------------------------------------------------

    async def acquire(self, tickets: Sequence[Ticket], *, now: int | None = None) -> list[Grant]:
        for ticket in tickets:
            check.check_ticket(ticket)
        return await self._write(partial(acquire, tickets=tickets), now)

    async def release(self, holders: Sequence[tuple[str, str | None]], *, now: int | None = None) -> list[bool]:
        check.check_release(holders)
        return await self._write(partial(release, holders=holders), now)

    # --- workers ----------------------------------------------------------------------------------------------

    async def register(self, registration: Registration, *, now: int | None = None) -> Registered:
        check.check_registration(registration)
        return await self._write(partial(register, registration=registration), now)

    async def workers(self, *, now: int | None = None) -> tuple[WorkerInfo, ...]:
        return await self._read(partial(watching.workers, now=system_ms() if now is None else now))

    # --- upkeep -----------------------------------------------------------------------------------------------

    async def catch_up(self, *, now: int | None = None) -> Portion:
        return await self._write(catch_up, now)

    async def age(self, *, period_ms: int, now: int | None = None) -> Portion:
        check.check_upkeep(period_ms=period_ms)
        return await self._write(partial(age, period_ms=period_ms), now)

    async def fail_unconfirmed(self, *, after_ms: int, error: JobError, now: int | None = None) -> Portion:
        check.check_upkeep(after_ms=after_ms)
        check_job_error(error)
        return await self._write(partial(fail_unconfirmed, after_ms=after_ms, error=error), now)

    async def take_reminders(self, *, ages_ms: Sequence[int], now: int | None = None) -> tuple[Reminder, ...]:
        check.check_reminder_ages(ages_ms)
        return await self._write(partial(take_reminders, ages_ms=ages_ms), now)

    async def forget(
        self, *, keep_ms: int, keep_jobs: int, keep_events: int, keep_audit: int, now: int | None = None
    ) -> Portion:
        check.check_upkeep(keep_ms=keep_ms, keep_jobs=keep_jobs, keep_events=keep_events, keep_audit=keep_audit)
        operation = partial(
            forget, keep_ms=keep_ms, keep_jobs=keep_jobs, keep_events=keep_events, keep_audit=keep_audit
        )
        return await self._write(operation, now)

    # --- reading ----------------------------------------------------------------------------------------------

    async def job(self, job_id: str) -> Job:
        return await self._read(partial(reading.job, job_id=job_id))

    async def payload(self, job_id: str) -> tuple[bytes, bytes | None]:
        return await self._read(partial(reading.payload, job_id=job_id))

    async def jobs(
        self,
        *,
        status: str | None = None,
        user: str | None = None,
        task: str | None = None,
        parent: str | None = None,
        limit: int = 100,
        newest_first: bool = False,
    ) -> tuple[Job, ...]:
        check.check_page(limit)
        return await self._read(
            partial(
                reading.jobs, status=status, user=user, task=task, parent=parent, limit=limit, newest_first=newest_first
            )
        )

    async def line(self, *, limit: int) -> tuple[InLine, ...]:
        check.check_page(limit)
        return await self._read(partial(reading.line, limit=limit))

    async def positions(self, job_ids: Sequence[str]) -> dict[str, Place]:
        return await self._read(partial(places.positions, job_ids=job_ids))

    async def waiting_count(self) -> int:
        return await self._read(reading.waiting_count)

    async def parent(self, parent: str) -> ParentStatus:
        return await self._read(partial(reading.parent, name=parent))

    async def blockers(self, job_id: str, *, now: int | None = None) -> Blockers:
        return await self._read(partial(watching.blockers, job_id=job_id, now=system_ms() if now is None else now))

    async def leases(self, *, worker: str | None = None) -> tuple[Lease, ...]:
        return await self._read(partial(watching.leases, worker=worker))

    async def group(self, group: str) -> GroupStatus:
        return await self._read(partial(watching.group, name=group))

    async def groups(self) -> tuple[GroupStatus, ...]:
        return await self._read(watching.groups)

    async def usage(self, user: str, *, now: int | None = None) -> UserUsage:
        return await self._read(partial(watching.usage, user=user, now=system_ms() if now is None else now))

    async def series(self, *, prefix: str = "", since_minute: int = 0) -> tuple[SeriesPoint, ...]:
        return await self._read(partial(reading.series, prefix=prefix, since_minute=since_minute))

    async def audit(self, *, subject: str | None = None, limit: int = 100) -> tuple[AuditEntry, ...]:
        check.check_page(limit)
        return await self._read(partial(reading.audit, subject=subject, limit=limit))

    # --- figures for estimates --------------------------------------------------------------------------------

    async def observe(self, observations: Sequence[tuple[Average, float]]) -> None:
        check.check_observations(observations)
        await self._write(partial(observe, observations=observations))

    async def averages(self, names: Sequence[str]) -> Mapping[str, Mean]:
        return await self._read(partial(reading.averages, wanted=names))

    async def record_estimate_errors(self, task: str, ratios: Sequence[float], *, keep: int = 500) -> None:
        check.check_estimate_errors(task, ratios, keep=keep)
        await self._write(partial(record_estimate_errors, task=task, ratios=ratios, keep=keep))

    async def estimate_errors(self, task: str) -> tuple[float, ...]:
        return await self._read(partial(reading.estimate_errors, task=task))

    # --- following --------------------------------------------------------------------------------------------

    async def events(
        self,
        after: int,
        *,
        kinds: Collection[str] | None = None,
        subjects: Collection[str] | None = None,
        limit: int = 1000,
    ) -> Feed:
        check.check_cursor(after)
        check.check_page(limit)
        return await self._read(partial(reading.events, after=after, kinds=kinds, subjects=subjects, limit=limit))

    async def newest_event(self) -> int:
        return await self._read(reading.newest_event)

    async def wait_for_events(self, after: int, *, timeout_seconds: float) -> bool:
        return await self._wait_for_events(after, kinds=None, timeout_seconds=timeout_seconds)

    async def _wait_for_events(self, after: int, *, kinds: Collection[str] | None, timeout_seconds: float) -> bool:
        looked_at = after

        async def has_events() -> bool:
            nonlocal looked_at
            found, looked_at = await self._look(partial(reading.has_events, after=looked_at, kinds=kinds))
            if kinds is not None and not found:
                await asyncio.sleep(BETWEEN_LOOKS_SECONDS)
            return found

        return await self._changes.wait_until(has_events, timeout_seconds=timeout_seconds)

    async def signals(self, worker: str, after: int) -> AsyncGenerator[Feed]:
        while True:
            feed = await self.events(after, kinds=SIGNALS)
            yield feed
            after = feed.cursor
            await self._wait_for_events(after, kinds=SIGNALS, timeout_seconds=SIGNALS_SECONDS)

    async def wait_for_work(
        self,
        *,
        worker: str,
        tasks: Sequence[str],
        timeout_seconds: float,
        offer: Offer | None = None,
        filled: Callable[[Claimed], None] | None = None,
    ) -> Claimed:
        async def is_claimable() -> bool:
            return await self._look(partial(watching.is_claimable, tasks=tasks, now=system_ms()))

        return Claimed(more=await self._changes.wait_until(is_claimable, timeout_seconds=timeout_seconds))

    # --- service data -----------------------------------------------------------------------------------------

    async def record(self, name: str) -> Record:
        return await self._read(partial(reading.record, name=name))

    async def put_record(self, name: str, value: Any, *, version: int) -> bool:
        check.check_record(name, value, version=version)
        return await self._write(partial(put_record, name=name, value=value, version=version))

    async def records(self, prefix: str) -> Mapping[str, Record]:
        return await self._read(partial(reading.records, prefix=prefix))
