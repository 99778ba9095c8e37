"""register: a worker has started, or is gone.

Writes   the worker; the configuration's limits; its tasks' groups and limits; how long leases last
Answers  a live worker that has the name already, and then nothing is written; else the configuration's limits that
         changed, and limits that a stronger source keeps out; the time
Events   limit, where changed. Audit "limit" for the configuration's, where changed
"""

from __future__ import annotations

from functools import partial

from qo.policy.groups import GATES
from qo.store.sqlite.operations.read_groups import worker_named
from qo.store.sqlite.operations.set_limits import apply_limits, grant_limit
from qo.store.sqlite.shared.hand_over import hand_over
from qo.store.sqlite.shared.lanes import JOBS
from qo.store.sqlite.shared.rows import JobRow, select, to_json
from qo.store.sqlite.shared.step import Step
from qo.values import Registered, Registration, Source, TaskOptions, WorkerInfo


def register(step: Step, registration: Registration) -> Registered:
    if not registration.tasks:
        step.db.execute(
            "DELETE FROM worker WHERE name = ? AND instance = ?", (registration.name, registration.instance)
        )
        hand_over(step)
        return Registered(now_ms=step.now)
    namesake = _namesake(step, registration)
    if namesake is not None:
        return Registered(namesake=namesake, now_ms=step.now)
    _write_worker(step, registration)
    changed, ignored = apply_limits(step, registration.limits, by=registration.name)
    for task in registration.tasks:
        _replace_options(step, task)
        ignored += grant_limit(step, task.name, task.limit, Source.TASK)
    if registration.lease_ms != step.number("lease_ms"):
        step.set_counter("lease_ms", registration.lease_ms)
    if registration.turn_after != step.number("turn_after"):
        step.set_counter("turn_after", registration.turn_after)
    hand_over(step)
    return Registered(changed=changed, ignored=ignored, now_ms=step.now)


def _namesake(step: Step, registration: Registration) -> WorkerInfo | None:
    """Another worker that has the name and lives, as far as is known here and where it registers."""
    found = worker_named(step.db, registration.name, now=step.now)
    if found is None or found.instance in (registration.instance, registration.replaces):
        return None
    return found


def _write_worker(step: Step, registration: Registration) -> None:
    step.db.execute(
        "INSERT OR REPLACE INTO worker (name, tasks, capacity, lifetime_ms, host, pid, registered_at, expires_at,"
        " instance, heard_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            registration.name,
            to_json([task.name for task in registration.tasks]),
            registration.capacity,
            registration.lifetime_ms,
            registration.host,
            registration.pid,
            step.now,
            step.now + registration.lifetime_ms,
            registration.instance,
            step.now,
        ),
    )


def _without_gates(step: Step, row: JobRow) -> tuple[str, ...]:
    return step.groups_of(row)[GATES:]


def _replace_options(step: Step, task: TaskOptions) -> None:
    gone = [group for group in step.task_groups(task.name) if group not in task.groups]
    if task.groups or task.max_attempts is not None:
        step.db.execute(
            "INSERT OR REPLACE INTO task VALUES (?, ?, ?)", (task.name, to_json(task.groups), task.max_attempts)
        )
    else:
        step.db.execute("DELETE FROM task WHERE name = ?", (task.name,))
    step.forget_tasks()
    for group in gone:
        for row in select(step.db, "parked = ? AND task = ? ORDER BY key", (group, task.name)):
            assert row.lane is not None
            step.lanes.look_again(JOBS, row.lane, partial(_without_gates, step, row))
