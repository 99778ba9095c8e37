"""hand_over: give free slots to waiting callers, without passing a job or caller that could go first.

Runs at the end of every step that writes, and costs one read when no caller waits. The contract is at `Store.acquire`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from qo.event import GRANTED
from qo.policy.groups import GATES
from qo.store.contract import HANDED_OVER_LEASE_MS
from qo.store.row import Json
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.counted_time import counted_now
from qo.store.sqlite.shared.lanes import JOBS, TICKETS
from qo.store.sqlite.shared.lease import take_slots
from qo.store.sqlite.shared.overdue import fail_overdue, give_quota_back, is_overdue
from qo.store.sqlite.shared.rows import JobRow, names
from qo.store.sqlite.shared.step import Step
from qo.store.sqlite.shared.suspects import RUNS_ALONE, Source
from qo.store.sqlite.shared.tickets import TicketRow
from qo.store.sqlite.shared.turns import Passing
from qo.store.sqlite.shared.walk import CALLERS, Walk, ticket_groups
from qo.values import looks

EXPECTED = 4
"""How many candidates a hand-over probably reads: the one that takes a freed slot, and those before it."""


def hand_over(step: Step, *, asking: Collection[str] = ()) -> None:
    """Grant the slots that can be granted now. The callers in `asking` get them as the result of their call."""
    step.settle()
    if not _somebody_could_go(step):
        return
    workers = _FreeCapacity(step)
    walk = Walk(step, (CALLERS, *map(Source, workers.tasks())), expected=EXPECTED, passes=_passes(step, workers))
    passing = Passing(step)
    overdue: list[JobRow] = []
    examined = 0
    while examined < step.bounds.examine and walk.has_callers() and (candidate := walk.next()) is not None:
        if isinstance(candidate, TicketRow):
            groups = ticket_groups(candidate)
            goes_on = _examine_ticket(step, candidate, groups, passing, asked_now=candidate.holder in asking)
        else:
            groups = step.groups_of(candidate)
            goes_on = _examine_job(step, candidate, groups, workers, passing, overdue)
        if not goes_on:
            walk.put_lane_aside()
        examined += looks(len(groups))
    step.groups.forget_spoken_for()
    passing.count()
    give_quota_back(step, overdue)
    step.settle()


def _somebody_could_go(step: Step) -> bool:
    found: int = sql.value(
        step.db,
        "SELECT EXISTS (SELECT 1 FROM ticket WHERE first AND parked IS NULL)"
        " OR EXISTS (SELECT 1 FROM open WHERE task = '')",
    )
    return bool(found)


def _passes(step: Step, workers: _FreeCapacity) -> Callable[[Source], bool]:
    gates = step.groups

    def passes(source: Source) -> bool:
        task = source.task
        return source != CALLERS and not (workers.free_for(task) and gates.gates_open(task, unspoken=True))

    return passes


def _examine_ticket(
    step: Step, ticket: TicketRow, groups: tuple[str, ...], passing: Passing, *, asked_now: bool
) -> bool:
    """Whether the next ticket of its lane can be looked at."""
    if ticket.expires_at <= counted_now(step) and not asked_now:
        drop_ticket(step, ticket.holder, ticket.groups)
        step.groups.kept.end(ticket.key)
    elif (blocked_by := step.groups.first_without_room_for(groups, ticket.key)) is not None:
        step.lanes.park(TICKETS, ticket.groups, ticket.holder, ticket.key, blocked_by)
        passing.put_aside(ticket)
        return False
    elif all(step.groups.has_room_for(name, ticket.key, unspoken=True) for name in groups):
        slots = _grant(step, ticket, groups, asked_now=asked_now)
        passing.started(ticket.key, slots)
    else:
        return False
    return True


def _grant(step: Step, ticket: TicketRow, groups: tuple[str, ...], *, asked_now: bool) -> dict[str, int]:
    token = step.draw_token()
    drop_ticket(step, ticket.holder, ticket.groups)
    slots = take_slots(step, groups, token, task=None, waited_ms=step.now - ticket.joined_at)
    lease_ms = ticket.lease_ms if asked_now else min(ticket.lease_ms, HANDED_OVER_LEASE_MS)
    step.db.execute(
        "INSERT INTO lease VALUES (?, ?, NULL, NULL, NULL, ?, NULL, ?)",
        (token, ticket.holder, ticket.worker, counted_now(step) + lease_ms),
    )
    if not asked_now:
        step.event(GRANTED, ticket.holder, {"token": str(token), "slots": slots, "expires_at": step.now + lease_ms})
    return slots


def _examine_job(
    step: Step,
    row: JobRow,
    groups: tuple[str, ...],
    workers: _FreeCapacity,
    passing: Passing,
    overdue: list[JobRow],
) -> bool:
    """Whether the next job of its lane can be looked at. An overdue job fails, and is added to the list."""
    if is_overdue(step, row):
        fail_overdue(step, row)
        overdue.append(row)
        return True
    return _leave_for_its_worker(step, row, groups, workers, passing)


def _leave_for_its_worker(
    step: Step, row: JobRow, groups: tuple[str, ...], workers: _FreeCapacity, passing: Passing
) -> bool:
    """Whether the next job of its lane can be looked at."""
    assert row.key is not None
    key = row.key
    blocked_by = step.groups.first_without_room_for(groups[GATES:], key)
    if blocked_by is not None:
        park_lane_of(step, row, blocked_by)
        passing.put_aside(row)
        return False
    if all(step.groups.has_room_for(name, key, unspoken=True) for name in groups):
        workers.speak_for(row.task)
        step.groups.speak_for(groups)
        step.groups.kept.end(key)  # its slots are spoken for now
        return True
    return False


def park_lane_of(step: Step, row: JobRow, group: str) -> None:
    """Park a lane whose first job, this one, was found blocked by this group."""
    assert row.lane is not None
    assert row.key is not None
    step.lanes.park(JOBS, row.lane, row.number, row.key, group)


def drop_ticket(step: Step, holder: str, groups: Json) -> None:
    step.lanes.leave(TICKETS, groups, holder)
    step.db.execute("DELETE FROM ticket WHERE holder = ?", (holder,))


class _FreeCapacity:
    """By name, the live workers that have free capacity."""

    def __init__(self, step: Step) -> None:
        rows = sql.rows(
            step.db,
            "SELECT tasks, capacity - (SELECT count(*) FROM lease WHERE lease.worker = worker.name AND job IS NOT NULL)"
            f" FROM worker WHERE expires_at > ? AND NOT {RUNS_ALONE.format(worker='worker.name')} ORDER BY name",
            (step.now,),
        )
        self._workers = [(names(tasks), [free]) for tasks, free in rows]

    def tasks(self) -> list[str]:
        return sorted({task for tasks, free in self._workers if free[0] > 0 for task in tasks})

    def free_for(self, task: str) -> bool:
        return any(free[0] > 0 and task in tasks for tasks, free in self._workers)

    def speak_for(self, task: str) -> None:
        for tasks, free in self._workers:
            if free[0] > 0 and task in tasks:
                free[0] -= 1
                return
