"""Slots that write down what happens to them, in the order in which it happens, and what that order must be like."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from qo.limits.in_process.line import Group, LeaseInProcess, Line, NewWaiter, Waiter
from qo.limits.in_process.slots import SlotsInProcess


class Event(NamedTuple):
    what: str
    groups: tuple[str, ...]
    key: int | None = None


class RecordedSlots(SlotsInProcess):
    """Each method here is called with the lock held, so the history is the order in which things were decided."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[Event] = []

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

    def _remove(self, waiter: Waiter) -> None:
        super()._remove(waiter)
        self.history.append(Event("gave up", names(waiter.line), waiter.key))


def names(line: Line) -> tuple[str, ...]:
    return tuple(group.name for group in line.groups)


def check_history(history: list[Event], limits: Mapping[str, int]) -> Counter[str]:
    """Nobody went in where there was no room or past one who could have gone, nor waited for nothing.

    Answers how many events there were of each kind.
    """
    held: Counter[str] = Counter()
    waiting: defaultdict[tuple[str, ...], dict[int, None]] = defaultdict(dict)

    def has_room(groups: tuple[str, ...]) -> bool:
        return all(held[group] < limits[group] for group in groups)

    def first_who_could_go() -> int | None:
        firsts = (next(iter(keys)) for groups, keys in waiting.items() if keys and has_room(groups))
        return min(firsts, default=None)

    for event in history:
        match event.what:
            case "waits":
                assert not has_room(event.groups)
                assert event.key is not None
                waiting[event.groups][event.key] = None
            case "gave up":
                assert event.key is not None
                del waiting[event.groups][event.key]
            case "left":
                held.subtract(event.groups)
            case "entered":
                assert has_room(event.groups)
                assert first_who_could_go() == event.key
                if event.key is not None:
                    del waiting[event.groups][event.key]
                held.update(event.groups)
    assert first_who_could_go() is None
    return Counter(event.what for event in history)
