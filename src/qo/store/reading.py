"""The reading half of the contract. No operation here waits for one that writes."""

# pyright: reportReturnType=false
# Because the operations of a contract have a docstring and no body.
from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from typing import Protocol, Unpack

from qo.event import AuditEntry, Feed
from qo.job import Job, State
from qo.values import (
    Blockers,
    GroupStatus,
    JobsPage,
    Lease,
    LinePage,
    Observed,
    ParentStatus,
    Place,
    Record,
    SeriesPoint,
    UserUsage,
    Wanted,
    WorkerInfo,
)


class Reading(Protocol):
    # --- jobs and the line ------------------------------------------------------------------------------------

    async def job(self, job_id: str) -> Job:
        """One job with its position and its history. Raises JobNotFound."""

    async def payload(self, job_id: str) -> tuple[bytes, bytes | None]:
        """A job's payload and checkpoint. Raises JobNotFound."""

    async def jobs(
        self,
        *,
        ids: Sequence[str] | None = None,
        limit: int = 100,
        newest_first: bool = False,
        after: str | None = None,
        **wanted: Unpack[Wanted],
    ) -> JobsPage:
        """Jobs in line in their order, with positions, then all others by submission, each with its history.
        `newest_first`: the others newest first. `ids`: instead, the jobs of these ids as far as they exist, in the
        order given and all on one page.

        `after` is the `next` of the page before. A page ends at its `limit`, or when it has looked at `bounds.page`
        rows. So it may return fewer jobs and still have a `next`, also when no job is left. Page by page, no job is
        left out that stayed where it was, and none comes twice unless it moved or changed its state meanwhile.
        """

    async def line(self, *, limit: int, after: str | None = None, around: str | None = None) -> LinePage:
        """Jobs in line, in order, with only what they compete for: for callers that read thousands. Jobs further back
        cost nothing. Pages are as for `jobs`. With limit 0, only how many jobs there are.

        `around`: instead, this job and up to `limit` neighbours on each side, without a `next`; none if it is not in
        line."""

    async def counts(self) -> dict[State, int]:
        """How many jobs there are in each state; states without a job are left out."""

    async def positions(self, job_ids: Sequence[str]) -> dict[str, Place]:
        """The places of those of the given jobs that are in line, for watchers that ask again and again.

        It counts in indexes, and reads no other job's row except those of jobs that were moved.
        """

    async def parent(self, parent: str) -> ParentStatus:
        """A parent and its jobs. Raises ParentNotFound."""

    async def blockers(self, job_id: str) -> Blockers:
        """What stands between a job and its start. Raises JobNotFound."""

    # --- leases, groups, workers ------------------------------------------------------------------------------

    async def leases(self, *, worker: str | None = None) -> tuple[Lease, ...]:
        """Live leases on jobs, by token; payloads are left empty."""

    async def groups(self, names: Sequence[str] | None = None) -> tuple[GroupStatus, ...]:
        """The named groups as they are, with their slots; one that nobody has named is unlimited and empty. Without
        names: all groups that have a limit, a pause, a closing time or holders, by name and without their slots."""

    async def workers(self) -> tuple[WorkerInfo, ...]:
        """The live workers, by name."""

    # --- figures ----------------------------------------------------------------------------------------------

    async def usage(self, user: str) -> UserUsage: ...

    async def series(self, *, prefix: str = "", since_minute: int = 0) -> tuple[SeriesPoint, ...]:
        """Figures by (name, minute); minute 0 holds what is older than the retention. Names:

        submitted · wait:<priority> (starts, and how long they had waited) · ended:<state> (and how long they ran;
        of a retry, `ended:scheduled`) · rejected:<kind> · acquired:<kind>:<seconds> (slots taken in limited groups
        by jobs and callers, by the wait in whole seconds rounded up to a power of two, at most 65536; 0 for none) ·
        promise:kept and promise:missed (first starts of jobs with a promise, and how long after it they were) · depth
        (`count` is how many jobs are in line since the last step of the minute that changed it; not kept in minute 0)
        """

    async def audit(
        self, *, subject: str | None = None, limit: int = 100, after: int | None = None
    ) -> tuple[AuditEntry, ...]:
        """The newest entries first. `after` is the id of the last entry of the page before."""

    async def observed(self, names: Sequence[str] = (), *, tasks: Sequence[str] = ()) -> Observed:
        """The averages of these names, as far as they exist, and how wrong the estimates of these tasks were."""

    # --- following --------------------------------------------------------------------------------------------

    async def events(
        self,
        after: int | None,
        *,
        kinds: Collection[str] | None = None,
        subjects: Collection[str] | None = None,
        limit: int = 1000,
        timeout_seconds: float = 0,
    ) -> Feed:
        """Events after a cursor, of these kinds and subjects. 0 is before the first event. For a cursor older than the
        kept events the feed has `reset`. The new cursor is behind everything looked at, whether or not it was wanted.

        None returns no events and the cursor behind everything that has happened. With a timeout, the call returns as
        soon as there are events of any kind and subject after the cursor, or when the time is up.
        """

    def signals(self, worker: str, after: int) -> AsyncGenerator[Feed]:
        """SIGNALS after a cursor and as they happen: all that are about leases and tickets of this worker. Signals for
        other workers may be among them.

        The first feed has what has happened already, which may be nothing. Later ones come as soon as there is an
        event, and every few seconds, so that a caller that has nothing left to listen for can stop.
        """

    # --- service data -----------------------------------------------------------------------------------------

    async def records(self, name: str | None = None, *, prefix: str = "") -> Mapping[str, Record]:
        """The record of this name, if there is one; without a name, all whose name begins so, by name."""
