"""A tier jumps ahead by so many places, not over everybody."""

from __future__ import annotations

import pytest

from qo.store.contract import Store
from tests.conformance.suite.harness import (
    NOW,
    ask_to_confirm,
    at,
    claim,
    ids,
    line,
    numbered,
    standing,
    submit,
    submit_all,
)

pytestmark = pytest.mark.small_bounds


async def test_ten_normal_jobs_and_then_one_with_boost_five_stands_sixth(store: Store) -> None:
    await submit_all(store, numbered("base", 10))

    boosted = await submit(store, "boosted", user="u1", standing=standing(boost=5))

    assert boosted.position == 6
    assert boosted.position_original == 6
    assert (await line(store)).index("boosted") == 5


async def test_a_hundred_boosted_jobs_delay_a_waiting_base_job_by_at_most_five(store: Store) -> None:
    base = numbered("base", 10)
    await submit_all(store, base)

    for number in range(100):
        await submit(store, f"boosted{number}", user=f"u{number}", standing=standing(boost=5))

    positions = await store.positions(base)
    assert all(positions[job_id].position - rank <= 5 for rank, job_id in enumerate(base, start=1))


async def test_inside_one_tier_the_line_stays_first_in_first_out(store: Store) -> None:
    for number in range(12):
        boost = (0, 2, 5)[number % 3]
        await submit(store, f"{boost}-{number:02d}", user=f"u{boost}", standing=standing(boost=boost))

    order = await line(store)

    for boost in (0, 2, 5):
        of_tier = [job_id for job_id in order if job_id.startswith(f"{boost}-")]
        assert of_tier == sorted(of_tier)


async def test_a_boost_never_crosses_into_another_priority(store: Store) -> None:
    await submit_all(store, ["high1", "high2"], priority=20)
    await submit_all(store, ["a", "b"])

    await submit(store, "boosted", user="u1", standing=standing(boost=63))

    assert await line(store) == ["high1", "high2", "boosted", "a", "b"]


async def test_places_that_others_left_are_not_made_up_for(store: Store) -> None:
    """Boost counts places drawn, not jobs still waiting: two of the five before have started."""
    await submit_all(store, numbered("base", 10))
    await claim(store, capacity=2)
    await at(store, NOW).cancel(job_id="base00010")

    await submit(store, "boosted", user="u1", standing=standing(boost=5))

    assert (await line(store)).index("boosted") == 3
    assert ids(await claim(store, capacity=4))[-1] == "boosted"


async def test_a_place_drawn_anew_is_drawn_with_the_boost(store: Store) -> None:
    await submit(store, "boosted", user="u1", standing=standing(boost=2))
    (lease,) = await claim(store)
    await ask_to_confirm(store, lease)
    await submit_all(store, ["a", "b", "c"])

    await at(store, NOW).confirm("boosted")

    assert await line(store) == ["a", "boosted", "b", "c"]
