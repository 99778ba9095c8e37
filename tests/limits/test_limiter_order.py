"""Whatever happens in whatever order: those inside are those whom a search through all who wait would let in."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import qo
from qo.limits.in_process.line import LeaseInProcess

NAMES = ("a", "b", "c")
GROUPS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), GROUPS, st.sampled_from([50, 50, 50, 10])),
        st.tuples(st.just("leave"), st.integers(0, 5)),
        st.tuples(st.just("give up"), st.integers(0, 5)),
        st.tuples(st.just("limit"), st.sampled_from(NAMES), st.sampled_from([0, 1, 1, 2, 3, None])),
    ),
    max_size=60,
)


@dataclass
class Caller:
    groups: list[str]
    priority: int
    number: int
    slots: dict[str, int] | None = None


@dataclass
class Model:
    """Brute force: after every step, the first who can go goes, until nobody can."""

    limits: dict[str, int | None] = field(default_factory=lambda: {"a": 1, "b": 2})
    callers: list[Caller] = field(default_factory=list)

    def waiting(self) -> list[Caller]:
        line = [caller for caller in self.callers if caller.slots is None]
        return sorted(line, key=lambda caller: (caller.priority, caller.number))

    def inside(self) -> list[Caller]:
        return sorted((caller for caller in self.callers if caller.slots is not None), key=lambda each: each.number)

    def settle(self) -> None:
        while first := next((caller for caller in self.waiting() if self.has_room(caller)), None):
            first.slots = {group: self.lowest_free(group) for group in first.groups}

    def has_room(self, caller: Caller) -> bool:
        held = Counter(group for each in self.inside() for group in each.groups)
        limits = {group: self.limits.get(group) for group in caller.groups}
        return all(limit is None or held[group] < limit for group, limit in limits.items())

    def lowest_free(self, group: str) -> int:
        held = {each.slots[group] for each in self.callers if each.slots is not None and group in each.slots}
        return next(number for number in range(100) if number not in held)


@given(STEPS)
def test_those_inside_are_those_whom_a_search_would_let_in(steps: list[tuple[Any, ...]]) -> None:
    asyncio.run(compare(steps))


async def compare(steps: list[tuple[Any, ...]]) -> None:
    model, limiter = Model(), qo.Limiter(groups={"a": 1, "b": 2})
    tasks: dict[int, asyncio.Task[None]] = {}
    leaving: dict[int, asyncio.Event] = {}
    inside: dict[int, dict[str, int]] = {}

    async def enter(caller: Caller) -> None:
        async with limiter.acquire(groups=caller.groups, priority=caller.priority) as lease:
            assert isinstance(lease, LeaseInProcess)
            inside[caller.number] = {group: lease.numbers[at] for at, group in enumerate(caller.groups)}
            assert lease.slots.items() <= inside[caller.number].items()
            await leaving[caller.number].wait()
            del inside[caller.number]

    for number, (what, *how) in enumerate(steps):
        match what:
            case "enter":
                groups, priority = how
                caller = Caller(groups, priority, number)
                model.callers.append(caller)
                leaving[number] = asyncio.Event()
                tasks[number] = asyncio.create_task(enter(caller))
            case "leave" if who := model.inside():
                caller = who[how[0] % len(who)]
                model.callers.remove(caller)
                leaving[caller.number].set()
            case "give up" if who := model.waiting():
                caller = who[how[0] % len(who)]
                model.callers.remove(caller)
                tasks[caller.number].cancel()
            case "limit":
                model.limits[how[0]] = how[1]
                limiter.set_group_limit(*how)
        model.settle()
        for _ in range(4):  # the event, the block's end, the hand-over
            await asyncio.sleep(0)

        assert inside == {caller.number: caller.slots for caller in model.inside()}
        assert sum(limiter.get_metrics()["waiting"].values()) == len(model.waiting())

    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert not any(limiter.get_metrics()["in_flight"].values())
    assert not any(limiter.get_metrics()["waiting"].values())
