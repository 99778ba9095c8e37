"""What people change: a job's priority, place and end, and a user's tier."""

from __future__ import annotations

from typing import overload

from qo.errors import AuditEntryNotFound
from qo.job import Job
from qo.policy.admission import standing_of
from qo.policy.checks import check_by, check_number
from qo.policy.ordering import parse_priority
from qo.queue.limiting import Limiting
from qo.queue.reading import Reading
from qo.queue.undoing import undo


class Changing(Reading, Limiting):
    """The part of `Queue` that changes jobs which were submitted before."""

    @overload
    async def set_priority(self, job_id: str, priority: int | str, *, by: str | None = None) -> Job: ...
    @overload
    async def set_priority(
        self, job_id: None = None, *, priority: int | str, parent: str, by: str | None = None
    ) -> list[Job]: ...
    async def set_priority(
        self,
        job_id: str | None = None,
        priority: int | str = "normal",
        *,
        parent: str | None = None,
        by: str | None = None,
    ) -> Job | list[Job]:
        """Change the priority of a waiting job, or of a parent and all its unfinished phases. The place is kept."""
        changed = await self.store_here.set_priority(parse_priority(priority), job_id=job_id, parent=parent, by=by)
        presented = await self._all_presented(changed)
        return presented if parent is not None else presented[0]

    async def move(
        self, job_id: str, *, before: str | None = None, after: str | None = None, by: str | None = None
    ) -> Job:
        """Put a job in line directly before or after another one, and give it that job's priority."""
        return await self._presented(await self.store_here.move(job_id, before=before, after=after, by=by))

    @overload
    async def cancel(self, job_id: str, *, message: str | None = None, by: str | None = None) -> Job: ...
    @overload
    async def cancel(
        self, job_id: None = None, *, parent: str, message: str | None = None, by: str | None = None
    ) -> list[Job]: ...
    async def cancel(
        self,
        job_id: str | None = None,
        *,
        parent: str | None = None,
        message: str | None = None,
        by: str | None = None,
    ) -> Job | list[Job]:
        """Cancel a job, or all unfinished ones of a parent: at once when it waits, within a second when it runs."""
        cancelled = await self.store_here.cancel(job_id=job_id, parent=parent, message=message, by=by)
        presented = await self._all_presented(cancelled)
        return presented if parent is not None else presented[0]

    async def retry(self, job_id: str, *, by: str | None = None) -> Job:
        """Put a failed job in line again, with all its attempts."""
        return await self._presented(await self.store_here.retry(job_id, by=by))

    async def confirm(self, job_id: str, *, by: str | None = None) -> Job:
        """Let a job that asked for confirmation go on for another batch of iterations."""
        return await self._presented(await self.store_here.confirm(job_id, by=by))

    async def undo(self, audit_id: int, *, by: str | None = None) -> None:
        """Put back what an entry of the audit trail has changed, within 10 seconds and unless it was changed again
        since: a priority, a move, a limit, a pause or a resume. Raises `AuditEntryNotFound` or `UndoRefused`."""
        check_number("audit_id", audit_id, 0, 2**53)
        check_by(by)
        entries = await self.store_here.audit(limit=1, after=audit_id + 1)
        if not entries or entries[0].id != audit_id:
            raise AuditEntryNotFound(audit_id)
        await undo(self.store_here, entries[0], now=self.system.now(), by=by)

    async def set_tier(self, user: str, tier: str, by: str | None = None) -> None:
        """Give a user a tier. It applies at once to their jobs that wait or are deferred."""
        standing = standing_of(tier, self.settings.tiers)
        self.warn_of_ignored(await self.store_here.set_tier(user, standing, by=by))
