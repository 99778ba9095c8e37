"""The reading half of the contract: what every store can tell, without waiting for who writes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from typing import Protocol

from qo.event import AuditEntry, Feed
from qo.job import Job
from qo.store.values import (
    Blockers,
    GroupStatus,
    InLine,
    Lease,
    Mean,
    ParentStatus,
    Place,
    Record,
    SeriesPoint,
    UserUsage,
    WorkerInfo,
)


class Reading(Protocol):
    # --- jobs and the line ------------------------------------------------------------------------------------

    async def job(self, job_id: str) -> Job:
        """One job with its position. Raises JobNotFound."""
        ...

    async def payload(self, job_id: str) -> tuple[bytes, bytes | None]:
        """A job's payload and checkpoint. Raises JobNotFound."""
        ...

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
        """Jobs in line in their order (with positions), then all others by submission; `status` by status or state.
        `newest_first`: the others newest first."""
        ...

    async def line(self, *, limit: int) -> tuple[InLine, ...]:
        """The first `limit` jobs in line, in order, with only what they compete for: for whoever reads thousands.
        Jobs further back cost nothing."""
        ...

    async def positions(self, job_ids: Sequence[str]) -> dict[str, Place]:
        """The places of those of the given jobs that are in line: what their watchers ask for again and again.

        It counts in indexes and reads no other job's row but those of jobs that a move gave their place.
        """
        ...

    async def waiting_count(self) -> int:
        """How many jobs are in line."""
        ...

    async def parent(self, parent: str) -> ParentStatus:
        """A parent and its jobs. Raises ParentNotFound."""
        ...

    async def blockers(self, job_id: str, *, now: int | None = None) -> Blockers:
        """What stands between a job and its start. Raises JobNotFound."""
        ...

    # --- who holds what ---------------------------------------------------------------------------------------

    async def leases(self, *, worker: str | None = None) -> tuple[Lease, ...]:
        """Live leases on jobs, by token; payloads are left empty."""
        ...

    async def group(self, group: str) -> GroupStatus:
        """A group as it is; one nobody has named is unlimited and empty."""
        ...

    async def groups(self) -> tuple[GroupStatus, ...]:
        """All groups that have a limit, a pause, a closing time or holders, by name; without their slots."""
        ...

    async def workers(self, *, now: int | None = None) -> tuple[WorkerInfo, ...]:
        """The live workers, by name."""
        ...

    # --- figures ----------------------------------------------------------------------------------------------

    async def usage(self, user: str, *, now: int | None = None) -> UserUsage: ...

    async def series(self, *, prefix: str = "", since_minute: int = 0) -> tuple[SeriesPoint, ...]:
        """Figures by (name, minute); minute 0 holds what is older than the retention. Names:

        submitted · wait:<priority> (starts, and how long they had waited) · ended:<state> (and how long they ran;
        of a retry, `ended:scheduled`) · rejected:<kind> · acquired:<kind>:<seconds> (slots taken in limited groups
        by jobs and callers, by the wait in whole seconds rounded up to a power of two, at most 65536; 0 for none)
        """
        ...

    async def audit(self, *, subject: str | None = None, limit: int = 100) -> tuple[AuditEntry, ...]:
        """Newest first."""
        ...

    async def averages(self, names: Sequence[str]) -> Mapping[str, Mean]:
        """Those that exist."""
        ...

    async def estimate_errors(self, task: str) -> tuple[float, ...]:
        """Oldest first."""
        ...

    # --- following --------------------------------------------------------------------------------------------

    async def events(
        self,
        after: int,
        *,
        kinds: Collection[str] | None = None,
        subjects: Collection[str] | None = None,
        limit: int = 1000,
    ) -> Feed:
        """Events after a cursor, of these kinds and subjects. 0 is before the first; a cursor older than what is
        kept is told `reset`. The new cursor is behind everything looked at, whether or not it was wanted.
        """
        ...

    async def newest_event(self) -> int:
        """The cursor behind everything that has happened."""
        ...

    async def wait_for_events(self, after: int, *, timeout_seconds: float) -> bool:
        """Return True as soon as there are events after the cursor, False when the time is up."""
        ...

    def signals(self, worker: str, after: int) -> AsyncGenerator[Feed]:
        """SIGNALS after a cursor and as they happen, for as long as one listens: all that are about leases and tickets
        of this worker. Those of others may be among them.

        The first feed tells what has happened already, which may be nothing; later ones come at once when there is
        something to tell, and every few seconds, so that who has nothing left to listen for can leave.
        """
        ...

    # --- service data -----------------------------------------------------------------------------------------

    async def record(self, name: str) -> Record: ...

    async def records(self, prefix: str) -> Mapping[str, Record]: ...
