"""How far jobs have moved since they joined the line."""

from __future__ import annotations

from qo.policy.movement import Movement, movements
from qo.policy.ordering import drawn_place, order_key
from qo.values import InLine


def job(
    name: str, *, sequence: int, priority: int = 50, was: int | None = None, key: int | None = None, boost: int = 0
) -> InLine:
    """`was` is the key before a person changed it, `key` the one that a move gave."""
    drawn = order_key(priority, drawn_place(sequence, boost))
    return InLine(
        id=name,
        task="build",
        key=drawn if key is None else key,
        undisturbed_key=was,
        groups=("global", "build", f"priority:{priority}"),
    )


def moved(*line: InLine) -> dict[str, Movement]:
    return movements(sorted(line, key=lambda each: each.key))


def test_a_line_in_the_order_of_joining_has_not_moved() -> None:
    assert moved(job("a", sequence=100), job("b", sequence=101), job("c", sequence=102)) == {}


def test_jobs_ahead_that_started_are_no_movement() -> None:
    assert moved(job("c", sequence=102)) == {}


def test_a_job_placed_ahead_counts_for_each_that_joined_before_it() -> None:
    line = job("a", sequence=100), job("b", sequence=101), job("urgent", sequence=102, priority=10)

    assert moved(*line) == {"a": Movement(placed_ahead=1), "b": Movement(placed_ahead=1)}


def test_a_boosted_job_is_placed_ahead_of_those_it_passes() -> None:
    line = job("a", sequence=100), job("b", sequence=101), job("boosted", sequence=102, boost=1)

    assert moved(*line) == {"b": Movement(placed_ahead=1)}


def test_a_moved_job_gained_the_places_between() -> None:
    was = order_key(50, drawn_place(103, 0))
    to_the_front = order_key(50, drawn_place(100, 0) - 64)
    line = job("a", sequence=100), job("b", sequence=101), job("c", sequence=103, was=was, key=to_the_front)

    assert moved(*line) == {
        "c": Movement(gained=2),
        "a": Movement(placed_ahead=1),
        "b": Movement(placed_ahead=1),
    }


def test_a_job_with_a_better_priority_gained_places() -> None:
    was = order_key(50, drawn_place(102, 0))
    line = job("a", sequence=100), job("b", sequence=101), job("c", sequence=102, priority=10, was=was)

    assert moved(*line)["c"] == Movement(gained=2)


def test_an_aged_job_gained_places_though_nobody_changed_it() -> None:
    aged = order_key(20, drawn_place(102, 0))
    line = job("a", sequence=100), job("b", sequence=101), job("c", sequence=102, key=aged)

    assert moved(*line)["c"] == Movement(gained=2)


def test_a_job_that_was_moved_back_has_those_ahead_that_joined_later() -> None:
    was = order_key(50, drawn_place(100, 0))
    back = order_key(50, drawn_place(102, 0) + 10)
    line = job("a", sequence=100, was=was, key=back), job("b", sequence=101), job("c", sequence=102)

    assert moved(*line) == {"a": Movement(placed_ahead=2)}
