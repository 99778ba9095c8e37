"""Changes by people in the reference model: priorities, moves, cancels, tiers, limits, pauses, revoked slots."""

from __future__ import annotations

from collections.abc import Sequence

from qo.errors import InvalidTransition, LeaseAlive, MoveRefused, ParentNotFound, SlotNotFound
from qo.event import CANCEL_WANTED, MOVED, PAUSED, PRIORITY, RESUMED, TIER, AuditEntry
from qo.job import ENDED, HELD, Job, State
from qo.policy.audit import changed_since
from qo.policy.lifecycle import Change, refusal
from qo.policy.ordering import CELL, SPREAD_AT_MOST, order_key, place_between, place_of, priority_of, spread_places
from qo.policy.suspects import suspicion_of
from qo.values import Limit, LimitIgnored, Source, Standing, Suspicion, Unlimited
from tests.conformance.model.admission import DAY_MS
from tests.conformance.model.state import GroupRow, JobRow, certain
from tests.conformance.model.step import Steps, step
from tests.conformance.model.turns import end_turn


class People(Steps):
    # --- changes by people ----------------------------------------------------------------------------------------

    def unfinished_of(self, parent: str) -> list[JobRow]:
        if parent not in self.state.parents:
            raise ParentNotFound(parent)
        return [job for job in self.jobs_of_parent(parent) if job.state not in ENDED]

    def undone(self, subject: str, entry_id: int, *, key: int | None = None) -> AuditEntry:
        """The entry that a change undoes, if it is the newest about its subject and, after a move, the key is its."""
        about = [entry for entry in self.state.audit if entry.subject == subject]
        if not about or about[-1].id != entry_id:
            raise changed_since(subject, entry_id)
        if about[-1].action == "move" and about[-1].detail["key"] != str(key):
            raise changed_since(subject, entry_id)
        return about[-1]

    @step
    def set_priority(
        self,
        priority: int,
        *,
        job_id: str | None = None,
        parent: str | None = None,
        by: str | None = None,
        undoes: int | None = None,
        now: int,
    ) -> tuple[Job, ...]:
        if parent is not None:
            jobs = self.unfinished_of(parent)
            self.state.parents[parent] = priority
        else:
            jobs = [self.row(certain(job_id))]
            if jobs[0].state in HELD | ENDED:
                present = jobs[0].state
                raise refusal(jobs[0].id, present, Change.PRIORITY)
            if undoes is not None:
                self.undone(jobs[0].id, undoes, key=jobs[0].key)
        for job in jobs:
            detail = {"priority": priority, "from": job.priority}
            job.priority = priority
            if job.key is not None:
                self.change_key(job, order_key(priority, place_of(job.key)), "priority")
            if job.state is State.QUEUED:
                end_turn(job)
                self.enter(job, now)
            self.tell(PRIORITY, job.id, detail, now)
            self.audit_entry(by, "priority", job.id, detail, now)
        self.hand_over(now)
        return tuple(self.as_job(job) for job in jobs)

    @step
    def move(
        self,
        job_id: str,
        *,
        before: str | None = None,
        after: str | None = None,
        by: str | None = None,
        undoes: int | None = None,
        now: int,
    ) -> Job:
        job, other = self.row(job_id), self.row(certain(before if before is not None else after))
        for one in (job, other):
            if one.state is not State.QUEUED:
                raise refusal(one.id, one.state, Change.MOVE)
        if undoes is not None:
            entry = self.undone(job_id, undoes, key=job.key)
            if entry.action != "move" or entry.detail["from"]["priority"] != other.priority:
                raise changed_since(job_id, undoes)
        line = self.in_line()
        rank = line.index(job)
        former = {
            "priority": job.priority,
            "before": line[rank + 1].id if rank + 1 < len(line) else None,
            "after": line[rank - 1].id if rank > 0 else None,
        }
        place, spread = self.place_beside(job, other, is_before=before is not None)
        for neighbour, new_place in spread:
            neighbour.undisturbed_key = neighbour.undisturbed_key or neighbour.key
            neighbour.key = order_key(priority_of(certain(neighbour.key)), new_place)
        job.priority = other.priority
        self.change_key(job, order_key(priority_of(certain(other.key)), place), "moved")
        end_turn(job)
        self.enter(job, now)
        detail = {"before": before} if before is not None else {"after": after}
        self.tell(MOVED, job.id, detail, now)
        self.audit_entry(by, "move", job.id, {**detail, "from": former, "key": str(job.key)}, now)
        self.hand_over(now)
        return self.as_job(job)

    def change_key(self, job: JobRow, key: int, reason: str) -> None:
        """By a person, who is the reason if that puts the job further back than it would stand by itself."""
        job.undisturbed_key = job.undisturbed_key or job.key
        if key <= certain(job.undisturbed_key):
            job.displaced = None
        elif key > certain(job.key):
            job.displaced = reason
        job.key = key

    def place_beside(self, job: JobRow, other: JobRow, *, is_before: bool) -> tuple[int, list[tuple[JobRow, int]]]:
        """A place directly before or after another job, and new places for those that must make room for it."""
        band = priority_of(certain(other.key))
        line = [one for one in self.in_line() if one is not job and priority_of(certain(one.key)) == band]
        gap = line.index(other) + (0 if is_before else 1)
        earlier, later = line[:gap][::-1], line[gap:]  # nearest to the gap first
        places_before, places_after = [[place_of(certain(one.key)) for one in side] for side in (earlier, later)]
        ceiling = self.state.next_sequence * CELL
        taken = {place_of(one.key) for one in self.state.jobs_and_tickets() if one.key is not None and one is not job}
        low = places_before[0] if places_before else -1
        high = places_after[0] if places_after else ceiling
        place = place_between(low, high, next_to_high=is_before, taken=lambda place: place in taken)
        if place is not None:
            return place, []
        nearest = SPREAD_AT_MOST // 2 + 1
        places_before, places_after = places_before[:nearest], places_after[:nearest]
        taken_by_others = taken - set(places_before) - set(places_after)
        spread = spread_places(
            places_before, places_after, ceiling=ceiling, taken=lambda place: place in taken_by_others
        )
        if spread is None:
            raise MoveRefused(f"There is no place left beside job {other.id!r}, however far others are spread.")
        new_before, place, new_after = spread
        return place, [*zip(earlier, new_before, strict=False), *zip(later, new_after, strict=False)]

    @step
    def cancel(
        self,
        *,
        job_id: str | None = None,
        parent: str | None = None,
        message: str | None = None,
        by: str | None = None,
        now: int,
    ) -> tuple[Job, ...]:
        jobs = [self.row(certain(job_id))] if parent is None else self.unfinished_of(parent)
        never_started = []
        for job in jobs:
            if job.state is State.CANCELLED:
                continue
            former = job.state
            if message is not None:
                job.message = message
            if job.state in HELD:
                job.cancel_wanted = True
                self.tell(CANCEL_WANTED, job.id, {}, now)
            else:
                if job.state in ENDED:
                    raise refusal(job.id, job.state, Change.CANCEL)
                self.end(job, State.CANCELLED, now)
                if job.started_at is None:
                    never_started.append(job)
            self.audit_entry(by, "cancel", job.id, {"message": message, "from": str(former)}, now)
        self.give_quota_back(never_started, now)
        self.hand_over(now)
        return tuple(self.as_job(job) for job in jobs)

    @step
    def retry(self, job_id: str, *, by: str | None = None, now: int) -> Job:
        job = self.row(job_id)
        if job.state is not State.FAILED:
            raise refusal(job_id, job.state, Change.RETRY)
        if self.unfinished_with(job.unique) is not None:
            raise InvalidTransition(f"Job {job_id!r}", job.state, State.QUEUED, "nothing, its unique key is taken")
        if job.phase is not None and job.phase > 1:
            before = self.phase(certain(job.parent), job.phase - 1)
            if before is None or before.state is not State.SUCCEEDED:
                raise InvalidTransition(f"Job {job_id!r}", job.state, State.QUEUED, "nothing before the earlier phase")
        if job.user is not None and job.quota_day is None:
            job.quota_day = now // DAY_MS
            self.charge(job.user, job.quota_day, 1)
        drop_start_by(job)
        job.attempts = 0
        if job.suspicion is not Suspicion.NONE:
            job.suspicion = suspicion_of(attempts=0, max_attempts=certain(job.max_attempts))
        job.error = job.stage = job.progress = job.message = job.finished_at = None
        job.worker = job.token = None
        self.join(job, now)
        self.audit_entry(by, "retry", job.id, {}, now)
        self.hand_over(now)
        return self.as_job(job)

    @step
    def confirm(self, job_id: str, *, by: str | None = None, now: int) -> Job:
        job = self.row(job_id)
        if job.state is not State.CONFIRMING:
            raise refusal(job_id, job.state, Change.CONFIRM)
        if job.iterations_granted is not None and job.iterations_batch is not None:
            job.iterations_granted += job.iterations_batch
            if job.iterations_max is not None:
                job.iterations_granted = min(job.iterations_granted, job.iterations_max)
        drop_start_by(job)
        job.attempts = 0
        job.confirmation_required_at = job.message = None
        self.join(job, now)
        self.audit_entry(by, "confirm", job.id, {"iterations_granted": job.iterations_granted}, now)
        self.hand_over(now)
        return self.as_job(job)

    @step
    def set_tier(self, user: str, standing: Standing, *, by: str | None = None, now: int) -> tuple[LimitIgnored, ...]:
        self.tell(TIER, user, {"tier": standing.tier}, now)
        known = self.state.users.get(user)
        former = None if known is None else known.standing.tier
        ignored = self.apply_standing(user, standing, pinned=True, now=now)
        self.audit_entry(by, "tier", user, {"tier": standing.tier, "from": former}, now)
        self.hand_over(now)
        return tuple(ignored)

    # --- limits ---------------------------------------------------------------------------------------------------

    @step
    def set_limits(
        self,
        limits: Sequence[Limit | Unlimited],
        *,
        exactly: Source | None = None,
        by: str | None = None,
        undoes: int | None = None,
        now: int,
    ) -> tuple[LimitIgnored, ...]:
        for limit in limits if undoes is not None else ():
            entry, row = self.undone(limit.group, certain(undoes)), self.group_row(limit.group)
            source = None if entry.detail.get("limit") is None else entry.detail["source"]
            if entry.action != "limit" or (row.limit, row.source) != (entry.detail["limit"], source):
                raise changed_since(limit.group, certain(undoes))
        _, ignored = self.set_limits_by(limits, by, now)
        if exactly is not None:
            others = {name for name, row in self.state.groups.items() if row.source is exactly}
            for group in sorted(others - {limit.group for limit in limits}):
                self.remove_limit_by(group, by, now)
        self.hand_over(now)
        return tuple(ignored)

    @step
    def set_paused(
        self, group: str, paused: bool, *, by: str | None = None, undoes: int | None = None, now: int
    ) -> None:
        if undoes is not None:
            self.undone(group, undoes)
        row = self.state.groups.setdefault(group, GroupRow())
        if row.paused != paused:
            row.paused = paused
            self.tell(PAUSED if paused else RESUMED, group, {}, now)
            self.audit_entry(by, "pause" if paused else "resume", group, {}, now)
        self.hand_over(now)

    @step
    def revoke(self, group: str, slot_id: int, *, force: bool = False, by: str | None = None, now: int) -> str:
        lease = next((lease for lease in self.holders(group) if lease.slots[group] == slot_id), None)
        if lease is None:
            raise SlotNotFound(group, slot_id)
        if lease.expires_at > self.counted(now) and not force:
            raise LeaseAlive(group, slot_id, lease.holder)
        job = self.end_lease(lease, "revoked", now)
        if job is not None:
            self.come_back(job, "revoked", now)
        self.audit_entry(by, "release", group, {"slot": slot_id, "holder": lease.holder, "force": force}, now)
        self.hand_over(now)
        return lease.holder


def drop_start_by(job: JobRow) -> None:
    job.start_by = job.steady_start_by = job.overdue_message = None
