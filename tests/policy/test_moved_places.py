"""Places between two others for jobs that people move, and how crowded places are spread out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qo.policy.ordering import (
    CELL,
    FIRST_SEQUENCE,
    LAST_SEQUENCE,
    MAX_BOOST,
    SPREAD_AT_MOST,
    drawn_place,
    order_key,
    place_between,
    spread_places,
    was_moved,
)


def nobody(place: int) -> bool:
    return False


# --- moving between two others ----------------------------------------------------------------------------------


gaps = st.tuples(st.integers(-1, 10_000), st.integers(1, 3_000)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(gaps, st.booleans(), st.sets(st.integers(0, 13_000), max_size=40))
def test_a_moved_job_stands_strictly_between_on_a_free_value_that_is_never_drawn(
    gap: tuple[int, int], next_to_high: bool, taken: set[int]
) -> None:
    low, high = gap

    place = place_between(low, high, next_to_high=next_to_high, taken=taken.__contains__)

    if place is not None:
        assert low < place < high
        assert was_moved(place)
        assert place not in taken


@given(gaps, st.booleans())
def test_there_is_a_place_between_exactly_when_a_value_for_moves_lies_between(
    gap: tuple[int, int], next_to_high: bool
) -> None:
    low, high = gap

    place = place_between(low, high, next_to_high=next_to_high, taken=nobody)

    assert (place is not None) == any(was_moved(value) for value in range(max(low, -1) + 1, high))


@given(gaps, st.booleans(), st.sets(st.integers(0, 13_000), max_size=400))
def test_no_place_is_given_up_while_one_of_the_64_nearest_is_free(
    gap: tuple[int, int], next_to_high: bool, taken: set[int]
) -> None:
    low, high = gap
    free = [value for value in range(low + 1, high) if was_moved(value)]
    nearest = free[-64:] if next_to_high else free[:64]

    place = place_between(low, high, next_to_high=next_to_high, taken=taken.__contains__)

    assert (place is not None) == any(value not in taken for value in nearest)
    assert place is None or place in nearest


@pytest.mark.parametrize("next_to_high", [True, False])
def test_a_move_to_the_very_front_and_the_very_end_finds_a_place(next_to_high: bool) -> None:
    first = drawn_place(FIRST_SEQUENCE, MAX_BOOST)
    last = drawn_place(LAST_SEQUENCE, 0)
    ceiling = (LAST_SEQUENCE + 1) * CELL

    front = place_between(-1, first, next_to_high=next_to_high, taken=nobody)
    end = place_between(last, ceiling, next_to_high=next_to_high, taken=nobody)

    assert front is not None
    assert 0 < front < first
    assert end is not None
    assert last < end < ceiling
    assert order_key(99, end) < 2**53


def test_several_jobs_can_be_moved_one_after_another_to_the_same_spot() -> None:
    first, last = drawn_place(100, 0), drawn_place(101, 0)
    moved: list[int] = []
    while (place := place_between(first, min(moved, default=last), next_to_high=False, taken=nobody)) is not None:
        moved.append(place)

    assert moved == sorted(moved, reverse=True)
    assert len(moved) >= 6


def test_neighbours_next_to_each_other_leave_no_place() -> None:
    taken = {drawn_place(100, 0) + step for step in range(65)}

    assert place_between(drawn_place(100, 0), drawn_place(100, 0) + 1, next_to_high=False, taken=nobody) is None
    assert place_between(drawn_place(100, 0), drawn_place(101, 0), next_to_high=False, taken=taken.__contains__) is None


# --- spreading out ----------------------------------------------------------------------------------------------


@st.composite
def crowded_gaps(draw: st.DrawFn) -> tuple[list[int], list[int], int, set[int]]:
    """Places on both sides of a gap, nearest first, with a ceiling and some others' places."""
    places = sorted(draw(st.sets(st.integers(0, 40 * CELL), max_size=60)))
    at = draw(st.integers(0, len(places)))
    others = draw(st.sets(st.integers(0, 40 * CELL), max_size=30)) - set(places)
    return places[:at][::-1], places[at:], (draw(st.integers(41, 60))) * CELL, others


@given(crowded_gaps())
def test_spreading_keeps_the_order_of_all_jobs_and_takes_no_place_of_another_job(
    gap: tuple[list[int], list[int], int, set[int]],
) -> None:
    before, after, ceiling, others = gap

    spread = spread_places(before, after, ceiling=ceiling, taken=others.__contains__)

    if spread is not None:
        new_before, moved, new_after = spread
        whole = [
            *before[len(new_before) :][::-1],
            *new_before[::-1],
            moved,
            *new_after,
            *after[len(new_after) :],
        ]
        changed = [*new_before, moved, *new_after]
        assert whole == sorted(set(whole))
        assert all(0 < place < ceiling for place in changed)
        assert all(was_moved(place) for place in changed)
        assert others.isdisjoint(changed)
        assert len(new_before) + len(new_after) <= SPREAD_AT_MOST


def test_spreading_makes_room_where_a_cell_is_used_up() -> None:
    first = drawn_place(100, 0)
    crowd = [first + step for step in range(1, 65)]
    before, after = [*crowd[:32][::-1], first], [*crowd[32:], drawn_place(101, 0)]

    spread = spread_places(before, after, ceiling=drawn_place(102, 0), taken=nobody)

    assert place_between(crowd[31], crowd[32], next_to_high=False, taken=nobody) is None
    assert spread is not None
    new_before, moved, new_after = spread
    assert new_before[0] < moved < new_after[0]


def test_spreading_touches_no_more_than_it_needs() -> None:
    before = [drawn_place(100, 0) + 1, drawn_place(90, 0)]
    after = [drawn_place(100, 0) + 2, drawn_place(110, 0)]

    spread = spread_places(before, after, ceiling=drawn_place(120, 0), taken=nobody)

    assert spread is not None
    assert [len(spread[0]), len(spread[2])] == [1, 1]


def test_spreading_gives_up_when_there_is_no_value_left_at_all() -> None:
    before = [place for place in range(5 * CELL) if was_moved(place)][::-1][: SPREAD_AT_MOST // 2 + 1]
    after = [5 * CELL + place for place in range(5 * CELL) if was_moved(place)][: SPREAD_AT_MOST // 2 + 1]

    assert spread_places(before, after, ceiling=10 * CELL, taken=nobody) is None


def test_an_empty_band_has_room_anywhere_below_the_ceiling() -> None:
    spread = spread_places([], [], ceiling=FIRST_SEQUENCE * CELL, taken=nobody)

    assert spread is not None
    assert spread[0] == spread[2] == []
    assert 0 < spread[1] < FIRST_SEQUENCE * CELL
