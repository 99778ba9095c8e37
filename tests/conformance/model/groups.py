"""Groups in the reference model: whether they have room, who holds which slot, and their limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qo.event import LIMIT
from qo.policy.groups import is_always_counted, kind_of
from qo.values import Limit, LimitChange, LimitIgnored, Source, Unlimited
from tests.conformance.model.kept import Kept
from tests.conformance.model.rows import Rows
from tests.conformance.model.state import GroupRow, JobRow, LeaseRow, TicketRow, certain

LARGEST_WAIT_BUCKET_SECONDS = 65536


class Groups(Rows):
    # --- room -------------------------------------------------------------------------------------------------

    def group_row(self, group: str) -> GroupRow:
        return self.state.groups.get(group, GroupRow())

    def is_limited(self, group: str) -> bool:
        return self.group_row(group).limit is not None

    def holders(self, group: str) -> list[LeaseRow]:
        return [lease for lease in self.state.leases.values() if group in lease.slots]

    def has_room(self, group: str, spoken_for: int = 0) -> bool:
        row = self.group_row(group)
        if row.paused or row.closed_until is not None:
            return False
        return row.limit is None or len(self.holders(group)) + spoken_for < row.limit

    def first_without_room(self, groups: Iterable[str]) -> str | None:
        return next((group for group in groups if not self.has_room(group)), None)

    def has_room_for(self, group: str, waiting: JobRow | TicketRow, kept: Kept, spoken_for: int = 0) -> bool:
        """Whether there is a slot for it beside the one that is kept for another before it."""
        return self.has_room(group, spoken_for + kept.before(group, certain(waiting.key)))

    def first_without_room_for(self, waiting: JobRow | TicketRow, kept: Kept) -> str | None:
        groups = self.groups_to_park_in(waiting)
        return next((group for group in groups if not self.has_room_for(group, waiting, kept)), None)

    # --- slots ------------------------------------------------------------------------------------------------

    def lowest_free_number(self, group: str) -> int:
        taken = {lease.slots[group] for lease in self.holders(group)}
        return next(number for number in range(len(taken) + 1) if number not in taken)

    def record_holder(self, lease: LeaseRow, group: str) -> None:
        lease.slots[group] = self.lowest_free_number(group)

    def adopt_holders(self, group: str) -> None:
        """Record the live jobs that started in a group which now has its first limit, in token order."""
        for _, lease in sorted(self.state.leases.items()):
            if group in lease.started_in and group not in lease.slots:
                self.record_holder(lease, group)

    def limited_slots(self, lease: LeaseRow) -> dict[str, int]:
        """What a lease tells its holder: the numbers in groups that have a limit now."""
        return {group: number for group, number in lease.slots.items() if self.is_limited(group)}

    def take(
        self,
        holder: str,
        *,
        groups: Sequence[str],
        waited_ms: int,
        is_job: bool,
        worker: str | None,
        claim: str | None,
        lease_ms: int,
        now: int,
    ) -> LeaseRow:
        """A new lease with one slot in each of the groups, and the next token."""
        token = max(self.state.last_token + 1, now * 1000)
        lease = LeaseRow(token, holder, is_job, worker, claim, self.counted(now) + lease_ms)
        self.state.last_token = token
        self.state.leases[token] = lease
        for group in groups:
            self.record_holder(lease, group)
        for group in self.limited_slots(lease):
            self.count(f"acquired:{kind_of(group)}:{wait_bucket(waited_ms)}", waited_ms, now)
        return lease

    # --- limits -----------------------------------------------------------------------------------------------

    def set_limit(self, wanted: Limit, now: int) -> tuple[list[LimitChange], list[LimitIgnored]]:
        """What it changed, if anything, and the complaint where a limit of another value is in force."""
        row = self.state.groups.setdefault(wanted.group, GroupRow())
        before = None
        if row.limit is None:
            self.adopt_holders(wanted.group)
        else:
            before = Limit(group=wanted.group, slots=row.limit, source=certain(row.source))
            kept_out = wanted.source is Source.SUBMIT or wanted.source > before.source
            if kept_out and wanted.slots != row.limit:
                return [], [LimitIgnored(wanted=wanted, in_force=before)]
            if kept_out or wanted == before:
                return [], []
        row.limit, row.source, row.last_job = wanted.slots, wanted.source, self.state.last_number
        self.tell(LIMIT, wanted.group, {"limit": row.limit, "source": int(row.source)}, now)
        return [LimitChange(limit=wanted, before=before)], []

    def set_limits_by(
        self, limits: Sequence[Limit | Unlimited], by: str | None, now: int
    ) -> tuple[list[LimitChange], list[LimitIgnored]]:
        """Several, some perhaps removed. Removals and the changes by operators and the configuration are audited."""
        changed: list[LimitChange] = []
        ignored: list[LimitIgnored] = []
        for limit in limits:
            if isinstance(limit, Unlimited):
                if limit.only is None or self.group_row(limit.group).source is limit.only:
                    self.remove_limit_by(limit.group, by, now)
                continue
            changes, complaints = self.set_limit(limit, now)
            changed += changes
            ignored += complaints
            if changes and limit.source in (Source.OPERATOR, Source.CONFIGURATION):
                before = changes[0].before
                detail = {"limit": limit.slots, "source": int(limit.source), **former_limit(before)}
                self.audit_entry(by, "limit", limit.group, detail, now)
        return changed, ignored

    def drop_limit(self, group: str, now: int) -> Limit | None:
        """What it was, or None where there was no limit."""
        row = self.group_row(group)
        if row.limit is None:
            return None
        removed = Limit(group=group, slots=row.limit, source=certain(row.source))
        row.limit = row.source = None
        self.tell(LIMIT, group, {"limit": None, "source": int(removed.source)}, now)
        return removed

    def remove_limit_by(self, group: str, by: str | None, now: int) -> None:
        removed = self.drop_limit(group, now)
        if removed is not None:
            detail = {"limit": None, "source": int(removed.source), **former_limit(removed)}
            self.audit_entry(by, "limit", group, detail, now)

    def grant_limit(self, group: str, slots: int | None, source: Source, now: int) -> list[LimitIgnored]:
        """A limit that follows from a tier or a task; one of that source that is no longer granted goes."""
        if slots is not None:
            return self.set_limit(Limit(group=group, slots=slots, source=source), now)[1]
        if self.group_row(group).source is source:
            self.drop_limit(group, now)
        return []


def former_limit(limit: Limit | None) -> dict[str, int | None]:
    if limit is None:
        return {"from": None, "from_source": None}
    return {"from": limit.slots, "from_source": int(limit.source)}


def recorded_groups(rows: Groups, job: JobRow) -> list[str]:
    """The groups in which a job takes a number when it starts."""
    groups = rows.groups_of_job(job)
    return [group for group in groups if is_always_counted(group, job.task) or rows.is_limited(group)]


def wait_bucket(wait_ms: int) -> int:
    """Whole seconds rounded up to a power of two; 0 for none."""
    if wait_ms <= 0:
        return 0
    bucket = 1
    while bucket * 1000 < wait_ms and bucket < LARGEST_WAIT_BUCKET_SECONDS:
        bucket *= 2
    return bucket
