"""Jobs that need the same groups stand in one lane: only the first is looked at, and where it waits, all wait."""

from __future__ import annotations

import random

import pytest

from qo.store.contract import Store
from qo.values import Lease, Limit, Source, Submission, TaskOptions
from tests.conformance.suite.harness import (
    HOUR,
    LEASE,
    NOW,
    acquire,
    active,
    age,
    at,
    claim,
    fresh_id,
    group_status,
    ids,
    limit,
    numbered,
    register,
    series,
    start,
    submission,
    submit,
    submit_all,
    submit_list,
    succeed,
)

pytestmark = pytest.mark.small_bounds


async def claim_in_one_step(store: Store, *, capacity: int = 1) -> list[Lease]:
    """What one claim takes. It must not be a bound that ends it."""
    claimed = await at(store, NOW).claim(
        worker="w1", tasks=["work"], capacity=capacity, lease_ms=LEASE, claim_id=fresh_id("claim")
    )
    assert not claimed.more
    return list(claimed.leases)


@pytest.mark.bounded_by(examine=4)
async def test_a_start_takes_at_most_four_looks_however_many_jobs_of_a_user_wait(store: Store, crowd: int) -> None:
    await start_jobs_of_two_users_by_turns(store, waiting=4 * crowd)


@pytest.mark.nightly
@pytest.mark.bounded_by(examine=4)
async def test_a_start_takes_at_most_four_looks_with_a_hundred_thousand_jobs(
    unchecked_store: Store, crowd: int
) -> None:
    await start_jobs_of_two_users_by_turns(unchecked_store, waiting=100 * crowd)


async def start_jobs_of_two_users_by_turns(store: Store, *, waiting: int) -> None:
    """The user's limit and the provider's are full by turns, so that the user's lane moves between the two."""
    await limit(store, "api", 2)
    await limit(store, "user:u", 1)
    await submit_all(store, numbered("u", waiting), user="u", groups=("api",))
    (mine,) = await claim_in_one_step(store)
    await submit(store, "before", user="v", groups=("api",), priority=10)
    (other,) = await claim_in_one_step(store)

    for number in range(10):
        await submit(store, f"v{number}", user="v", groups=("api",), priority=10)
        await succeed(store, mine)  # the user may go, but the job of the other one is first
        (next_other,) = await claim_in_one_step(store, capacity=5)
        await succeed(store, other)  # now the provider has room, and the user's next job goes
        (mine,) = await claim_in_one_step(store, capacity=5)
        await succeed(store, next_other)  # the provider has room, and the user is at the limit
        assert await claim_in_one_step(store, capacity=5) == []
        await submit(store, f"w{number}", user="v", groups=("api",), priority=10)
        (other,) = await claim_in_one_step(store, capacity=5)

    assert mine.job.id == numbered("u", 11)[-1]
    assert (await store.line(limit=0)).queued == waiting - 11


@pytest.mark.bounded_by(examine=5)
async def test_a_start_takes_at_most_five_looks_with_many_users_of_uneven_demand(store: Store, crowd: int) -> None:
    await start_jobs_of_many_users(store, users=crowd, waiting=crowd)


@pytest.mark.nightly
@pytest.mark.bounded_by(examine=5)
async def test_a_start_takes_at_most_five_looks_with_forty_thousand_jobs_of_many_users(
    unchecked_store: Store, crowd: int
) -> None:
    await start_jobs_of_many_users(unchecked_store, users=crowd, waiting=40 * crowd)


async def start_jobs_of_many_users(store: Store, *, users: int, waiting: int) -> None:
    """Each user has a limit, the provider too. A few users have most of the jobs; for each that ends, one comes."""
    limits = [Limit(group=f"user:u{number}", slots=1 + number % 3, source=Source.OPERATOR) for number in range(users)]
    await at(store, NOW).set_limits([*limits, Limit(group="api", slots=20, source=Source.OPERATOR)])
    demand = random.Random(17)

    def job(number: int) -> Submission:
        user = min(int(demand.paretovariate(0.5)), users) - 1
        return submission(f"job-{number}", user=f"u{user}", groups=("api",))

    await submit_list(store, [job(number) for number in range(waiting)])
    running = await claim(store, capacity=20)
    for number in range(waiting, waiting + 200):
        await succeed(store, running.pop(demand.randrange(len(running))))
        await submit_list(store, [job(number)])
        running += await claim_in_one_step(store)

    assert 0 < len(running) == await active(store, "api")


async def test_a_lane_is_parked_as_a_whole(store: Store) -> None:
    await limit(store, "gpu", 0)
    await submit_all(store, "abc", groups=("gpu",))

    assert (await group_status(store, "gpu")).waiting == 3
    assert await series(store, "rejected:") == {"rejected:gpu": (1, 0)}


async def test_a_lane_stays_where_it_is_when_its_first_job_leaves(store: Store) -> None:
    await limit(store, "gpu", 0)
    await submit_all(store, "abcd", groups=("gpu",))

    await at(store, NOW).cancel(job_id="a")
    await at(store, NOW).set_priority(99, job_id="b")

    assert (await group_status(store, "gpu")).waiting == 3
    assert await series(store, "rejected:") == {"rejected:gpu": (2, 0)}  # the second one is b's new lane
    await limit(store, "gpu", 5)
    assert ids(await claim(store, capacity=5)) == ["c", "d", "b"]


async def test_a_job_that_comes_to_the_front_makes_its_lane_be_looked_at(store: Store) -> None:
    await limit(store, "gpu", 0)
    await limit(store, "user:u1", 0)
    await submit_all(store, "ab", groups=("gpu",), user="u1")
    await limit(store, "user:u1", 5)

    last = await submit(store, "c", groups=("gpu",), user="u1")
    await at(store, NOW).move("c", before="a")

    assert last.position == 3
    assert (await group_status(store, "gpu")).waiting == 3
    assert (await group_status(store, "user:u1")).waiting == 0


async def test_jobs_that_age_keep_their_lane(store: Store) -> None:
    await limit(store, "gpu", 0)
    await submit_all(store, "ab", groups=("gpu",), priority=70)
    await submit(store, "c", groups=("gpu",), priority=70, now=NOW + 1)

    assert await age(store, now=NOW + HOUR) == ["a", "b"]

    assert (await group_status(store, "gpu")).waiting == 3
    assert await series(store, "rejected:") == {"rejected:gpu": (1, 0)}
    await limit(store, "gpu", 5, now=NOW + HOUR)
    assert ids(await claim(store, capacity=5, now=NOW + HOUR)) == ["a", "b", "c"]


async def test_jobs_of_different_groups_do_not_share_a_lane(store: Store) -> None:
    await limit(store, "user:u1", 0)
    await submit(store, "a", user="u1", groups=("gpu",))
    await submit(store, "b", user="u2", groups=("gpu",))
    await submit(store, "c", user="u1")
    await submit(store, "d", project="p1", groups=("gpu",))

    assert ids(await claim(store, capacity=5)) == ["b", "d"]


async def test_as_many_of_a_lane_start_as_a_raised_limit_allows(store: Store) -> None:
    await limit(store, "gpu", 0)
    await submit_all(store, numbered("j", 50), groups=("gpu",))

    await limit(store, "gpu", 10)
    started = [lease for _ in range(12) for lease in await claim(store)]

    assert ids(started) == numbered("j", 10)


async def test_why_answers_for_every_job_of_a_lane(store: Store) -> None:
    await limit(store, "gpu", 1)
    await start(store, "holder", groups=("gpu",))
    await submit_all(store, "abc", groups=("gpu",))

    blockers = [await store.blockers(job_id) for job_id in "abc"]

    assert [[group.group for group in one.groups] for one in blockers] == [["gpu"]] * 3
    assert [one.ahead for one in blockers] == [0, 1, 2]


async def test_a_task_that_names_a_group_no_longer_frees_the_lanes_that_waited_there(store: Store) -> None:
    await limit(store, "gpu", 0)
    await register(store, "w1", TaskOptions(name="work", groups=("gpu",)))
    await submit_all(store, "abc")
    await submit_all(store, "de", groups=("gpu",))

    await register(store, "w1", TaskOptions(name="work"))

    assert (await group_status(store, "gpu")).waiting == 2
    assert ids(await claim(store, capacity=9)) == ["a", "b", "c"]


async def test_callers_that_ask_for_the_same_groups_stand_in_one_lane(store: Store) -> None:
    await limit(store, "api", 0)
    for holder in ("first", "second", "third"):
        await acquire(store, holder, "api", wait_ms=15_000)

    assert (await group_status(store, "api")).waiting == 3
    assert await series(store, "rejected:") == {"rejected:api": (1, 0)}
    await limit(store, "api", 2)
    assert [slot.holder for slot in (await group_status(store, "api")).slots] == ["first", "second"]
    await at(store, NOW).release([("first", None)])
    assert [slot.holder for slot in (await group_status(store, "api")).slots] == ["third", "second"]


async def test_an_urgent_caller_comes_to_the_front_of_its_lane(store: Store) -> None:
    await limit(store, "api", 0)
    await acquire(store, "normal", "api", wait_ms=15_000)
    await acquire(store, "urgent", "api", wait_ms=15_000, priority=10)

    await limit(store, "api", 1)

    assert [slot.holder for slot in (await group_status(store, "api")).slots] == ["urgent"]
    assert (await group_status(store, "api")).waiting == 1
