"""Turns in the reference model: when a job or caller is passed, when it takes a turn, and which slots turns keep."""

from __future__ import annotations

from collections.abc import Iterable

from qo.event import TURN
from qo.policy.groups import GLOBAL
from tests.conformance.model.kept import Kept, Waiting, name_of
from tests.conformance.model.lanes import Lanes
from tests.conformance.model.state import GroupRow, JobRow, TicketRow, certain

NEAR = ("user:", "project:", "tier:", "parent:")


def near_groups(line: Lanes, waiting: Waiting) -> list[str]:
    if isinstance(waiting, TicketRow):
        return []
    return [group for group in line.all_groups(waiting) if group == waiting.task or group.startswith(NEAR)]


def with_a_turn(line: Lanes) -> list[Waiting]:
    return sorted((one for one in line.state.in_lanes() if one.turn), key=lambda one: certain(one.key))


def kept_by(line: Lanes, turns: list[Waiting], now: int) -> Kept:
    """What these keep, who stand in this order."""
    kept = Kept()
    if line.state.turn_after == 0:
        return kept
    for waiting in turns:
        groups = line.all_groups(waiting)
        if any(is_shut(line.group_row(group)) for group in groups):
            continue
        if isinstance(waiting, JobRow) and (
            not line.has_live_worker(waiting.task, now) or line.is_overdue(waiting, now)
        ):
            continue
        near = near_groups(line, waiting)
        key = certain(waiting.key)
        asks_for = near
        if all(line.has_room(group, kept.before(group, key)) for group in near):
            asks_for = [group for group in groups if group != GLOBAL]
        for group in asks_for:
            if line.is_limited(group):
                kept.asking.setdefault(group, []).append(waiting)
    return kept


def is_shut(group: GroupRow) -> bool:
    return group.paused or group.closed_until is not None or group.limit == 0


def kept_now(line: Lanes, now: int) -> Kept:
    return kept_by(line, with_a_turn(line), now)


def pass_over(line: Lanes, started: Iterable[tuple[int, tuple[str, ...]]], put_aside: list[Waiting], now: int) -> None:
    """The end of a walk: count who was passed in it, and let those take a turn who were passed often enough.

    `started` are the keys and groups of those that got slots. `put_aside` were looked at and parked.
    """
    if line.state.turn_after == 0:
        return
    passed = list(put_aside)
    for key, groups in started:
        for group in groups:
            if line.is_limited(group):
                passed += [first for first in firsts_parked_in(line, group) if certain(first.key) < key]
    for waiting in passed:
        waiting.passed += 1
    still_there = [one for one in line.state.in_lanes() if any(one is other for other in passed)]
    for waiting in sorted(still_there, key=lambda one: certain(one.key)):
        if waiting.passed >= line.state.turn_after and not waiting.turn:
            take_turn(line, waiting, now)


def firsts_parked_in(line: Lanes, group: str) -> list[Waiting]:
    """Of each task, suspects apart, and of the callers, the first that is parked in a group."""
    firsts: dict[tuple[str, int], Waiting] = {}
    for waiting in sorted(line.state.in_lanes(), key=lambda one: certain(one.key)):
        if line.parked(waiting) == group:
            source = (waiting.task, int(waiting.suspicion)) if isinstance(waiting, JobRow) else ("", 0)
            firsts.setdefault(source, waiting)
    return list(firsts.values())


def take_turn(line: Lanes, waiting: Waiting, now: int) -> None:
    """If there is a row for it, or those that keep nothing can make room for one that would keep something."""
    turns = with_a_turn(line)
    kept = kept_by(line, turns, now)
    resting = [one for one in turns if not kept.groups_of(one)]
    staying = list(turns)
    while not fits(line, [*staying, waiting]):
        if not resting:
            return
        last = resting.pop()
        staying = [one for one in staying if one is not last]
    if len(staying) < len(turns):
        in_order = sorted([*staying, waiting], key=lambda one: certain(one.key))
        if not kept_by(line, in_order, now).groups_of(waiting):
            return
    for one in turns:
        one.turn = any(one is other for other in staying)
    waiting.turn = True
    line.count("turns", 0, now)
    line.tell(TURN, name_of(waiting), {"passed": waiting.passed}, now)


def fits(line: Lanes, turns: list[Waiting]) -> bool:
    groups = {group for one in turns for group in line.all_groups(one) if group != GLOBAL}
    return len(turns) <= line.bounds.turns and len(groups) <= line.bounds.turn_groups


def end_turn(waiting: Waiting) -> None:
    waiting.turn = False
    waiting.passed = 0
