"""One atomic step: its caches, and what it writes at its end.

A step reads through small caches, decides in Python, and writes counters, events and figures once.
If the operation raises, its savepoint is rolled back and the step is thrown away with its caches.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from typing import Any

import apsw

from qo.job import Job, State
from qo.policy.figures import DEPTH
from qo.policy.job_history import with_state
from qo.policy.ordering import FIRST_SEQUENCE, LAST_SEQUENCE
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.groups import Groups
from qo.store.sqlite.shared.lanes import Lanes
from qo.store.sqlite.shared.rows import JobRow, names, row_groups, to_job, to_json
from qo.store.sqlite.shared.sql import Insert
from qo.store.sqlite.shared.writes import Writes
from qo.values import DEFAULT_LEASE_MS, DEFAULT_MAX_ATTEMPTS, DEFAULT_TURN_AFTER, Bounds

log = logging.getLogger("qo.store")

MINUTE_MS = 60_000
NEVER = 1 << 53
_COUNTERS = {
    "next_sequence": FIRST_SEQUENCE,
    "last_token": 0,
    "last_job": 0,
    "last_audit": 0,
    "lease_ms": DEFAULT_LEASE_MS,
    "turn_after": DEFAULT_TURN_AFTER,
    "uncounted_ms": 0,
    "fallen_ms": 0,
    "renewed_since_gap": 1,
    "token_at_gap": 0,
    "soonest_start_by": NEVER,
    "soonest_steady_start_by": NEVER,
    "suspects": 0,
    **{f"state:{state}": 0 for state in State},
}
INSERT_AUDIT = Insert("audit (id, at, by, action, subject, detail)", columns=6)
INSERT_EVENT = Insert("event (at, kind, subject, detail)", columns=4)
ADD_FIGURE = Insert(
    "figure",
    columns=4,
    # Of the depth, the last one is kept.
    on_conflict=f"ON CONFLICT DO UPDATE SET count = iif(name = '{DEPTH}', 0, count) + excluded.count,"
    " total_ms = total_ms + excluded.total_ms",
)
SET_COUNTER = Insert("counter", columns=2, on_conflict="ON CONFLICT DO UPDATE SET value = excluded.value")
COUNT_LINE = Insert("line_count", columns=2, on_conflict="ON CONFLICT DO UPDATE SET waiting = excluded.waiting")


class Step:
    def __init__(self, db: apsw.Connection, now: int, bounds: Bounds) -> None:
        self.writes = Writes(db)
        self.now = now
        self.bounds = bounds
        self._depth_before: int | None = None
        """How many jobs were in line when the step first looked."""
        self._begin()

    @property
    def db(self) -> apsw.Connection:
        """The connection, after everything that waits in `Writes` was written."""
        return self.writes.db

    def _begin(self) -> None:
        self.groups = Groups(self.writes)
        self.lanes = Lanes(self.writes, self.groups)
        self._counters: dict[str, int] | None = None
        self._changed_counters: set[str] = set()
        self._waiting: Counter[int] | None = None
        self._waiting_changed: set[int] = set()
        self._tasks: dict[str, tuple[tuple[str, ...], int | None]] = {}
        self._states: defaultdict[str, int] = defaultdict(int)
        """How many more jobs are in each state than before."""
        self.quota_used: dict[tuple[str, int], int] = {}
        """How many jobs were charged, by user and day; used by `quota.py`."""
        self._events: list[tuple[int, str, str, str]] = []
        self._figures: dict[str, list[int]] = {}

    def write(self) -> None:
        """Write counters, events and figures, and clear the caches; the step goes on."""
        self._write()
        self._begin()

    def _write(self) -> None:
        self.settle()
        self._write_rejections()
        self._write_states()
        SET_COUNTER.run(self.db, [(name, self.counter(name)) for name in self._changed_counters])
        if self._waiting is not None:
            COUNT_LINE.run(self.db, [(priority, self._waiting[priority]) for priority in self._waiting_changed])
        if self._events:
            INSERT_EVENT.run(self.db, self._events)
        if self._figures:
            minute = self.now // MINUTE_MS
            ADD_FIGURE.run(self.db, [(minute, name, count, total) for name, (count, total) in self._figures.items()])

    def end(self) -> None:
        """Write everything, and the depth of the line if this step as a whole has changed it."""
        if self._depth_before is not None and (depth := self.waiting().total()) != self._depth_before:
            self._figures[DEPTH] = [depth, 0]
        self._write()

    def settle(self) -> None:
        """Bring the indexes up to date: the first of every lane, then the open groups."""
        self.lanes.settle()
        self.groups.settle()

    # --- counters ---------------------------------------------------------------------------------------------

    def counter(self, name: str) -> int | None:
        return (self._counters or self._read_counters()).get(name)

    def _read_counters(self) -> dict[str, int]:
        # All at once, because a step that needs one nearly always needs several. Counters never wait in `Writes`.
        self._counters = _COUNTERS | dict(self.writes.connection.execute("SELECT name, value FROM counter"))
        return self._counters

    def number(self, name: str) -> int:
        """A counter that always has a value."""
        return (self._counters or self._read_counters())[name]

    def set_counter(self, name: str, value: int) -> None:
        (self._counters or self._read_counters())[name] = value
        self._changed_counters.add(name)

    def draw_sequence(self) -> int:
        sequence = self.number("next_sequence")
        if sequence == LAST_SEQUENCE // 2:
            log.warning("half of all places in line have been drawn (%d of %d)", sequence, LAST_SEQUENCE)
        self.set_counter("next_sequence", sequence + 1)
        return sequence

    def draw_token(self) -> int:
        token = max(self.number("last_token") + 1, self.now * 1000)
        self.set_counter("last_token", token)
        return token

    def draw_job_number(self) -> int:
        number = self.number("last_job") + 1
        self.set_counter("last_job", number)
        return number

    # --- how many jobs are in line ----------------------------------------------------------------------------

    def waiting(self) -> Counter[int]:
        """How many jobs are in line, by the priority that orders them."""
        if self._waiting is None:
            self._waiting = Counter(dict(self.db.execute("SELECT priority, waiting FROM line_count")))
            if self._depth_before is None:
                self._depth_before = self._waiting.total()
        return self._waiting

    def count_waiting(self, priority: int, change: int) -> None:
        self.waiting()[priority] += change
        self._waiting_changed.add(priority)

    # --- events, audit trail, figures -------------------------------------------------------------------------

    def event(self, kind: str, subject: str, detail: dict[str, Any] | None = None) -> None:
        self._events.append((self.now, kind, subject, to_json(detail) if detail else "{}"))

    def audit(self, by: str | None, action: str, subject: str, detail: dict[str, Any]) -> None:
        number = self.number("last_audit") + 1
        self.set_counter("last_audit", number)
        self.writes.add("audit", INSERT_AUDIT, (number, self.now, by, action, subject, to_json(detail)))

    def figure(self, name: str, total_ms: int = 0) -> None:
        figure = self._figures.get(name)
        if figure is None:
            self._figures[name] = [1, total_ms]
        else:
            figure[0] += 1
            figure[1] += total_ms

    def _write_rejections(self) -> None:
        for kind in self.groups.take_rejections():
            self.figure(f"rejected:{kind}")

    # --- the states of jobs -----------------------------------------------------------------------------------

    def reach(self, row: JobRow, state: State) -> None:
        """Change the state. The caller saves the row with `STATE_FIELDS`."""
        self._states[row.state] -= 1
        self._states[state] += 1
        row.state = state
        self.note_status(row, state)

    def note_status(self, row: JobRow, status: str) -> None:
        row.states = with_state(row.states, status, self.now)

    def count_state(self, state: str, change: int) -> None:
        self._states[state] += change

    def _write_states(self) -> None:
        for state, change in self._states.items():
            if change:
                name = f"state:{state}"
                self.set_counter(name, self.number(name) + change)

    # --- jobs -------------------------------------------------------------------------------------------------

    def task_groups(self, task: str) -> tuple[str, ...]:
        """The groups that the task names for its jobs."""
        return self._task(task)[0]

    def max_attempts_of(self, task: str) -> int:
        return self._task(task)[1] or DEFAULT_MAX_ATTEMPTS

    def _task(self, task: str) -> tuple[tuple[str, ...], int | None]:
        if task not in self._tasks:
            row = sql.row(self.db, "SELECT groups, max_attempts FROM task WHERE name = ?", (task,))
            self._tasks[task] = ((), None) if row is None else (names(row[0]), row[1])
        return self._tasks[task]

    def forget_tasks(self) -> None:
        self._tasks.clear()

    def groups_of(self, row: JobRow) -> tuple[str, ...]:
        return row_groups(row, self.task_groups(row.task))

    def to_job(self, row: JobRow, *, position: int | None = None) -> Job:
        result = None
        if row.state == "succeeded":
            result = sql.value(self.db, "SELECT result FROM content WHERE number = ?", (row.number,))
        return to_job(row, groups=self.groups_of(row), position=position, result=result)
