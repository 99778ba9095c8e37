"""The rules of the line and of its groups, as `qo/store/__init__.py` names them: room, slots, gates, entering,
joining, examining, handing over. Brute force: every question is answered by looking at all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import msgspec

from qo.errors import JobNotFound
from qo.event import GRANTED, LIMIT, Event
from qo.job import ENDED, HELD, Attempt, JobError, Reached, State, moment
from qo.policy.audit import audit_entry
from qo.policy.groups import GLOBAL, groups_of, is_always_counted, kind_of, within_portion
from qo.policy.job_history import KEPT_ATTEMPTS, KEPT_STATES
from qo.policy.lifecycle import check_transition
from qo.policy.ordering import drawn_place, joining_order, order_key
from qo.store.contract import HANDED_OVER_LEASE_MS
from qo.values import (
    Average,
    Bounds,
    Limit,
    LimitChange,
    LimitIgnored,
    Mean,
    Source,
    Suspicion,
    TaskOptions,
    Unlimited,
    looks,
)
from tests.conformance.model.state import GroupRow, JobRow, Lane, LeaseRow, ModelState, TicketRow, certain
from tests.conformance.model.turns import Kept, end_turn, kept_now, pass_over

MINUTE_MS = 60_000
LARGEST_WAIT_BUCKET_SECONDS = 65536
MAY_BE_OVERDUE = frozenset({State.SCHEDULED, State.WAITING, State.QUEUED})


@dataclass
class Taker:
    """The worker that claims, as suspects see it."""

    worker: str
    held: int
    """how many job leases it has"""
    is_alone: bool
    """it runs a last suspect"""
    suspects: float
    """how many more suspects it may take"""
    now: int

    def may_take(self, job: JobRow) -> bool:
        return job.suspicion is not Suspicion.LAST or self.held == 0

    def note(self, job: JobRow) -> None:
        """It has taken this job."""
        self.held += 1
        self.suspects -= job.suspicion is not Suspicion.NONE
        self.is_alone = job.suspicion is Suspicion.LAST


class Line:
    """The rows, and the rules that hold for all operations."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.bounds = bounds or Bounds()
        self.state = ModelState()

    # --- what is where ----------------------------------------------------------------------------------------

    def row(self, job_id: str) -> JobRow:
        if job_id not in self.state.jobs:
            raise JobNotFound(job_id)
        return self.state.jobs[job_id]

    def in_line(self) -> list[JobRow]:
        """Every job that may run but does not yet, in its order."""
        queued = (job for job in self.state.jobs.values() if job.state is State.QUEUED)
        return sorted(queued, key=lambda job: certain(job.key))

    def rank(self, job: JobRow) -> int:
        return 1 + sum(certain(other.key) < certain(job.key) for other in self.in_line())

    def options_of(self, task: str) -> TaskOptions:
        return self.state.tasks.get(task, TaskOptions(name=task))

    def groups_of_job(self, job: JobRow) -> tuple[str, ...]:
        return groups_of(
            task=job.task,
            priority=job.priority,
            user=job.user,
            project=job.project,
            tier=job.tier,
            parent=job.parent,
            task_groups=self.options_of(job.task).groups,
            own=job.own_groups,
        )

    def all_groups(self, waiting: JobRow | TicketRow) -> tuple[str, ...]:
        return waiting.groups if isinstance(waiting, TicketRow) else self.groups_of_job(waiting)

    def groups_to_park_in(self, waiting: JobRow | TicketRow) -> list[str]:
        """The groups of a job without its gates; all groups of a caller, who has no gates."""
        if isinstance(waiting, TicketRow):
            return list(waiting.groups)
        return [group for group in self.groups_of_job(waiting) if group not in gates(waiting.task)]

    def jobs_of_parent(self, parent: str) -> list[JobRow]:
        """Its phases by number, then its jobs without a phase by submission."""
        jobs = [job for job in self.state.jobs.values() if job.parent == parent]
        return sorted(jobs, key=lambda job: (job.phase is None, job.phase or 0, job.number))

    def unfinished_with(self, unique: str | None) -> JobRow | None:
        if unique is None:
            return None
        same = (job for job in self.state.jobs.values() if job.unique == unique)
        return next((job for job in same if job.state not in ENDED), None)

    def lease_of_job(self, job_id: str, token: str) -> LeaseRow | None:
        found = (lease for lease in self.state.leases.values() if lease.is_job and lease.holder == job_id)
        return next((lease for lease in found if str(lease.token) == token), None)

    def lease_of_caller(self, holder: str) -> LeaseRow | None:
        found = (lease for lease in self.state.leases.values() if not lease.is_job and lease.holder == holder)
        return next(found, None)

    # --- time -------------------------------------------------------------------------------------------------

    def counted(self, now: int) -> int:
        """The scale on which leases and tickets end."""
        return now - self.state.uncounted_ms

    def steady(self, now: int) -> int:
        """The scale on which spans end."""
        return now - self.state.fallen_ms

    def ends_at(self, lease: LeaseRow) -> int:
        """by the store's clock"""
        return lease.expires_at + self.state.uncounted_ms

    def has_to_wait(self, job: JobRow, now: int) -> bool:
        """for the time or for the end of the span that was given"""
        if job.steady_at is not None:
            return job.steady_at > self.steady(now)
        return job.run_at is not None and job.run_at > now

    def wait_until_due(self, job: JobRow) -> None:
        job.due_at = job.run_at if job.steady_at is None else job.steady_at

    def is_due(self, job: JobRow, now: int) -> bool:
        return job.due_at is not None and not self.has_to_wait(job, now)

    def due_on_the_clock(self, job: JobRow) -> int:
        due_at = certain(job.due_at)
        return due_at if job.steady_at is None else due_at + self.state.fallen_ms

    def latest_start(self, job: JobRow) -> int | None:
        """by the store's clock; None where it has none, or it is void"""
        if job.state not in MAY_BE_OVERDUE or job.started_at is not None:
            return None
        return job.start_by if job.steady_start_by is None else job.steady_start_by + self.state.fallen_ms

    def is_overdue(self, job: JobRow, now: int) -> bool:
        latest = self.latest_start(job)
        return latest is not None and latest <= now

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

    # --- lanes ------------------------------------------------------------------------------------------------

    def lane_of(self, waiting: JobRow | TicketRow) -> Lane:
        if isinstance(waiting, TicketRow):
            return ("", waiting.groups)
        job = waiting
        return (job.task, job.priority, job.user, job.project, job.tier, job.parent, job.own_groups, job.suspicion)

    def parked(self, waiting: JobRow | TicketRow) -> str | None:
        """The group in which its lane is parked; None where the lane is ready, or the job is not in line."""
        if isinstance(waiting, JobRow) and waiting.state is not State.QUEUED:
            return None
        return self.state.lanes[self.lane_of(waiting)]

    def is_first_of_its_lane(self, waiting: JobRow | TicketRow) -> bool:
        lane = self.lane_of(waiting)
        keys = [certain(one.key) for one in self.state.in_lanes() if self.lane_of(one) == lane]
        return min(keys) == waiting.key

    def drop_empty_lanes(self) -> None:
        used = {self.lane_of(one) for one in self.state.in_lanes()}
        self.state.lanes = {lane: parked for lane, parked in self.state.lanes.items() if lane in used}

    def look_at_lane(self, first: JobRow | TicketRow, now: int) -> None:
        """Park the lane in the first of its groups that has no room; else it is ready."""
        self.park(first, self.first_without_room(self.groups_to_park_in(first)), now)

    def park(self, first: JobRow | TicketRow, group: str | None, now: int) -> None:
        lane = self.lane_of(first)
        if group is not None and group != self.state.lanes.get(lane):
            self.count(f"rejected:{kind_of(group)}", 0, now)
        self.state.lanes[lane] = group

    # --- entering and joining ---------------------------------------------------------------------------------

    def enter(self, waiting: JobRow | TicketRow, now: int) -> None:
        self.drop_empty_lanes()
        if self.is_first_of_its_lane(waiting):
            self.look_at_lane(waiting, now)

    def draw_key(self, priority: int, boost: int) -> int:
        sequence = self.state.next_sequence
        self.state.next_sequence += 1
        return order_key(priority, drawn_place(sequence, boost))

    def join(self, job: JobRow, now: int) -> None:
        """The job is in line from now on, at a place of its own."""
        self.drop_empty_lanes()
        self.reach(job, State.QUEUED, now)
        job.sequence = self.state.next_sequence
        job.key = self.draw_key(job.priority, job.boost)
        end_turn(job)
        job.undisturbed_key = job.displaced = None
        job.joined_at = job.aged_at = now
        job.deferred = False
        job.due_at = job.steady_at = None
        job.position_original = self.rank(job)
        self.enter(job, now)
        self.tell(State.QUEUED, job.id, {"position": job.position_original}, now)

    def come_back(self, job: JobRow, reason: str, now: int) -> None:
        """The job is in line again at the place it had. Its lease must be gone already."""
        self.drop_empty_lanes()
        self.reach(job, State.QUEUED, now)
        job.worker = job.token = None
        job.cancel_wanted = False
        job.aged_at = now
        self.enter(job, now)
        self.tell(State.QUEUED, job.id, {"reason": reason}, now)

    def join_due_jobs(self, now: int) -> tuple[list[str], bool]:
        """One portion of the jobs whose time has come, and whether there are more."""
        due = [job for job in self.state.jobs.values() if self.is_due(job, now)]
        due.sort(key=lambda job: joining_order(self.due_on_the_clock(job), job.parent, job.phase, job.number))
        portion = due[: within_portion(self.bounds.portion, (len(self.groups_of_job(job)) for job in due))]
        for job in portion:
            self.join(job, now)
        return [job.id for job in portion], len(due) > len(portion)

    # --- a job's history --------------------------------------------------------------------------------------

    def reach(self, job: JobRow, state: State, now: int) -> None:
        job.state = state
        self.note_status(job, state, now)

    def note_status(self, job: JobRow, status: str, now: int) -> None:
        states = (*job.history.states, Reached(status=str(status), at=moment(now)))[-KEPT_STATES:]
        job.history = msgspec.structs.replace(job.history, states=states)

    def note_attempt(self, job: JobRow, lease: LeaseRow, outcome: str, now: int, error: JobError | None = None) -> None:
        attempt = Attempt(
            number=job.attempts,
            worker=certain(lease.worker),
            slots=self.limited_slots(lease),
            started_at=moment(certain(job.started_at)),
            ended_at=moment(now),
            outcome=str(outcome),
            debug_id=None if error is None else error.debug_id,
        )
        attempts = (*job.history.attempts, attempt)[-KEPT_ATTEMPTS:]
        job.history = msgspec.structs.replace(job.history, attempts=attempts)

    # --- leaving ----------------------------------------------------------------------------------------------

    def leave_line(self, job: JobRow) -> None:
        """Neither in line nor on the way there."""
        job.key = job.aged_at = job.due_at = None
        job.deferred = False
        end_turn(job)

    def end(self, job: JobRow, state: State, now: int) -> None:
        """Into succeeded, failed or cancelled, from anywhere."""
        ran_ms = now - certain(job.started_at) if job.state in HELD else 0
        self.count(f"ended:{state}", ran_ms, now)
        self.leave_line(job)
        self.reach(job, state, now)
        self.drop_empty_lanes()
        job.suspicion = Suspicion.NONE
        job.contact = None
        job.finished_at = now
        job.cancel_wanted = False
        job.confirmation_required_at = None
        if state is State.SUCCEEDED:
            detail = {}
        elif state is State.FAILED:
            detail = {"message": job.error.message if job.error else None}
        else:
            detail = {"message": job.message}
        self.tell(state, job.id, detail, now)

    def fail_overdue(self, job: JobRow, now: int) -> None:
        """It has not started in time. What it gives back is dealt with later: `give_quota_back`."""
        check_transition(job.id, job.state, State.FAILED)
        job.error = JobError(message=certain(job.overdue_message))
        self.end(job, State.FAILED, now)

    def give_quota_back(self, jobs: Iterable[JobRow], now: int) -> bool:
        """Of jobs that never started, and whether there was any: `admission.py`, which builds on this."""
        raise NotImplementedError

    # --- examining --------------------------------------------------------------------------------------------

    def is_candidate(self, waiting: JobRow | TicketRow, kept: Kept) -> bool:
        """Ready, or parked in a group that has room for it by now. Of several in one lane, the first is looked at."""
        group = self.parked(waiting)
        return group is None or self.has_room_for(group, waiting, kept)

    def gates_have_room(self, job: JobRow, kept: Kept, spoken_for: Counter[str] | None = None) -> bool:
        spoken_for = spoken_for or Counter()
        return all(self.has_room_for(gate, job, kept, spoken_for[gate]) for gate in gates(job.task))

    def first_candidate(self, tasks: Collection[str], kept: Kept, taker: Taker) -> JobRow | None:
        """The job that a claim looks at next."""
        wanted = (job for job in self.in_line() if job.task in tasks and self.may_look_at(job, taker))
        behind_gates = (job for job in wanted if self.gates_have_room(job, kept))
        return next((job for job in behind_gates if self.is_candidate(job, kept)), None)

    def search_whole_line(self, tasks: Collection[str], capacity: int, taker: Taker) -> list[str]:
        """The rule of qo itself, without parking: the first in line whose every group has room for it, again and
        again. What a claim takes must be the same."""
        line, taken_in, taker = self.in_line(), Counter[str](), replace(taker)
        kept = kept_now(self, taker.now)
        taken: list[str] = []

        def could_start(job: JobRow) -> bool:
            groups = self.groups_of_job(job)
            if job.id in taken or self.is_overdue(job, taker.now):
                return False
            return all(self.has_room_for(one, job, kept, taken_in[one]) for one in groups)

        while len(taken) < capacity:
            eligible = (job for job in line if job.task in tasks and self.may_look_at(job, taker) and could_start(job))
            first = next(eligible, None)
            if first is None or not taker.may_take(first):
                break
            taken.append(first.id)
            taken_in.update(self.groups_of_job(first))
            kept = kept.without(first)
            taker.note(first)
        return taken

    # --- suspects ---------------------------------------------------------------------------------------------

    def taker(self, worker: str, suspects: int | None, now: int) -> Taker:
        return Taker(worker, self.running(worker), self.runs_alone(worker), inf if suspects is None else suspects, now)

    def may_look_at(self, job: JobRow, taker: Taker) -> bool:
        """Whether the job is among those that a claim of this worker looks at: to take it, or to end there."""
        if taker.is_alone:
            return False
        if job.suspicion is Suspicion.LAST and taker.held:
            return self.empties_itself(taker, job.task)
        return job.suspicion is Suspicion.NONE or taker.suspects > 0

    def empties_itself(self, taker: Taker, task: str) -> bool:
        """Whether this is the worker that takes nothing more while a last suspect of the task waits."""
        heard_of = [
            worker.name
            for worker in self.state.workers.values()
            if worker.expires_at > taker.now
            and worker.heard_at > taker.now - self.state.lease_ms
            and worker.handles(task)
        ]

        def jobs_of(worker: str) -> int:
            return taker.held if worker == taker.worker else self.running(worker)

        return min(heard_of, key=lambda worker: (jobs_of(worker), worker), default=None) == taker.worker

    def runs_alone(self, worker: str) -> bool:
        jobs = (self.state.jobs[lease.holder] for lease in self.state.leases.values() if lease.is_job)
        return any(job.worker == worker and job.suspicion is Suspicion.LAST for job in jobs)

    # --- handing over -----------------------------------------------------------------------------------------

    def hand_over(self, now: int, asking: Collection[str] = ()) -> None:
        """Give free slots to waiting callers, first in order first, past nobody who could go now.

        `asking` are the callers in whose own call this happens: their tickets are alive, and what they get is a
        full lease.
        """
        kept = kept_now(self, now)
        spoken_for = Counter[str]()  # slots by group, for jobs that their workers will take
        promised = Counter[str]()  # how many jobs by worker, likewise
        done_with: list[JobRow | TicketRow] = []
        done_lanes: set[Lane] = set()
        granted: list[tuple[int, tuple[str, ...]]] = []
        put_aside: list[JobRow | TicketRow] = []
        overdue: list[JobRow] = []
        examined = 0
        while examined < self.bounds.examine:
            waiting = self.next_to_hand_over(spoken_for, promised, done_with, done_lanes, kept, now)
            if waiting is None:
                break
            blocking = self.first_without_room_for(waiting, kept)
            groups = self.all_groups(waiting)
            examined += looks(len(groups))
            if isinstance(waiting, TicketRow) and self.is_given_up(waiting, asking, now):
                del self.state.tickets[waiting.holder]
                kept = kept.without(waiting)
            elif isinstance(waiting, JobRow) and self.is_overdue(waiting, now):
                self.fail_overdue(waiting, now)
                overdue.append(waiting)
            elif blocking is not None:
                self.park(waiting, blocking, now)
                put_aside.append(waiting)
            elif not all(self.has_room_for(group, waiting, kept, spoken_for[group]) for group in groups):
                done_lanes.add(self.lane_of(waiting))
            elif isinstance(waiting, TicketRow):
                self.grant(waiting, now, in_own_call=waiting.holder in asking)
                granted.append((waiting.key, groups))
                kept = kept.without(waiting)
            else:
                done_with.append(waiting)
                spoken_for.update(groups)
                promised[self.workers_with_a_place(waiting.task, promised, now)[0]] += 1
                kept = kept.without(waiting)
        pass_over(self, granted, put_aside, now)
        self.give_quota_back(overdue, now)

    def is_given_up(self, ticket: TicketRow, asking: Collection[str], now: int) -> bool:
        return ticket.expires_at <= self.counted(now) and ticket.holder not in asking

    def next_to_hand_over(
        self,
        spoken_for: Counter[str],
        promised: Counter[str],
        done_with: list[JobRow | TicketRow],
        done_lanes: set[Lane],
        kept: Kept,
        now: int,
    ) -> JobRow | TicketRow | None:
        """The first candidate, or None as soon as no caller is among them."""

        def is_open(waiting: JobRow | TicketRow) -> bool:
            if self.lane_of(waiting) in done_lanes or any(waiting is other for other in done_with):
                return False
            return self.is_candidate(waiting, kept)

        def has_taker(job: JobRow) -> bool:
            has_capacity = bool(self.workers_with_a_place(job.task, promised, now))
            return has_capacity and self.gates_have_room(job, kept, spoken_for)

        tickets = [ticket for ticket in self.state.tickets.values() if is_open(ticket)]
        if not tickets:
            return None
        innocent = [job for job in self.in_line() if job.suspicion is Suspicion.NONE]
        jobs = [job for job in innocent if is_open(job) and has_taker(job)]
        candidates: list[JobRow | TicketRow] = [*tickets, *jobs]
        return min(candidates, key=lambda waiting: certain(waiting.key))

    def workers_with_a_place(self, task: str, promised: Counter[str], now: int) -> list[str]:
        """The live workers that handle a task and have free capacity, by name."""
        return sorted(
            worker.name
            for worker in self.state.workers.values()
            if worker.expires_at > now
            and worker.handles(task)
            and worker.capacity - self.running(worker.name) - promised[worker.name] > 0
            and not self.runs_alone(worker.name)
        )

    def has_live_worker(self, task: str, now: int) -> bool:
        return any(worker.handles(task) and worker.expires_at > now for worker in self.state.workers.values())

    def running(self, worker: str) -> int:
        return sum(lease.is_job and lease.worker == worker for lease in self.state.leases.values())

    def grant(self, ticket: TicketRow, now: int, *, in_own_call: bool) -> None:
        del self.state.tickets[ticket.holder]
        lease = self.take(
            ticket.holder,
            groups=ticket.groups,
            waited_ms=now - ticket.joined_at,
            is_job=False,
            claim=None,
            worker=ticket.worker,
            lease_ms=ticket.lease_ms if in_own_call else min(ticket.lease_ms, HANDED_OVER_LEASE_MS),
            now=now,
        )
        if not in_own_call:
            detail = {"token": str(lease.token), "slots": self.limited_slots(lease), "expires_at": self.ends_at(lease)}
            self.tell(GRANTED, ticket.holder, detail, now)

    # --- telling, counting ------------------------------------------------------------------------------------

    def tell(self, kind: str, subject: str, detail: dict[str, Any], now: int) -> None:
        self.state.last_event += 1
        self.state.events.append(Event(self.state.last_event, moment(now), str(kind), subject, detail))

    def audit_entry(self, by: str | None, action: str, subject: str, detail: dict[str, Any], now: int) -> None:
        self.state.last_audit += 1
        self.state.audit.append(audit_entry(self.state.last_audit, moment(now), by, action, subject, detail))

    def count(self, name: str, total_ms: int, now: int) -> None:
        minute = (name, now // MINUTE_MS)
        count, total = self.state.series.get(minute, (0, 0))
        self.state.series[minute] = (count + 1, total + total_ms)

    def move_average(self, average: Average, new: float) -> None:
        mean = self.state.averages.get(average.name)
        if mean is None:
            mean = Mean(value=average.first, square=average.first * average.first, count=0)
        value = mean.value + average.weight * (new - mean.value)
        square = mean.square + average.weight * (new * new - mean.square)
        self.state.averages[average.name] = Mean(value=value, square=square, count=mean.count + 1)


def former_limit(limit: Limit | None) -> dict[str, int | None]:
    if limit is None:
        return {"from": None, "from_source": None}
    return {"from": limit.slots, "from_source": int(limit.source)}


def gates(task: str) -> tuple[str, str]:
    return (GLOBAL, task)


def recorded_groups(line: Line, job: JobRow) -> list[str]:
    """The groups in which a job takes a number when it starts."""
    groups = line.groups_of_job(job)
    return [group for group in groups if is_always_counted(group, job.task) or line.is_limited(group)]


def wait_bucket(wait_ms: int) -> int:
    """Whole seconds rounded up to a power of two; 0 for none."""
    if wait_ms <= 0:
        return 0
    bucket = 1
    while bucket * 1000 < wait_ms and bucket < LARGEST_WAIT_BUCKET_SECONDS:
        bucket *= 2
    return bucket
