"""How groups are labelled: summed by kind, at most 200 by name, the others together."""

from __future__ import annotations

from qo.queue.queue import Queue
from qo.service.metrics import QueueMetrics
from qo.service.metrics.group_labels import MOST_BY_NAME, OTHER
from qo.values import Limit, Source
from tests.conformance.suite.harness import MINUTE, NOW, at, limit, numbered, start, succeed
from tests.service.metrics.scraping import assert_none_went_down, named, scrape


async def limit_all(queue: Queue, groups: list[str], *, slots: int) -> None:
    limits = [Limit(group=group, slots=slots, source=Source.OPERATOR) for group in groups]
    await at(queue.store, NOW).set_limits(limits)


async def test_groups_with_a_reserved_prefix_are_summed_under_their_kind(queue: Queue, metrics: QueueMetrics) -> None:
    await limit(queue.store, "user:u1", 3)
    await limit(queue.store, "user:u2", 4)
    await start(queue.store, "a", user="u1")
    await start(queue.store, "b", user="u2")
    await start(queue.store, "c", user="u3")  # without a limit, so without a slot

    numbers = await scrape(metrics)

    assert named(numbers, "qo_concurrency_slots_active") == {("user",): 2}
    assert named(numbers, "qo_concurrency_slots_limit") == {("user",): 7}
    assert named(numbers, "qo_concurrency_acquisition_total") == {("user", "acquired"): 2, ("user", "rejected"): 0}


async def test_a_group_with_a_colon_of_its_own_keeps_its_name(queue: Queue, metrics: QueueMetrics) -> None:
    await limit(queue.store, 'customer:"1"', 1)
    await start(queue.store, "a", groups=('customer:"1"',))

    numbers = await scrape(metrics)

    assert numbers["qo_concurrency_acquisition_total", 'customer:"1"', "acquired"] == 1


async def test_at_most_200_groups_have_names_and_the_others_are_summed(queue: Queue, metrics: QueueMetrics) -> None:
    groups = numbered("g", MOST_BY_NAME + 20)
    await limit_all(queue, groups, slots=2)
    await limit(queue.store, "global", 1000)
    for group in groups:
        await start(queue.store, f"job-{group}", groups=(group,))

    numbers = await scrape(metrics)

    for name, each in (("qo_concurrency_slots_active", 1), ("qo_concurrency_slots_limit", 2)):
        found = named(numbers, name)
        assert set(found) == {("global",), (OTHER,), *((group,) for group in groups[:MOST_BY_NAME])}
        assert found[OTHER,] == 20 * each
    acquired = named(numbers, "qo_concurrency_acquisition_total")
    assert (acquired["g00001", "acquired"], acquired[OTHER, "acquired"]) == (1, 20)
    assert numbers["qo_concurrency_wait_seconds_count", OTHER] == 20


async def test_a_group_keeps_its_label_when_others_come_and_go(queue: Queue, metrics: QueueMetrics) -> None:
    groups = numbered("g", MOST_BY_NAME + 5)
    await limit_all(queue, groups, slots=5)
    for group in groups:
        await succeed(queue.store, await start(queue.store, f"job-{group}", groups=(group,)))
    before = await scrape(metrics)
    for group in groups[:10]:
        await queue.remove_limit(group)
    await limit(queue.store, "a-comes-first", 1)
    await start(queue.store, "late", groups=("a-comes-first",), now=NOW + MINUTE)
    await start(queue.store, "again", groups=(groups[-1],), now=NOW + MINUTE)

    after = await scrape(metrics)

    assert_none_went_down(before, after)
    acquired = named(after, "qo_concurrency_acquisition_total")
    assert ("a-comes-first", "acquired") not in acquired
    assert acquired[OTHER, "acquired"] == 5 + 2


async def test_a_group_of_the_name_other_is_one_of_the_others(queue: Queue, metrics: QueueMetrics) -> None:
    await limit(queue.store, OTHER, 3)

    assert named(await scrape(metrics), "qo_concurrency_slots_limit") == {(OTHER,): 3}
