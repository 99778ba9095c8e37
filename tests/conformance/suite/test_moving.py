"""Operators put a waiting job before or after another one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.errors import InvalidTransition, JobNotFound
from qo.store.contract import Store
from tests.conformance.suite.harness import HOUR, NOW, age, at, claim, ids, line, numbered, submit, submit_all

pytestmark = pytest.mark.small_bounds


@pytest.mark.parametrize(
    ("moved", "sides", "order"),
    [
        ("d", {"before": "a"}, "d a b c e"),
        ("d", {"before": "b"}, "a d b c e"),
        ("d", {"after": "a"}, "a d b c e"),
        ("a", {"after": "e"}, "b c d e a"),
        ("a", {"before": "e"}, "b c d a e"),
        ("c", {"before": "d"}, "a b c d e"),
        ("c", {"after": "b"}, "a b c d e"),
        ("e", {"after": "d"}, "a b c d e"),
    ],
)
async def test_a_moved_job_stands_directly_beside_the_other(
    store: Store, moved: str, sides: dict[str, str], order: str
) -> None:
    await submit_all(store, "abcde")

    await at(store, NOW).move(moved, before=sides.get("before"), after=sides.get("after"))

    assert await line(store) == order.split()
    assert ids(await claim(store, capacity=5)) == order.split()


async def test_a_moved_job_takes_on_the_neighbours_priority_and_its_group(store: Store) -> None:
    await submit(store, "urgent", priority=10)
    await submit(store, "late", priority=90)

    job = await at(store, NOW).move("late", before="urgent")

    assert (job.priority, job.position) == (10, 1)
    assert "priority:10" in job.groups
    assert "priority:90" not in job.groups


async def test_a_job_moved_beside_an_aged_one_takes_on_its_own_and_its_aged_priority(store: Store) -> None:
    await submit(store, "old", priority=90)
    await age(store, now=NOW + HOUR)
    await submit(store, "new", priority=50, now=NOW + HOUR)

    job = await at(store, NOW + HOUR).move("new", after="old")
    await submit(store, "low", priority=70, now=NOW + HOUR)
    await submit(store, "between", priority=80, now=NOW + HOUR)

    assert job.priority == 90
    assert await line(store) == ["old", "new", "low", "between"]


async def test_a_job_moved_into_a_paused_priority_waits_and_moved_out_starts(store: Store) -> None:
    await at(store, NOW).set_paused("priority:70", True)
    await submit(store, "low", priority=70)
    await submit_all(store, ["a", "b"])

    await at(store, NOW).move("a", after="low")
    held_back = ids(await claim(store, capacity=5))
    await submit(store, "c")
    await at(store, NOW).move("a", after="c")

    assert held_back == ["b"]
    assert ids(await claim(store, capacity=5)) == ["c", "a"]


async def test_any_number_of_jobs_can_be_moved_to_the_same_spot(store: Store) -> None:
    await submit_all(store, ["first", "last"])
    moved = numbered("m", 70)
    await submit_all(store, moved)

    for job_id in moved:
        await at(store, NOW).move(job_id, after="first")

    assert await line(store) == ["first", *reversed(moved), "last"]


async def test_any_number_of_jobs_can_be_moved_to_the_front(store: Store) -> None:
    moved = numbered("m", 70)
    await submit_all(store, ["front", *moved])

    front = "front"
    for job_id in moved:
        await at(store, NOW).move(job_id, before=front)
        front = job_id

    assert await line(store) == [*reversed(moved), "front"]


async def test_moving_the_same_job_to_and_fro_never_runs_out_of_places(store: Store) -> None:
    await submit_all(store, ["a", "b", "c"])

    for _ in range(80):
        await at(store, NOW).move("c", before="b")
        assert await line(store) == ["a", "c", "b"]
        await at(store, NOW).move("c", after="b")

    assert await line(store) == ["a", "b", "c"]


async def test_a_job_that_joins_later_stands_behind_those_moved_to_the_end(store: Store) -> None:
    await submit_all(store, ["a", "b", "c"])
    await at(store, NOW).move("a", after="c")

    await submit(store, "d")

    assert await line(store) == ["b", "c", "a", "d"]


async def test_a_moved_job_keeps_what_it_knows_of_its_beginning(store: Store) -> None:
    await submit_all(store, ["a", "b", "c"])

    job = await at(store, NOW + HOUR).move("c", before="a")

    assert (job.position_original, job.position) == (3, 1)
    assert job.joined_at == (await store.job("b")).joined_at


@pytest.mark.parametrize(("moved", "other"), [("runs", "waits"), ("waits", "runs"), ("done", "waits")])
async def test_only_jobs_in_line_are_moved_and_only_beside_each_other(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]], moved: str, other: str
) -> None:
    await submit_all(store, ["runs", "done", "waits"])
    await claim(store)
    await at(store, NOW).cancel(job_id="done")
    before = await snapshot()

    with pytest.raises(InvalidTransition):
        await at(store, NOW).move(moved, before=other)

    assert await snapshot() == before


@pytest.mark.parametrize(("moved", "other"), [("a", "nobody"), ("nobody", "a")])
async def test_a_job_that_does_not_exist_is_not_moved(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]], moved: str, other: str
) -> None:
    await submit(store, "a")
    before = await snapshot()

    with pytest.raises(JobNotFound, match="nobody"):
        await at(store, NOW).move(moved, after=other)

    assert await snapshot() == before
