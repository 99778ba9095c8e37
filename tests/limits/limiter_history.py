"""Slots that write down what happens to them, in the order in which it happens, and what that order must be like."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from qo.limits.in_process.line import Group, LeaseInProcess, Line, NewWaiter, Waiter
from qo.limits.in_process.slots import SlotsInProcess
from qo.limits.in_process.turns import Turns

BEHIND_ALL = sys.maxsize


class Event(NamedTuple):
    what: str
    groups: tuple[str, ...]
    key: int | None = None
    turns: tuple[int, ...] = ()


class RecordedTurns(Turns):
    def __init__(self, history: list[Event], *, after: int) -> None:
        super().__init__(after=after)
        self._history = history

    def keep_slots(self) -> list[Group]:
        self._history.append(Event("turns", (), turns=tuple(sorted(self))))
        return super().keep_slots()


class RecordedSlots(SlotsInProcess):
    """Each method here is called with the lock held, so the history is the order in which things were decided."""

    def __init__(self, *, turn_after: int) -> None:
        self.history: list[Event] = []
        super().__init__(new_turns=lambda: RecordedTurns(self.history, after=turn_after))

    def _take(self, line: Line) -> list[int]:
        self.history.append(Event("entered", names(line)))
        return super()._take(line)

    def _let_in(self, line: Line, numbers: list[int]) -> Waiter:
        waiter = super()._let_in(line, numbers)
        if self.history[-1].what == "entered" and self.history[-1].key is None:
            self.history.pop()  # written down by `_take` just before
        self.history.append(Event("entered", names(line), waiter.key))
        return waiter

    def _pass_on(self, lease: LeaseInProcess) -> Waiter | None:
        at = len(self.history)
        self.history.append(Event("left", names(lease.line)))
        waiter = super()._pass_on(lease)
        if waiter is None:
            del self.history[at]
        return waiter

    def _give_back(self, lease: LeaseInProcess) -> bool:
        self.history.append(Event("left", names(lease.line)))
        return super()._give_back(lease)

    def _join(self, line: Line, full: Group, new_waiter: NewWaiter) -> Waiter:
        waiter = super()._join(line, full, new_waiter)
        self.history.append(Event("waits", names(line), waiter.key))
        return waiter

    def _remove(self, waiter: Waiter) -> list[Group]:
        eased = super()._remove(waiter)
        self.history.append(Event("gave up", names(waiter.line), waiter.key))
        return eased


def names(line: Line) -> tuple[str, ...]:
    return tuple(group.name for group in line.groups)


def check_history(history: list[Event], limits: Mapping[str, int]) -> Counter[str]:
    """Nobody went in where there was no room or past one who could have gone, nor waited for nothing.

    All have the same priority. Answers how many events there were of each kind.
    """
    held: Counter[str] = Counter()
    waiting: defaultdict[tuple[str, ...], dict[int, None]] = defaultdict(dict)
    kept_for: dict[str, int] = {}

    def has_room(groups: tuple[str, ...], key: int) -> bool:
        return all(held[group] + (kept_for.get(group, BEHIND_ALL) < key) < limits[group] for group in groups)

    def first_who_could_go() -> int | None:
        firsts = ((groups, next(iter(keys))) for groups, keys in waiting.items() if keys)
        return min((key for groups, key in firsts if has_room(groups, key)), default=None)

    for event in history:
        key = BEHIND_ALL if event.key is None else event.key
        match event.what:
            case "waits":
                assert not has_room(event.groups, key)
                waiting[event.groups][key] = None
            case "gave up":
                del waiting[event.groups][key]
            case "left":
                held.subtract(event.groups)
            case "turns":
                kept_for = {}
                for turn in event.turns:
                    (groups,) = (groups for groups, keys in waiting.items() if turn in keys)
                    for group in groups:
                        kept_for.setdefault(group, turn)
            case "entered":
                assert has_room(event.groups, key)
                assert first_who_could_go() == event.key
                waiting[event.groups].pop(key, None)
                held.update(event.groups)
    assert first_who_could_go() is None
    assert not kept_for
    return Counter(event.what for event in history)
