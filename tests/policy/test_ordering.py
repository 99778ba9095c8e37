"""The order key: worked examples, and what must hold for every history."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qo.errors import InvalidPriority
from qo.job import NORMAL
from qo.policy import ordering
from qo.policy.ordering import (
    CELL,
    FIRST_SEQUENCE,
    LAST_SEQUENCE,
    MAX_BOOST,
    aged_priority,
    displacement,
    drawn_place,
    joining_order,
    order_key,
    parent_order,
    parse_priority,
    place_of,
    places_around,
    priority_of,
    sequence_drawn,
    sequence_of,
    was_moved,
)

priorities = st.integers(0, 99)
boosts = st.integers(0, MAX_BOOST)
sequences = st.integers(FIRST_SEQUENCE, LAST_SEQUENCE)


def drawn_keys(joiners: list[tuple[int, int]]) -> list[int]:
    """The keys of jobs that join one after another, each given as (priority, boost)."""
    return [
        order_key(priority, drawn_place(FIRST_SEQUENCE + number, boost))
        for number, (priority, boost) in enumerate(joiners)
    ]


# --- priorities -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_value", "number"),
    [("urgent", 10), ("high", 20), ("normal", 50), ("low", 70), ("background", 90), (0, 0), (37, 37), (99, 99)],
)
def test_a_priority_is_a_number_or_a_name(given_value: int | str, number: int) -> None:
    assert parse_priority(given_value) == number


@pytest.mark.parametrize("value", [-1, 100, True, False, "", "50", "URGENT", "soon", 5.0, None])
def test_any_other_priority_is_refused_with_the_value_and_what_is_allowed(value: bool | float | str | None) -> None:
    with pytest.raises(InvalidPriority) as refused:
        parse_priority(value)  # type: ignore[arg-type]  # some of them on purpose

    assert repr(value) in str(refused.value)
    assert "0 (soonest) to 99" in str(refused.value)
    assert "background (90)" in str(refused.value)


@pytest.mark.parametrize(
    ("before", "after"),
    [(99, 90), (91, 90), (90, 70), (71, 70), (70, 50), (51, 50), (50, 20), (49, 20), (21, 20)],
)
def test_aging_moves_up_one_named_level(before: int, after: int) -> None:
    assert aged_priority(before) == after


@pytest.mark.parametrize("priority", [20, 19, 10, 5, 0])
def test_aging_never_goes_above_high(priority: int) -> None:
    assert aged_priority(priority) is None


@given(priorities)
def test_aging_ends_at_high_or_where_it_was(priority: int) -> None:
    levels = [priority]
    while (up := aged_priority(levels[-1])) is not None:
        levels.append(up)

    assert levels == sorted(levels, reverse=True)
    assert levels[-1] == min(priority, 20)
    assert len(levels) <= 6


# --- drawn places -----------------------------------------------------------------------------------------------


def test_ten_joined_and_then_one_with_boost_five_stands_sixth() -> None:
    *ten, boosted = drawn_keys([(NORMAL, 0)] * 10 + [(NORMAL, 5)])

    assert sorted([*ten, boosted]).index(boosted) + 1 == 6


def test_a_hundred_boosted_ones_delay_a_base_job_by_at_most_five() -> None:
    keys = drawn_keys([(NORMAL, 0)] * 10 + [(NORMAL, 5)] * 100)

    for base in keys[:10]:
        own_rank = keys.index(base)
        assert sorted(keys).index(base) - own_rank <= 5


def test_a_smaller_priority_goes_first_whatever_the_place() -> None:
    late_urgent = order_key(10, drawn_place(LAST_SEQUENCE, 0))
    early_high = order_key(20, drawn_place(FIRST_SEQUENCE, MAX_BOOST))

    assert late_urgent < early_high


@given(st.lists(st.tuples(priorities, boosts), min_size=2, max_size=200))
def test_keys_never_tie(joiners: list[tuple[int, int]]) -> None:
    keys = drawn_keys(joiners)

    assert len(set(keys)) == len(keys)


@given(st.lists(st.tuples(priorities, boosts), min_size=2, max_size=200))
def test_places_never_tie_so_a_change_of_priority_never_makes_two_keys_equal(joiners: list[tuple[int, int]]) -> None:
    places = [place_of(key) for key in drawn_keys(joiners)]

    assert len(set(places)) == len(places)


@given(st.lists(boosts, min_size=1, max_size=200))
def test_a_boosted_job_passes_only_those_that_drew_the_places_before_it(joined_boosts: list[int]) -> None:
    keys = drawn_keys([(NORMAL, boost) for boost in joined_boosts])

    for number, (key, boost) in enumerate(zip(keys, joined_boosts, strict=True)):
        passed = [earlier for earlier in range(number) if key < keys[earlier]]
        assert all(number - boost <= earlier for earlier in passed)
        assert len(passed) <= boost


@given(st.lists(boosts, min_size=1, max_size=200), boosts)
def test_a_boosted_job_passes_all_base_jobs_that_drew_the_places_before_it(
    joined_boosts: list[int], boost: int
) -> None:
    keys = drawn_keys([(NORMAL, one) for one in [*joined_boosts, boost]])

    behind = [earlier for earlier, key in enumerate(keys[:-1]) if keys[-1] < key]
    base_just_before = {
        earlier
        for earlier, earlier_boost in enumerate(joined_boosts)
        if earlier_boost == 0 and earlier >= len(joined_boosts) - boost
    }
    assert base_just_before <= set(behind)


@given(st.lists(boosts, min_size=1, max_size=300))
def test_a_waiting_job_is_overtaken_by_at_most_as_many_as_the_boost(joined_boosts: list[int]) -> None:
    keys = drawn_keys([(NORMAL, 0), *[(NORMAL, boost) for boost in joined_boosts]])

    assert sum(key < keys[0] for key in keys[1:]) <= MAX_BOOST
    assert sum(key < keys[0] for key in keys[1:]) <= max(joined_boosts)


@given(st.lists(st.sampled_from([0, 2, 5, MAX_BOOST]), min_size=1, max_size=200))
def test_inside_one_tier_the_line_stays_first_in_first_out(joined_boosts: list[int]) -> None:
    keys = drawn_keys([(NORMAL, boost) for boost in joined_boosts])

    for boost in set(joined_boosts):
        of_tier = [key for key, one in zip(keys, joined_boosts, strict=True) if one == boost]
        assert of_tier == sorted(of_tier)


@given(priorities, sequences, boosts)
def test_a_key_fits_in_53_bits_and_gives_back_its_parts(priority: int, sequence: int, boost: int) -> None:
    place = drawn_place(sequence, boost)
    key = order_key(priority, place)

    assert 0 <= key < 2**53
    assert int(float(key)) == key
    assert (priority_of(key), place_of(key)) == (priority, place)


@pytest.mark.parametrize("boost", [0, 1, MAX_BOOST])
@pytest.mark.parametrize("sequence", [FIRST_SEQUENCE, LAST_SEQUENCE])
def test_the_first_and_the_last_sequence_have_room_for_every_boost(sequence: int, boost: int) -> None:
    place = drawn_place(sequence, boost)

    assert 0 < place < 1 << ordering.PLACE_BITS


@given(sequences, boosts)
def test_a_drawn_place_is_never_one_left_for_moves(sequence: int, boost: int) -> None:
    assert not was_moved(drawn_place(sequence, boost))


# --- joining in the same step -----------------------------------------------------------------------------------


def test_those_that_join_together_go_by_due_time_parent_phase_and_id() -> None:
    joiners = [
        joining_order(1, None, None, 9),
        joining_order(2, None, None, 2),
        joining_order(2, None, None, 10),
        joining_order(2, "9", 1, 10),
        joining_order(2, "9", 2, 2),
        joining_order(2, "10", 1, 2),
        joining_order(2, "10a", 1, 2),
        joining_order(2, "shop", None, 2),
        joining_order(2, "shop", 1, 2),
    ]

    assert joiners == sorted(joiners)


@given(st.integers(0, 10**30), st.integers(0, 10**30))
def test_parents_made_of_digits_compare_as_numbers(one: int, other: int) -> None:
    assert (parent_order(str(one)) < parent_order(str(other))) == (one < other)


@given(st.integers(0, 10**9), st.integers(0, 5))
def test_leading_zeros_do_not_change_a_parent_number(number: int, zeros: int) -> None:
    assert parent_order("0" * zeros + str(number)) == parent_order(str(number))


@given(st.text(alphabet="0123456789", min_size=1, max_size=200), st.text(alphabet="abc", min_size=1, max_size=9))
def test_no_parent_comes_before_numbers_and_numbers_before_names(digits: str, name: str) -> None:
    assert parent_order(None) < parent_order(digits) < parent_order(name)


@pytest.mark.parametrize("parent", ["²", "٣", "1.5", "-1", " 1", ""])
def test_only_plain_digits_make_a_number(parent: str) -> None:
    assert parent_order(parent) > parent_order("9" * 200)


# --- what a key tells of a job's past ------------------------------------------------------------------------------


@given(sequences, boosts)
def test_a_drawn_place_tells_which_sequence_was_drawn(sequence: int, boost: int) -> None:
    assert sequence_of(drawn_place(sequence, boost)) == sequence


@given(sequences, boosts, st.integers(-130, 130), boosts)
def test_jobs_that_joined_later_are_known_without_decoding_except_near_the_place(
    sequence: int, boost: int, offset: int, other_boost: int
) -> None:
    other = max(sequence + offset, FIRST_SEQUENCE)
    place = drawn_place(other, other_boost)
    earlier_up_to, later_after = places_around(sequence)

    if place <= earlier_up_to:
        assert other <= sequence
    if place > later_after:
        assert other > sequence


def test_at_most_126_drawn_places_have_to_be_decoded() -> None:
    sequence = 10_000
    low, high = places_around(sequence)
    cells = range(low // CELL + 1, high // CELL + 1)
    near = {cell + boost for cell in cells for boost in range(MAX_BOOST + 1)}

    assert len(near) == 126


@given(priorities, priorities, sequences, boosts, st.integers(1, 64))
def test_a_moved_job_is_known_by_the_key_it_had_before(
    priority: int, other_priority: int, sequence: int, boost: int, step: int
) -> None:
    drawn = order_key(priority, drawn_place(sequence, boost))
    moved = order_key(other_priority, CELL * sequence + step)

    assert sequence_drawn(drawn, None) == sequence
    assert sequence_drawn(moved, drawn) == sequence
    assert sequence_drawn(moved, None) is None


@pytest.mark.parametrize(
    ("old", "new", "present", "after"),
    [
        (100, 120, None, "moved"),
        (120, 130, "priority", "moved"),
        (130, 120, "priority", "priority"),
        (130, 100, "priority", None),
        (130, 90, "priority", None),
        (90, 95, None, None),
        (100, 100, None, None),
        (90, 120, None, "moved"),
    ],
)
def test_a_job_is_displaced_by_the_last_change_that_put_it_behind_where_it_would_stand(
    old: int, new: int, present: str | None, after: str | None
) -> None:
    assert displacement("moved", undisturbed=100, old=old, new=new, present=present) == after
