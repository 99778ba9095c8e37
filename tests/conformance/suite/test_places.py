"""Places in line: how a job's position came about, so that nobody is told of jobs that were never placed ahead."""

from __future__ import annotations

import random

import pytest

from qo.policy.ordering import MOVED_COUNTED_AT_MOST
from qo.store.contract import Store
from qo.values import Place
from tests.conformance.suite.harness import (
    HOUR,
    MINUTE,
    NOW,
    age,
    at,
    claim,
    hand_back,
    line,
    numbered,
    retry_later,
    standing,
    submission,
    submit,
    submit_all,
    submit_list,
)


async def place(store: Store, job_id: str) -> Place:
    return (await store.positions([job_id]))[job_id]


async def test_a_job_that_stands_where_it_joined_or_better_is_told_of_nobody_ahead(store: Store) -> None:
    await submit_all(store, "abc")
    await claim(store)

    assert await store.positions(["b", "c"]) == {
        "b": Place(position=1, original=2),
        "c": Place(position=2, original=3),
    }


async def test_jobs_of_a_better_priority_that_joined_later_are_counted(store: Store) -> None:
    await submit(store, "early-urgent", priority=10)
    await submit_all(store, "abc")
    await submit_all(store, ["u1", "u2"], priority=10)
    await submit(store, "high", priority=20)
    await submit(store, "low", priority=70)

    assert await place(store, "a") == Place(position=5, original=2, placed_ahead=3)
    assert await place(store, "c") == Place(position=7, original=4, placed_ahead=3)


async def test_jobs_that_were_placed_ahead_and_have_started_are_not_counted_any_more(store: Store) -> None:
    await submit_all(store, "abc")
    await submit_all(store, ["u1", "u2"], priority=10)
    await claim(store)

    assert await place(store, "c") == Place(position=4, original=3, placed_ahead=1)


async def test_more_may_have_been_placed_ahead_than_the_position_is_worse(store: Store) -> None:
    await submit_all(store, "abcd")
    await claim(store, capacity=2)
    await submit_all(store, numbered("u", 5), priority=10)

    assert await place(store, "d") == Place(position=7, original=4, placed_ahead=5)


async def test_a_boosted_job_that_passed_is_counted_and_one_that_did_not_pass_is_not(store: Store) -> None:
    await submit_all(store, numbered("j", 10))
    await submit(store, "boosted", user="u", standing=standing(boost=5))

    assert await place(store, "j00010") == Place(position=11, original=10, placed_ahead=1)
    assert await place(store, "j00006") == Place(position=7, original=6, placed_ahead=1)
    assert await place(store, "j00005") == Place(position=5, original=5)


async def test_of_boosted_jobs_at_a_better_priority_only_those_that_joined_later_are_counted(store: Store) -> None:
    """Their places lie before that of the job, though some of them joined after it."""
    await submit_all(store, numbered("early", 5), priority=20, user="u", standing=standing(boost=63))
    await submit(store, "waits")
    await submit_all(store, numbered("late", 7), priority=20, user="u", standing=standing(boost=63))
    await submit_all(store, numbered("plain", 3), priority=20)

    assert await place(store, "waits") == Place(position=16, original=6, placed_ahead=10)


async def test_a_boosted_job_counts_like_any_other(store: Store) -> None:
    await submit_all(store, "abc")
    await submit(store, "boosted", user="u", standing=standing(boost=2))
    await submit_all(store, ["u1", "u2"], priority=10)
    await submit(store, "more", user="v", standing=standing(boost=5))

    assert await place(store, "boosted") == Place(position=5, original=2, placed_ahead=3)


async def test_a_job_that_was_handed_back_was_not_placed_ahead(store: Store) -> None:
    await submit(store, "first")
    (lease,) = await claim(store)
    await submit(store, "second")
    await hand_back(store, lease)

    assert await place(store, "second") == Place(position=2, original=1, placed_ahead=0)


async def test_a_job_that_is_retried_draws_a_new_place_and_counts_as_placed_ahead(store: Store) -> None:
    await submit(store, "urgent", priority=10)
    (lease,) = await claim(store)
    await submit(store, "waits")
    await retry_later(store, lease, at=NOW + MINUTE)
    await at(store, NOW + MINUTE).catch_up()

    assert await place(store, "waits") == Place(position=2, original=1, placed_ahead=1)


async def test_an_earlier_job_whose_priority_was_raised_did_not_join_later(store: Store) -> None:
    await submit(store, "low", priority=70)
    await submit(store, "waits")
    await at(store, NOW).set_priority(10, job_id="low")

    assert await place(store, "waits") == Place(position=2, original=1, placed_ahead=0)


async def test_a_job_that_an_operator_moved_back_says_so(store: Store) -> None:
    await submit_all(store, "abc")

    job = await at(store, NOW).move("a", after="c")

    assert job.displaced == "moved"
    assert await place(store, "a") == Place(position=3, original=1, placed_ahead=2, displaced="moved")
    assert await place(store, "c") == Place(position=2, original=3)


async def test_a_job_whose_priority_was_lowered_says_so(store: Store) -> None:
    await submit_all(store, "abc")

    (job,) = await at(store, NOW).set_priority(70, job_id="a")

    assert job.displaced == "priority"
    assert await place(store, "a") == Place(position=3, original=1, placed_ahead=2, displaced="priority")


async def test_the_newest_change_that_put_a_job_back_is_the_reason(store: Store) -> None:
    await submit_all(store, "abcd")
    await at(store, NOW).set_priority(70, job_id="a")
    await at(store, NOW).set_priority(70, job_id="b")

    assert (await at(store, NOW).move("a", after="b")).displaced == "moved"
    assert (await at(store, NOW).move("a", before="b")).displaced == "moved"
    assert (await at(store, NOW).set_priority(90, job_id="a"))[0].displaced == "priority"


async def test_a_job_that_a_person_put_where_it_was_or_before_is_not_displaced(store: Store) -> None:
    await submit_all(store, "abcd")
    await at(store, NOW).set_priority(70, job_id="b")
    await at(store, NOW).move("c", after="d")

    assert (await at(store, NOW).set_priority(50, job_id="b"))[0].displaced is None
    assert (await at(store, NOW).move("c", before="a")).displaced is None
    assert (await at(store, NOW).move("d", before="a")).displaced is None


async def test_a_job_that_joins_anew_is_not_displaced_any_more(store: Store) -> None:
    await submit_all(store, "ab")
    await at(store, NOW).move("a", after="b")
    leases = await claim(store, capacity=2)
    await retry_later(store, leases[1], at=NOW + MINUTE)
    await at(store, NOW + MINUTE).catch_up()
    await submit(store, "urgent", priority=10, now=NOW + MINUTE)

    assert await place(store, "a") == Place(position=2, original=1, placed_ahead=1)


async def test_a_running_jobs_priority_that_is_lowered_with_its_parents_counts_when_it_comes_back(store: Store) -> None:
    await submit(store, "one", parent="p", phase=1)
    (lease,) = await claim(store)
    await at(store, NOW).set_priority(70, parent="p")
    await submit(store, "other")
    await hand_back(store, lease)

    assert await place(store, "one") == Place(position=2, original=1, placed_ahead=1, displaced="priority")


async def test_a_later_job_that_was_moved_ahead_is_counted_and_an_earlier_one_is_not(store: Store) -> None:
    await submit(store, "early", priority=70)
    await submit_all(store, ["a", "waits", "late"])
    await at(store, NOW).move("early", before="a")
    await at(store, NOW).move("late", before="a")

    assert await place(store, "waits") == Place(position=4, original=2, placed_ahead=1)


async def test_moving_a_moved_job_again_does_not_make_it_a_later_one(store: Store) -> None:
    await submit(store, "early", priority=70)
    await submit(store, "waits")
    await submit(store, "late", priority=70)
    for _ in range(2):
        await at(store, NOW).move("early", before="waits")
        await at(store, NOW).move("late", before="waits")

    assert await place(store, "waits") == Place(position=3, original=1, placed_ahead=1)


async def test_neighbours_that_made_room_are_known_by_when_they_joined(store: Store) -> None:
    """More jobs are moved into one gap than it has places for, so those around it are spread out."""
    await submit_all(store, ["a", "b"])
    await submit_all(store, numbered("m", 30))
    for name in numbered("m", 30):
        await at(store, NOW).move(name, before="b")
    await submit(store, "urgent", priority=10)

    assert await place(store, "a") == Place(position=2, original=1, placed_ahead=1)
    assert await place(store, "b") == Place(position=33, original=2, placed_ahead=31)


async def test_where_very_many_jobs_were_moved_nothing_is_counted(store: Store) -> None:
    """What a count may cost is bounded, and a number that is not known is not told."""
    beside = numbered("beside", 16)  # four to a gap, or neighbours would be moved to make room
    *most, one_more = numbered("m", MOVED_COUNTED_AT_MOST + 1)
    await submit_all(store, [*beside, "waits", *most, one_more])
    for number, name in enumerate(most):
        await at(store, NOW).move(name, after=beside[number % 16])
    assert await place(store, "waits") == Place(position=81, original=17, placed_ahead=MOVED_COUNTED_AT_MOST)

    await at(store, NOW).move(one_more, after=beside[0])

    assert await place(store, "waits") == Place(position=82, original=17)


async def test_a_job_that_has_aged_counts_from_where_it_stands(store: Store) -> None:
    await submit(store, "old", priority=70)
    await submit(store, "waits", now=NOW + 1)
    await age(store, now=NOW + HOUR)
    await submit(store, "high", priority=20, now=NOW + HOUR)

    assert await place(store, "waits") == Place(position=3, original=1, placed_ahead=1)
    assert await place(store, "old") == Place(position=2, original=1, placed_ahead=1)


async def test_of_many_jobs_each_is_counted_for_itself(store: Store, crowd: int) -> None:
    waiting = numbered("n", crowd // 5)
    await submit_list(
        store,
        [
            each
            for number, name in enumerate(waiting)
            for each in (
                submission(name),
                submission(f"high-{name}", priority=20, user=f"u{number}", standing=standing(boost=number % 9)),
                submission(f"urgent-{name}", priority=10),
            )
        ],
    )

    places = await store.positions([*waiting, "nobody"])

    assert [places[job_id].placed_ahead for job_id in waiting] == [2 * (len(waiting) - n) for n in range(len(waiting))]


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_people_do_the_count_is_that_of_jobs_ahead_that_joined_later(store: Store, seed: int) -> None:
    rng = random.Random(seed)
    joined: dict[str, int] = {}
    for number in range(120):
        boost = rng.choice([0, 0, 1, 5, 63])
        job_id, user = f"j{number}", f"boosted-by-{boost}"
        await submit(store, job_id, priority=rng.choice([10, 50, 50, 70]), user=user, standing=standing(boost=boost))
        joined[job_id] = number
        if number % 4 == 0:
            await at(store, NOW).set_priority(rng.choice([10, 30, 50, 90]), job_id=rng.choice(await line(store)))
        if number % 4 == 1 and number > 20:
            moved, other = rng.sample(await line(store), 2)
            before, after = rng.choice([(other, None), (None, other)])
            await at(store, NOW).move(moved, before=before, after=after)
        if number % 6 == 2:
            (lease,) = await claim(store)
            if rng.random() < 0.5:
                await hand_back(store, lease)

    in_line = await line(store)
    places = await store.positions(in_line)

    worse = 0
    for rank, job_id in enumerate(in_line, start=1):
        place = places[job_id]
        assert place.position == rank
        if rank > place.original:
            worse += 1
            assert place.placed_ahead == sum(joined[other] > joined[job_id] for other in in_line[: rank - 1])
        else:
            assert place.placed_ahead is None
    assert worse > 20
