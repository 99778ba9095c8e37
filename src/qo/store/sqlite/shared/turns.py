"""Turns during a step. The rules are in `store/__init__.py`, what turns keep in `policy/turns.py`.

A job or ticket has its count and its turn in its own row. A walk reads the turns when it begins (`keep_slots`), notes
what it starts and what it puts aside, and counts at its end who was passed (`Passing.count`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from qo.event import TURN
from qo.policy.turns import Kept, Turn, kept_slots, rests_to_end
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.overdue import is_overdue
from qo.store.sqlite.shared.rows import JobRow, names, select
from qo.store.sqlite.shared.step import Step
from qo.store.sqlite.shared.tickets import TicketRow, select_tickets

Waiting = JobRow | TicketRow


def keep_slots(step: Step) -> None:
    """Work out which slots are kept during the walk that begins now."""
    step.groups.kept = kept_now(step)


def kept_now(step: Step) -> Kept:
    return _kept(step, _turns(step))


def _turns(step: Step) -> list[Turn]:
    """In the order of the line."""
    if not are_there(step) or not step.number("turn_after"):
        return []
    jobs = (_turn(step, row) for row in select(step.db, "turn"))
    tickets = (_turn(step, row) for row in select_tickets(step.db, "turn"))
    return sorted([*jobs, *tickets])


def are_there(step: Step) -> bool:
    found: int = sql.value(
        step.db, "SELECT EXISTS (SELECT 1 FROM job WHERE turn) OR EXISTS (SELECT 1 FROM ticket WHERE turn)"
    )
    return bool(found)


def _turn(step: Step, row: Waiting) -> Turn:
    assert row.key is not None
    if isinstance(row, TicketRow):
        return Turn(row.key, row.holder, None, names(row.groups))
    return Turn(row.key, row.id, row.task, step.groups_of(row), is_overdue(step, row))


def _kept(step: Step, turns: Sequence[Turn]) -> Kept:
    if not turns:
        return Kept()
    workers = sql.rows(step.db, "SELECT tasks FROM worker WHERE expires_at > ?", (step.now,))
    served = {task for (tasks,) in workers for task in names(tasks)}
    return kept_slots(turns, step.groups.get, served.__contains__)


class Passing:
    """What a walk has started and put aside."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._started: list[tuple[int, Iterable[str]]] = []
        """The keys, each with its groups that have a limit."""
        self._put_aside: list[Waiting] = []

    def started(self, key: int, limited: Iterable[str]) -> None:
        self._started.append((key, limited))
        if self._step.groups.kept:
            self._step.groups.kept.end(key)

    def put_aside(self, row: Waiting) -> None:
        self._put_aside.append(row)

    def count(self) -> None:
        """At the end of the walk: count who was passed in it, and let those take a turn that were passed often enough.

        Jobs that the walk could have examined are never passed by what it started, except where their gate was closed.
        So this finds something only where tasks of other workers, or callers, wait for the same groups.
        """
        if not self._started and not self._put_aside:
            return
        turn_after = self._step.number("turn_after")
        if turn_after == 0:
            return
        passed: dict[int, Waiting] = {}
        times = Counter[int]()
        for row in (*self._put_aside, *self._passed_where_parked(times)):
            assert row.key is not None
            passed[row.key] = row
        times.update(row.key for row in self._put_aside if row.key is not None)
        for key, row in passed.items():
            row.passed += times[key]
            _set(self._step, row, "passed", row.passed)
        for key in sorted(passed):
            row = passed[key]
            if row.passed >= turn_after and not row.turn:
                for ended in _take_turn(self._step, row):
                    if ended in passed:
                        passed[ended].turn = False

    def _passed_where_parked(self, times: Counter[int]) -> Iterator[Waiting]:
        """Counts in `times` how often, by key."""
        takers: dict[str, list[int]] = defaultdict(list)
        for key, groups in self._started:
            for group in groups:
                takers[group].append(key)
        if not takers:
            return
        self._step.settle()
        for group, keys in takers.items():
            for row in _firsts_parked_in(self._step, group, before=max(keys)):
                assert row.key is not None
                times[row.key] += sum(key > row.key for key in keys)
                yield row


def _firsts_parked_in(step: Step, group: str, *, before: int) -> Iterator[Waiting]:
    """Of each task, suspects apart, and of the callers, the first that is parked in the group, where it stands before
    this key."""
    for task, _, key in step.groups.heads(group):
        if key < before:
            found = select_tickets if task == "" else select
            yield from found(step.db, "parked = ? AND key = ?", (group, key))


def _take_turn(step: Step, row: Waiting) -> list[int]:
    """Returns the keys of those whose turns end for it."""
    turn, turns = _turn(step, row), _turns(step)
    ending = rests_to_end(
        turn,
        turns,
        most=step.bounds.turns,
        most_groups=step.bounds.turn_groups,
        keep=partial(_kept, step),
    )
    if ending is None:
        return []
    for each in ending:
        table = "ticket" if each.task is None else "job"
        step.db.execute(f"UPDATE {table} SET turn = 0 WHERE turn AND key = ?", (each.key,))
    row.turn = True
    _set(step, row, "turn", True)
    step.figure("turns")
    step.event(TURN, turn.name, {"passed": row.passed})
    return [each.key for each in ending]


def _set(step: Step, row: Waiting, field: str, value: int) -> None:
    table, column, member = ("ticket", "holder", row.holder) if isinstance(row, TicketRow) else (
        "job", "number", row.number
    )  # fmt: skip
    step.writes.add(table, f"UPDATE {table} SET {field} = ? WHERE {column} = ?", (value, member))
