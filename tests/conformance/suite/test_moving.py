"""Operators put a waiting job before or after another one."""

from __future__ import annotations

import pytest
from harness import HOUR, NOW, age, claim, ids, line, numbered, submit, submit_all

from qo.errors import InvalidTransition, JobNotFound
from qo.store.base import Store

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
async def test_a_moved_job_stands_directly_beside_the_other(store: Store, moved, sides, order) -> None:
    await submit_all(store, "abcde")

    await store.move(moved, **sides, now=NOW)

    assert await line(store) == order.split()
    assert ids(await claim(store, places=5)) == order.split()


async def test_a_moved_job_takes_on_the_neighbours_priority_and_its_group(store: Store) -> None:
    await submit(store, "urgent", priority=10)
    await submit(store, "late", priority=90)

    job = await store.move("late", before="urgent", now=NOW)

    assert (job.priority, job.position) == (10, 1)
    assert "priority:10" in job.groups
    assert "priority:90" not in job.groups


async def test_a_job_moved_beside_an_aged_one_takes_on_its_own_and_its_aged_priority(store: Store) -> None:
    await submit(store, "old", priority=90)
    await age(store, now=NOW + HOUR)
    await submit(store, "new", priority=50, now=NOW + HOUR)

    job = await store.move("new", after="old", now=NOW + HOUR)
    await submit(store, "low", priority=70, now=NOW + HOUR)
    await submit(store, "between", priority=80, now=NOW + HOUR)

    assert job.priority == 90
    assert await line(store) == ["old", "new", "low", "between"]


async def test_a_job_moved_into_a_paused_priority_waits_and_moved_out_starts(store: Store) -> None:
    await store.set_paused("priority:70", True, now=NOW)
    await submit(store, "low", priority=70)
    await submit_all(store, ["a", "b"])

    await store.move("a", after="low", now=NOW)
    held_back = ids(await claim(store, places=5))
    await submit(store, "c")
    await store.move("a", after="c", now=NOW)

    assert held_back == ["b"]
    assert ids(await claim(store, places=5)) == ["c", "a"]


async def test_any_number_of_jobs_can_be_moved_to_the_same_spot(store: Store) -> None:
    await submit_all(store, ["first", "last"])
    moved = numbered("m", 70)
    await submit_all(store, moved)

    for job_id in moved:
        await store.move(job_id, after="first", now=NOW)

    assert await line(store) == ["first", *reversed(moved), "last"]


async def test_any_number_of_jobs_can_be_moved_to_the_front(store: Store) -> None:
    moved = numbered("m", 70)
    await submit_all(store, ["front", *moved])

    front = "front"
    for job_id in moved:
        await store.move(job_id, before=front, now=NOW)
        front = job_id

    assert await line(store) == [*reversed(moved), "front"]


async def test_moving_the_same_job_to_and_fro_never_runs_out_of_places(store: Store) -> None:
    await submit_all(store, ["a", "b", "c"])

    for _ in range(80):
        await store.move("c", before="b", now=NOW)
        assert await line(store) == ["a", "c", "b"]
        await store.move("c", after="b", now=NOW)

    assert await line(store) == ["a", "b", "c"]


async def test_a_job_that_joins_later_stands_behind_those_moved_to_the_end(store: Store) -> None:
    await submit_all(store, ["a", "b", "c"])
    await store.move("a", after="c", now=NOW)

    await submit(store, "d")

    assert await line(store) == ["b", "c", "a", "d"]


async def test_a_moved_job_keeps_what_it_knows_of_its_beginning(store: Store) -> None:
    await submit_all(store, ["a", "b", "c"])

    job = await store.move("c", before="a", now=NOW + HOUR)

    assert (job.position_original, job.position) == (3, 1)
    assert job.joined_at == (await store.job("b")).joined_at


@pytest.mark.parametrize(("moved", "other"), [("runs", "waits"), ("waits", "runs"), ("done", "waits")])
async def test_only_jobs_in_line_are_moved_and_only_beside_each_other(
    store: Store, snapshot, moved: str, other: str
) -> None:
    await submit_all(store, ["runs", "done", "waits"])
    await claim(store)
    await store.cancel(job_id="done", now=NOW)
    before = await snapshot()

    with pytest.raises(InvalidTransition):
        await store.move(moved, before=other, now=NOW)

    assert await snapshot() == before


@pytest.mark.parametrize(("moved", "other"), [("a", "nobody"), ("nobody", "a")])
async def test_a_job_that_does_not_exist_is_not_moved(store: Store, snapshot, moved: str, other: str) -> None:
    await submit(store, "a")
    before = await snapshot()

    with pytest.raises(JobNotFound, match="nobody"):
        await store.move(moved, after=other, now=NOW)

    assert await snapshot() == before
