"""The rule of the limiter in process by brute force: every group is looked up anew, nothing is kept for speed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

Lane = tuple[tuple[str, ...], int]
"""Callers with the same groups and priority. Only the first of them is looked at."""
Key = tuple[int, int]


@dataclass(eq=False)
class Caller:
    groups: tuple[str, ...]
    priority: int
    number: int
    slots: dict[str, int] | None = None
    passed: int = 0

    @property
    def key(self) -> Key:
        return self.priority, self.number

    @property
    def lane(self) -> Lane:
        return self.groups, self.priority


@dataclass
class Parked:
    """Where a lane waits, under the key of the caller that was first there when it was last looked at."""

    group: str
    key: Key


@dataclass
class Model:
    """After every step, the first who can go goes, until nobody can. Those passed often enough take turns then."""

    turn_after: int
    limits: dict[str, int | None]
    most_turns: int = 16
    most_groups: int = 64
    callers: list[Caller] = field(default_factory=list)
    parked: dict[Lane, Parked] = field(default_factory=dict)
    turns: list[Caller] = field(default_factory=list)
    just_passed: list[Caller] = field(default_factory=list)
    began: int = 0
    gave_way: int = 0
    stopped: int = 0

    def waiting(self) -> list[Caller]:
        return sorted((caller for caller in self.callers if caller.slots is None), key=lambda each: each.key)

    def inside(self) -> list[Caller]:
        return sorted((caller for caller in self.callers if caller.slots is not None), key=lambda each: each.number)

    def enter(self, caller: Caller) -> None:
        self.callers.append(caller)
        full = self.first_full(caller)
        if full is None:
            self.take(caller)
            self.end_step([caller])
        elif caller.lane not in self.parked:
            self.parked[caller.lane] = Parked(full, caller.key)

    def remove(self, caller: Caller) -> None:
        """It left, or gave up."""
        self.callers.remove(caller)
        self.turns = [turn for turn in self.turns if turn is not caller]
        self.walk()

    def set_limit(self, group: str, limit: int | None) -> None:
        self.limits[group] = limit
        self.walk()

    def walk(self) -> None:
        let_in: list[Caller] = []
        while (lane := self.first_lane_with_room()) is not None:
            parked, first = self.parked[lane], self.first_of(lane)
            if first is None:
                del self.parked[lane]
            elif first.key != parked.key:
                parked.key = first.key
            elif (full := self.first_full(first)) is not None:
                parked.group = full
                self.just_passed.append(first)
            else:
                let_in.append(first)
                self.take(first)
                behind = self.first_of(lane)
                if behind is None:
                    del self.parked[lane]
                else:
                    parked.key = behind.key
        self.end_step(let_in)

    def first_lane_with_room(self) -> Lane | None:
        """Of those whose group has room for the caller they are parked for."""
        lanes = [lane for lane, parked in self.parked.items() if self.has_room(parked.group, parked.key)]
        return min(lanes, key=lambda lane: self.parked[lane].key, default=None)

    def first_of(self, lane: Lane) -> Caller | None:
        return next((caller for caller in self.waiting() if caller.lane == lane), None)

    def first_full(self, caller: Caller) -> str | None:
        full = next((group for group in caller.groups if not self.has_room(group, caller.key)), None)
        if full is not None and self.limits[full] != self.held(full):
            self.stopped += 1
        return full

    def has_room(self, group: str, key: Key) -> bool:
        limit = self.limits.get(group)
        kept_for = self.kept_for(group, self.turns)
        is_kept = kept_for is not None and kept_for.key < key
        return limit is None or self.held(group) + is_kept < limit

    def held(self, group: str) -> int:
        return sum(group in each.groups for each in self.inside())

    def kept_for(self, group: str, turns: Iterable[Caller]) -> Caller | None:
        if self.limits.get(group) is None:
            return None
        asking = [turn for turn in turns if group in turn.groups and all(self.limits.get(g) != 0 for g in turn.groups)]
        return min(asking, key=lambda turn: turn.key, default=None)

    def take(self, caller: Caller) -> None:
        self.turns = [turn for turn in self.turns if turn is not caller]
        caller.slots = {group: self.lowest_free(group) for group in caller.groups}

    def lowest_free(self, group: str) -> int:
        held = {each.slots[group] for each in self.callers if each.slots is not None and group in each.slots}
        return next(number for number in range(100) if number not in held)

    def end_step(self, let_in: list[Caller]) -> None:
        """Count those that stand first in a group where one behind them took a slot. Then turns begin."""
        for caller in let_in:
            for group in caller.groups:
                first = min((each.key for each in self.parked.values() if each.group == group), default=caller.key)
                self.just_passed += [each for each in self.waiting() if each.key == first < caller.key]
        for caller in self.just_passed:
            caller.passed += 1
        for caller in self.waiting():
            if caller in self.just_passed and caller.passed >= self.turn_after > 0 and caller not in self.turns:
                self.begin_turn(caller)
        self.just_passed = []

    def begin_turn(self, caller: Caller) -> None:
        ending = 0
        resting = [turn for turn in sorted(self.turns, key=lambda each: each.key) if not self.keeps(turn, self.turns)]
        while ending <= len(resting):
            going = resting[len(resting) - ending :]
            turns = [*(turn for turn in self.turns if turn not in going), caller]
            if len(turns) <= self.most_turns and len({g for turn in turns for g in turn.groups}) <= self.most_groups:
                if not going or self.keeps(caller, turns):
                    self.turns = turns
                    self.began += 1
                    self.gave_way += ending
                return
            ending += 1

    def keeps(self, caller: Caller, turns: list[Caller]) -> bool:
        return any(self.kept_for(group, turns) is caller for group in caller.groups)
