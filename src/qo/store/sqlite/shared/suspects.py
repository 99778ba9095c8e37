"""Suspects: jobs whose lease ran out, and which of them a worker may take. The rules are in `policy/suspects.py`.

A counter has the number of suspects that wait or run. Where it is 0, nothing here reads anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from typing import NamedTuple

import apsw

from qo.policy.suspects import suspicion_of
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.rows import JobRow, names, save
from qo.store.sqlite.shared.step import Step
from qo.values import Suspicion

SUSPECTS = "suspects"
"""The counter's name."""
RUNS_ALONE = "EXISTS (SELECT 1 FROM job WHERE job.worker = {worker} AND job.suspicion = 2)"


class Source(NamedTuple):
    """To the indexes, the suspects of a task are a task of their own."""

    task: str
    suspicion: Suspicion = Suspicion.NONE


# --- becoming and ceasing to be one ---------------------------------------------------------------------------------


def suspect(step: Step, row: JobRow) -> None:
    """The job waits, and may have ended the process that ran it last."""
    assert row.max_attempts is not None
    if row.suspicion == Suspicion.NONE:
        _count(step, +1)
    _save(step, row, suspicion_of(attempts=row.attempts, max_attempts=row.max_attempts))


def clear(step: Step, row: JobRow) -> None:
    """The job waits, runs or has just ended, and is no suspect."""
    if row.suspicion != Suspicion.NONE:
        _count(step, -1)
        _save(step, row, Suspicion.NONE)


def keep_in_mind(step: Step, row: JobRow) -> None:
    """The job has failed as a suspect. It is one again if it is retried."""
    _save(step, row, Suspicion.SUSPECT)


def suspect_again(step: Step, row: JobRow) -> None:
    """A failed job waits again."""
    if row.suspicion != Suspicion.NONE:
        row.suspicion = Suspicion.NONE
        suspect(step, row)


def _count(step: Step, change: int) -> None:
    step.set_counter(SUSPECTS, step.number(SUSPECTS) + change)


def _save(step: Step, row: JobRow, suspicion: Suspicion) -> None:
    row.suspicion = suspicion
    save(step.writes, row, "suspicion")


def are_there(step: Step) -> bool:
    """Whether any wait or run."""
    return step.number(SUSPECTS) > 0


# --- taking them ----------------------------------------------------------------------------------------------------


class Taker:
    """A worker that looks for jobs, and what it may take of suspects."""

    def __init__(self, step: Step, worker: str, suspects: int | None) -> None:
        self._groups = step.groups
        self._worker = worker
        self._left = inf if suspects is None else suspects
        self._there_are = are_there(step)
        self._is_alone = False
        self._held = 0
        if self._there_are:
            self._is_alone = bool(sql.value(step.db, f"SELECT {RUNS_ALONE.format(worker='?')}", (worker,)))
            self._others = _Others(step.db, step.number("lease_ms"), step.now)
            self._held = _count_held(step.db, worker)

    def sources(self, tasks: Iterable[str]) -> Iterator[Source]:
        if not self._is_alone:
            for task in dict.fromkeys(tasks):
                yield Source(task)
                if self._there_are:
                    yield Source(task, Suspicion.SUSPECT)
                    yield Source(task, Suspicion.LAST)

    def passes(self, source: Source) -> bool:
        """Whether it neither takes jobs of this source nor ends its search at one, as things are now."""
        if not self._groups.gates_open(source.task):
            return True
        if source.suspicion is Suspicion.NONE:
            return False
        if source.suspicion is Suspicion.LAST and self._held:
            return not self._others.leave_it_to(self._worker, self._held, source.task)
        return self._left == 0

    def may_take(self, suspicion: int) -> bool:
        """False: it has to become empty first."""
        return suspicion != Suspicion.LAST or self._held == 0

    def note(self, suspicion: int) -> bool:
        """It has taken such a job. Returns whether it takes no other beside it."""
        if self._there_are:
            self._held += 1
            self._left -= suspicion != Suspicion.NONE
        return suspicion == Suspicion.LAST


class _Others:
    """The workers that were heard of in the last lease, read when they are first asked for."""

    def __init__(self, db: apsw.Connection, lease_ms: int, now: int) -> None:
        self._db, self._now, self._heard_after = db, now, now - lease_ms
        self._workers: list[tuple[str, tuple[str, ...], int]] | None = None

    def leave_it_to(self, worker: str, held: int, task: str) -> bool:
        """Whether this worker, which holds so many jobs, has the fewest of those that handle the task."""
        if self._workers is None:
            self._workers = self._read()
        numbers = [(held if name == worker else jobs, name) for name, tasks, jobs in self._workers if task in tasks]
        return bool(numbers) and min(numbers)[1] == worker

    def _read(self) -> list[tuple[str, tuple[str, ...], int]]:
        found = sql.rows(
            self._db,
            "SELECT name, tasks, (SELECT count(*) FROM lease WHERE lease.worker = worker.name AND job IS NOT NULL)"
            " FROM worker WHERE expires_at > ? AND heard_at > ?",
            (self._now, self._heard_after),
        )
        return [(name, names(tasks), jobs) for name, tasks, jobs in found]


def _count_held(db: apsw.Connection, worker: str) -> int:
    held: int = sql.value(db, "SELECT count(*) FROM lease WHERE worker = ? AND job IS NOT NULL", (worker,))
    return held
