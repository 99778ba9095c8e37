"""What the reference model remembers: plain rows in dicts and lists, nothing derived.

Places in line, room, ranks, counts and the open index are not here: the model works them out
from these rows each time, by definition.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

from qo.event import AuditEntry, Event
from qo.job import JobError, JobHistory, Progress, State
from qo.policy.ordering import FIRST_SEQUENCE
from qo.values import DEFAULT_LEASE_MS, DEFAULT_TURN_AFTER, Mean, Record, Source, Standing, Suspicion, TaskOptions

Value = TypeVar("Value")
NO_HISTORY = JobHistory()


def certain(value: Value | None) -> Value:
    """A value that is never None here: the job's state, or a check of the contract, rules it out."""
    assert value is not None
    return value


def copied(row: Value) -> Value:
    """Another row with the same fields. Every step copies all rows, and `dataclasses.replace` is much slower."""
    copy = object.__new__(type(row))
    copy.__dict__.update(row.__dict__)
    return copy


Lane = tuple[object, ...]
"""What all jobs, or all callers, of a lane have in common."""


@dataclass
class JobRow:
    number: int
    id: str
    task: str
    payload: bytes
    priority: int
    user: str | None
    project: str | None
    parent: str | None
    phase: int | None
    own_groups: tuple[str, ...]
    unique: str | None
    max_attempts: int | None
    timeout_ms: int | None
    contact: str | None
    submitted_at: int

    state: State = State.WAITING
    key: int | None = None
    """its order key, from joining the line until it leaves line and worker"""
    due_at: int | None = None
    """when it joins the line, while time is all it waits for; on steady time where `steady_at` is set"""
    steady_at: int | None = None
    """when the span that the caller gave is over, on steady time"""

    tier: str | None = None
    boost: int = 0
    iterations_batch: int | None = None
    iterations_max: int | None = None
    iterations_granted: int | None = None
    iterations: int = 0

    run_at: int | None = None
    quota_day: int | None = None
    deferred: bool = False

    start_by: int | None = None
    """when it fails unless it has started before"""
    steady_start_by: int | None = None
    """the same on steady time, where the caller gave a span"""
    overdue_message: str | None = None

    joined_at: int | None = None
    aged_at: int | None = None
    position_original: int | None = None
    sequence: int = 0
    """what it drew when it joined the line"""
    undisturbed_key: int | None = None
    """its order key before a person, or a move beside it, first changed it"""
    displaced: str | None = None
    passed: int = 0
    turn: bool = False

    attempts: int = 0
    started_at: int | None = None
    worker: str | None = None
    token: int | None = None
    cancel_wanted: bool = False
    stage: str | None = None
    progress: Progress | None = None
    message: str | None = None
    checkpoint: bytes | None = None

    confirmation_required_at: int | None = None
    reminded: int = 0

    result: bytes | None = None
    error: JobError | None = None
    finished_at: int | None = None
    ended_token: int | None = None
    """the token of the last finish that was applied, and what that made of the job"""
    ended_state: State | None = None
    suspicion: Suspicion = Suspicion.NONE

    trace: str | None = None
    history: JobHistory = NO_HISTORY


@dataclass
class TicketRow:
    holder: str
    groups: tuple[str, ...]
    lease_ms: int
    wait_ms: int
    worker: str | None
    key: int
    joined_at: int
    expires_at: int
    passed: int = 0
    turn: bool = False


@dataclass
class LeaseRow:
    token: int
    holder: str
    is_job: bool
    worker: str | None
    claim: str | None
    expires_at: int
    slots: dict[str, int] = field(default_factory=dict)
    """its number in each group it is recorded in"""
    started_in: tuple[str, ...] = ()
    """all groups of its job when that was claimed, recorded or not"""

    def copy(self) -> LeaseRow:
        lease = copied(self)
        lease.slots = dict(self.slots)
        return lease


@dataclass
class GroupRow:
    limit: int | None = None
    source: Source | None = None
    paused: bool = False
    closed_until: int | None = None
    last_job: int = 0
    """the number of the newest job that named it since it has a limit"""

    def is_set(self) -> bool:
        return self.limit is not None or self.paused or self.closed_until is not None


@dataclass
class UserRow:
    standing: Standing
    pinned: bool
    last_job: int


@dataclass
class WorkerRow:
    name: str
    instance: str
    tasks: tuple[TaskOptions, ...]
    capacity: int
    lifetime_ms: int
    registered_at: int
    heard_at: int
    expires_at: int
    host: str | None
    pid: int | None

    def handles(self, task: str) -> bool:
        return any(options.name == task for options in self.tasks)


@dataclass
class ModelState:
    jobs: dict[str, JobRow] = field(default_factory=dict)
    tickets: dict[str, TicketRow] = field(default_factory=dict)
    lanes: dict[Lane, str | None] = field(default_factory=dict)
    """the group that each lane is parked in; None: it is ready"""
    leases: dict[int, LeaseRow] = field(default_factory=dict)
    groups: dict[str, GroupRow] = field(default_factory=dict)
    users: dict[str, UserRow] = field(default_factory=dict)
    quota: dict[tuple[str, int], int] = field(default_factory=dict)
    parents: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, TaskOptions] = field(default_factory=dict)
    workers: dict[str, WorkerRow] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    audit: list[AuditEntry] = field(default_factory=list)
    series: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    averages: dict[str, Mean] = field(default_factory=dict)
    estimate_errors: dict[str, tuple[float, ...]] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)

    last_number: int = 0
    last_event: int = 0
    last_audit: int = 0
    last_token: int = 0
    next_sequence: int = FIRST_SEQUENCE
    noted_at: int | None = None
    lease_ms: int = DEFAULT_LEASE_MS
    turn_after: int = DEFAULT_TURN_AFTER
    uncounted_ms: int = 0
    """the store's clock less this is counted time"""
    fallen_ms: int = 0
    """the store's clock less this is steady time"""
    renewed_since_gap: bool = True
    token_at_gap: int = 0

    def jobs_and_tickets(self) -> list[JobRow | TicketRow]:
        return [*self.jobs.values(), *self.tickets.values()]

    def in_lanes(self) -> list[JobRow | TicketRow]:
        """All jobs in line and all waiting callers."""
        return [*(job for job in self.jobs.values() if job.state is State.QUEUED), *self.tickets.values()]

    def copy(self) -> ModelState:
        """A state that shares no row with this one. The fields of rows are values that never change in place,
        except a lease's slots."""
        return replace(
            self,
            jobs={name: copied(row) for name, row in self.jobs.items()},
            tickets={name: copied(row) for name, row in self.tickets.items()},
            lanes=dict(self.lanes),
            leases={token: row.copy() for token, row in self.leases.items()},
            groups={name: copied(row) for name, row in self.groups.items()},
            users={name: copied(row) for name, row in self.users.items()},
            workers={name: copied(row) for name, row in self.workers.items()},
            quota=dict(self.quota),
            parents=dict(self.parents),
            tasks=dict(self.tasks),
            events=list(self.events),
            audit=list(self.audit),
            series=dict(self.series),
            averages=dict(self.averages),
            estimate_errors=dict(self.estimate_errors),
            records=dict(self.records),
        )
