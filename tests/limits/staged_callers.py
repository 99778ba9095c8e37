"""Callers of a limiter in process, staged one step at a time, and one of them with a turn."""

from __future__ import annotations

from qo.job import NORMAL
from qo.limits.in_process.line import LeaseInProcess, Waiting, new_thread_waiter
from qo.limits.in_process.slots import SlotsInProcess
from qo.limits.in_process.turns import Turns

URGENT = 10
OFF = 0


class Callers:
    """Callers of one limiter, staged in one thread: nobody sleeps, so each step is done when its call returns."""

    def __init__(self, limits: dict[str, int], **turns: int) -> None:
        self.slots = SlotsInProcess(new_turns=lambda: Turns(**turns))
        for group, limit in limits.items():
            self.slots.set_limit(group, limit)

    def enter(self, *groups: str, priority: int = NORMAL) -> LeaseInProcess:
        """Inside, or in line for it."""
        return self.slots.enter_or_join(groups, None, priority, new_thread_waiter)

    def enter_each(self, *groups: str) -> list[LeaseInProcess]:
        """One caller for each of the groups."""
        return [self.enter(group) for group in groups]

    def leave(self, *leases: LeaseInProcess) -> None:
        for lease in leases:
            assert is_inside(lease)
            self.slots.leave(lease)

    def give_up(self, caller: LeaseInProcess) -> None:
        assert isinstance(caller, Waiting)
        self.slots.give_up(caller)  # type: ignore[arg-type]  # it is of one of the two kinds

    def kept(self) -> str:
        """The groups with a free slot that is kept."""
        return " ".join(each.group for each in self.slots.figures().groups if each.kept)

    def active(self, group: str) -> int:
        return next(each.in_flight for each in self.slots.figures().groups if each.group == group)


def is_inside(caller: LeaseInProcess) -> bool:
    return bool(caller.numbers)


def one_each(groups: str) -> dict[str, int]:
    return dict.fromkeys(groups, 1)


def with_a_turn(*, a: int = 1) -> tuple[Callers, LeaseInProcess, LeaseInProcess]:
    """Callers of group a with so many slots, all free, and of b with one: the one that holds it, and one that needs
    both groups and has a turn."""
    callers = Callers({"a": a, "b": 1}, after=1)
    in_b = callers.enter("b")
    in_a = callers.enter_each(*"a" * a)
    needs_both = callers.enter("a", "b")
    callers.leave(*in_a)
    assert callers.kept() == "a"
    return callers, in_b, needs_both
