"""The order of the line: one integer per waiting job, smaller first, never equal.

    key = priority << 46 | place        place = (sequence - boost) * 128 - boost

`sequence` is drawn from the store's counter when a job joins the line. Of the 128 values
of a cell, 0 belongs to the job without boost, 65..127 to boosted ones, and 1..64 are left
for jobs that an operator moves between two others. A place belongs to one job whatever its
priority, so changing the priority can never make two keys equal. Everything fits in 53 bits,
so that a Redis score holds it exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qo.errors import InvalidPriority
from qo.job import PRIORITY_NAMES

HIGHEST_PRIORITY, LOWEST_PRIORITY = 0, 99
AGED_LEVELS = tuple(sorted(level for level in PRIORITY_NAMES.values() if level >= PRIORITY_NAMES["high"]))
"""The priorities that aging may lead to."""

PLACE_BITS = 46
CELL = 128
STEPS_PER_CELL = 64
MAX_BOOST = 63
FIRST_SEQUENCE = 64
LAST_SEQUENCE = 2**39 - 1
SPREAD_AT_MOST = 256
MOVED_COUNTED_AT_MOST = 64
"""With more jobs than this at places that a move gave them, jobs placed ahead are not counted."""


def parse_priority(value: int | str) -> int:
    """A priority by number or name. Raises `InvalidPriority` for anything else."""
    if isinstance(value, str) and value in PRIORITY_NAMES:
        return PRIORITY_NAMES[value]
    if isinstance(value, int) and not isinstance(value, bool) and HIGHEST_PRIORITY <= value <= LOWEST_PRIORITY:
        return value
    names = ", ".join(f"{name} ({number})" for name, number in PRIORITY_NAMES.items())
    raise InvalidPriority(f"priority is {value!r}; use a whole number from 0 (soonest) to 99, or one of {names}.")


def drawn_place(sequence: int, boost: int) -> int:
    """The place of a job that joins the line now: `boost` places further ahead than the last one."""
    return (sequence - boost) * CELL - boost


def order_key(priority: int, place: int) -> int:
    return priority << PLACE_BITS | place


def priority_of(key: int) -> int:
    """The priority a key is ordered by, which aging may have raised above the job's own."""
    return key >> PLACE_BITS


def place_of(key: int) -> int:
    return key & ((1 << PLACE_BITS) - 1)


def was_moved(place: int) -> bool:
    """Whether this place was given by a move and not drawn."""
    return 1 <= place % CELL <= STEPS_PER_CELL


def sequence_of(place: int) -> int:
    """The sequence that a drawn place was made from. A place given by a move has none."""
    cell = -(-place // CELL)
    return cell + (cell * CELL - place)


def sequence_drawn(key: int, undisturbed_key: int | None) -> int | None:
    """The sequence that a job drew when it joined the line. `undisturbed_key` is its key before a person, or a move
    beside it, changed that. None where both keys come from a move."""
    for known in (key, undisturbed_key):
        if known is not None and not was_moved(place_of(known)):
            return sequence_of(place_of(known))
    return None


def places_around(sequence: int) -> tuple[int, int]:
    """The two places between which jobs have to be decoded, to find those that drew a later sequence than this.

    Every job at a drawn place up to the first drew an earlier one (or this one), however large its boost, and every
    job at a drawn place behind the second drew a later one. At most 126 jobs have drawn places between them.
    """
    return (sequence - MAX_BOOST) * CELL, sequence * CELL


def displacement(reason: str, *, undisturbed: int, old: int, new: int, present: str | None) -> str | None:
    """The reason why a job stands further back than by itself, after a person changed its key from `old` to `new`.

    `undisturbed` is the key before a person first changed it, `present` the last answer of this function.
    """
    if new <= undisturbed:
        return None
    return reason if new > old else present


def aged_priority(priority: int) -> int | None:
    """One named level up from `priority`, or None when aging leaves it where it is."""
    return max((level for level in AGED_LEVELS if level < priority), default=None)


def joining_order(due_at: int, parent: str | None, phase: int | None, number: int) -> tuple[int, str, int, int]:
    """The order in which jobs that join in the same step draw their places. `number` counts submissions."""
    return (due_at, parent_order(parent), phase or 0, number)


def parent_order(parent: str | None) -> str:
    """Text that sorts parents: none first, then those made of digits as numbers, then the others."""
    if parent is None:
        return ""
    if parent.isascii() and parent.isdigit():
        digits = parent.lstrip("0")
        return f"1{len(digits):03d}{digits}"
    return f"2{parent}"


def place_between(low: int, high: int, *, next_to_high: bool, taken: Callable[[int], bool]) -> int | None:
    """A free place for a moved job strictly between two places, or None when there is none left.

    Of the at most 64 values nearest to the neighbour it was moved to, the free one closest to their
    middle: near enough to stay beside that neighbour, with room left for the next one moved there.
    """
    first, last = _step_after(low), _step_before(high)
    if next_to_high:
        first = max(first, last - STEPS_PER_CELL + 1)
    else:
        last = min(last, first + STEPS_PER_CELL - 1)
    middle = (first + last) // 2
    for distance in range(STEPS_PER_CELL + 1):
        for step in (middle + distance, middle - distance):
            if first <= step <= last and not taken(_place_at(step)):
                return _place_at(step)
    return None


def spread_places(
    before: Sequence[int], after: Sequence[int], *, ceiling: int, taken: Callable[[int], bool]
) -> tuple[list[int], int, list[int]] | None:
    """New places for the jobs around a gap that is too narrow for one more job.

    `before` and `after` are the places on either side of the gap, nearest first; give one more than half
    of SPREAD_AT_MOST of each where there are so many. `ceiling` is a place behind every job. `taken` tells
    whether a place belongs to a job outside of both lists.

    Returns the new places of the nearest ones before, of the moved job, and of the nearest ones after
    (each nearest first), or None when even the widest spread finds no room.
    """
    width = 1
    while width <= SPREAD_AT_MOST // 2:
        low = before[width] if len(before) > width else -1
        high = after[width] if len(after) > width else ceiling
        left, right = min(width, len(before)), min(width, len(after))
        places = _even_places(low, high, left + 1 + right)
        if places is not None and not any(taken(place) for place in places):
            return places[:left][::-1], places[left], places[left + 1 :]
        width *= 2
    return None


def _even_places(low: int, high: int, count: int) -> list[int] | None:
    first, last = _step_after(low), _step_before(high)
    steps = last - first + 1
    if steps < count:
        return None
    return [_place_at(first + (index * steps + steps // 2) // count) for index in range(count)]


# The values left for moves, numbered without gaps: step 0 is place 1, step 63 is place 64, step 64 is place 129.


def _place_at(step: int) -> int:
    return step // STEPS_PER_CELL * CELL + 1 + step % STEPS_PER_CELL


def _step_after(place: int) -> int:
    """The first step whose place is greater than `place`."""
    cell, offset = divmod(place, CELL)
    return (cell + 1) * STEPS_PER_CELL if offset >= STEPS_PER_CELL else cell * STEPS_PER_CELL + offset


def _step_before(place: int) -> int:
    """The last step whose place is smaller than `place`."""
    cell, offset = divmod(place, CELL)
    return cell * STEPS_PER_CELL + min(offset, STEPS_PER_CELL + 1) - 2 if offset else cell * STEPS_PER_CELL - 1
