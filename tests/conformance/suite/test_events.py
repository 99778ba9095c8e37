"""The feed: everything that happens, in order, from a cursor."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from qo.errors import QoError
from qo.event import CANCEL_WANTED, GRANTED, SIGNALS, Event
from qo.job import Progress, moment
from qo.store.contract import Store
from qo.values import Claimed, Keep, Offer, Unlimited, UpkeepRules
from tests.conformance.suite.harness import (
    HOUR,
    LEASE,
    NOW,
    ask_to_confirm,
    at,
    claim,
    events_of,
    fail,
    hand_back,
    limit,
    retry_later,
    run,
    start,
    submit,
    submit_all,
    succeed,
    ticket,
)

AT_MOST_SECONDS = 30  # a net for a store that never answers; nothing here takes that long
FAR_AWAY = 150 * 365 * 24 * HOUR


async def test_events_are_numbered_without_gaps_from_one(store: Store) -> None:
    await submit_all(store, "abc")
    await claim(store, capacity=2)

    feed = await store.events(0)

    assert [event.id for event in feed.events] == list(range(1, 6))
    assert (feed.cursor, feed.reset) == (5, False)
    assert (await store.events(None)).cursor == 5


async def test_an_event_tells_when_what_and_of_whom(store: Store) -> None:
    await submit(store, "a")

    assert (await store.events(0)).events == (Event(1, moment(NOW), "queued", "a", {"position": 1}),)


async def test_only_wanted_events_are_given_and_the_cursor_passes_the_others(store: Store) -> None:
    await submit_all(store, "abc")
    await claim(store, capacity=1)
    await submit(store, "d")

    of_b = await store.events(0, subjects=["b"])
    starting = await store.events(0, kinds=["starting"])
    cut_short = await store.events(0, kinds=["queued"], limit=2)

    assert ([event.subject for event in of_b.events], of_b.cursor) == (["b"], 5)
    assert ([event.subject for event in starting.events], starting.cursor) == (["a"], 5)
    assert ([event.subject for event in cut_short.events], cut_short.cursor) == (["a", "b"], 2)
    assert (await store.events(0, kinds=[])).events == ()


async def test_the_feed_goes_on_from_a_cursor(store: Store) -> None:
    await submit_all(store, "ab")
    cursor = (await store.events(0)).cursor

    nothing_new = await store.events(cursor)
    await submit(store, "c")
    new = await store.events(cursor)

    assert (nothing_new.events, nothing_new.cursor) == ((), cursor)
    assert [event.subject for event in new.events] == ["c"]


async def test_a_long_feed_comes_in_pages_with_nothing_missed(store: Store) -> None:
    await submit_all(store, "abcdefg")

    seen, cursor = [], 0
    while (feed := await store.events(cursor, limit=3)).events:
        assert len(feed.events) <= 3
        seen += [event.subject for event in feed.events]
        cursor = feed.cursor

    assert seen == list("abcdefg")


async def test_an_empty_store_has_an_empty_feed(store: Store) -> None:
    feed = await store.events(0)

    assert (feed.events, feed.cursor, feed.reset) == ((), 0, False)
    assert (await store.events(None)).cursor == 0


async def test_a_cursor_older_than_what_is_kept_is_told_reset_and_where_to_go_on(store: Store) -> None:
    await submit_all(store, "abcde")
    await at(store, NOW).upkeep(UpkeepRules(keep=Keep(ms=HOUR, jobs=100, events=2, audit=100)))

    old, oldest_good = await store.events(2), await store.events(3)

    assert (old.reset, old.events, old.cursor) == (True, (), 5)
    assert ([event.subject for event in oldest_good.events], oldest_good.reset) == (["d", "e"], False)


async def test_a_jobs_whole_life_is_told(store: Store) -> None:
    await submit(store, "a", run_at_ms=NOW + 1)
    (first,) = await claim(store, worker="w1", now=NOW + 1)
    await run(store, first, stage="code", message="m", progress=Progress(1, 2, "t"), now=NOW + 2)
    await retry_later(store, first, at=NOW + 3, now=NOW + 2)
    (second,) = await claim(store, worker="w2", now=NOW + 3)
    await hand_back(store, second, now=NOW + 3)
    (third,) = await claim(store, now=NOW + 3)
    await ask_to_confirm(store, third, message="Go on?", now=NOW + 4)
    await at(store, NOW + 5).confirm("a")
    (fourth,) = await claim(store, now=NOW + 5)
    await fail(store, fourth, now=NOW + 6)
    await at(store, NOW + 7).retry("a")
    (fifth,) = await claim(store, now=NOW + 7)
    await at(store, NOW + 7).cancel(job_id="a", message="Enough.")
    await succeed(store, fifth, now=NOW + 8)

    assert await events_of(store, "a") == [
        ("scheduled", {"run_at": NOW + 1}),
        ("queued", {"position": 1}),
        ("starting", {"worker": "w1", "attempt": 1}),
        ("running", {}),
        ("stage", {"stage": "code", "message": "m"}),
        ("progress", {"done": 1, "total": 2, "text": "t"}),
        ("scheduled", {"run_at": NOW + 3}),
        ("queued", {"position": 1}),
        ("starting", {"worker": "w2", "attempt": 2}),
        ("queued", {"reason": "handed_back"}),
        ("starting", {"worker": "w1", "attempt": 2}),
        ("running", {}),
        ("confirming", {"message": "Go on?"}),
        ("queued", {"position": 1}),
        ("starting", {"worker": "w1", "attempt": 1}),
        ("failed", {"message": "It broke."}),
        ("queued", {"position": 1}),
        ("starting", {"worker": "w1", "attempt": 1}),
        ("cancel_wanted", {}),
        ("running", {}),
        ("succeeded", {}),
    ]


async def test_changes_by_people_are_told(store: Store) -> None:
    await submit_all(store, "ab")
    await at(store, NOW).set_priority(20, job_id="a")
    await at(store, NOW).move("b", before="a")
    await at(store, NOW).move("b", after="a")
    await at(store, NOW + HOUR).upkeep(UpkeepRules(aging_period_ms=HOUR))
    await at(store, NOW).cancel(job_id="a", message="No.")

    assert await events_of(store, "a") == [
        ("queued", {"position": 1}),
        ("priority", {"priority": 20, "from": 50}),
        ("cancelled", {"message": "No."}),
    ]
    assert await events_of(store, "b") == [
        ("queued", {"position": 2}),
        ("moved", {"before": "a"}),
        ("moved", {"after": "a"}),
    ]


async def test_an_aged_job_is_told_with_its_new_level(store: Store) -> None:
    await submit(store, "a", priority=70)

    await at(store, NOW + HOUR).upkeep(UpkeepRules(aging_period_ms=HOUR))

    assert (await events_of(store, "a"))[-1] == ("aged", {"priority": 50})


async def test_limits_and_pauses_are_told_of_their_group_where_they_change(store: Store) -> None:
    await limit(store, "gpu", 3)
    await limit(store, "gpu", 3)
    await at(store, NOW).set_paused("gpu", True)
    await at(store, NOW).set_paused("gpu", True)
    await at(store, NOW).set_paused("gpu", False)
    await at(store, NOW).set_limits([Unlimited(group="gpu")])
    await at(store, NOW).set_limits([Unlimited(group="gpu")])

    assert await events_of(store, "gpu") == [
        ("limit", {"limit": 3, "source": 1}),
        ("paused", {}),
        ("resumed", {}),
        ("limit", {"limit": None, "source": 1}),
    ]


async def test_a_refused_operation_is_not_told(store: Store) -> None:
    await start(store, "a")
    before = (await store.events(None)).cursor

    for refused in (at(store, NOW).retry("a"), at(store, NOW).confirm("a"), at(store, NOW).move("a", before="b")):
        with pytest.raises(QoError):
            await refused

    assert (await store.events(None)).cursor == before


# --- waiting ----------------------------------------------------------------------------------------------------


async def test_whoever_waits_for_events_is_answered_at_once_when_there_are_some(store: Store) -> None:
    await submit(store, "a")

    assert (await store.events(0, timeout_seconds=AT_MOST_SECONDS)).events


async def test_whoever_waits_for_events_hears_of_the_next_one(store: Store) -> None:
    cursor = (await store.events(None)).cursor
    waiting = asyncio.ensure_future(store.events(cursor, timeout_seconds=AT_MOST_SECONDS))
    await asyncio.sleep(0)  # let it begin to wait; it must not matter whether it has

    await submit(store, "a")

    assert (await waiting).events


async def test_many_watchers_hear_of_one_event(store: Store) -> None:
    waiting = [asyncio.ensure_future(store.events(0, timeout_seconds=AT_MOST_SECONDS)) for _ in range(100)]
    await asyncio.sleep(0)

    await submit(store, "a")

    assert all(feed.events for feed in await asyncio.gather(*waiting))


async def test_whoever_waits_in_vain_is_told_when_the_time_is_up(store: Store) -> None:
    await submit(store, "a")
    cursor = (await store.events(None)).cursor

    assert not (await store.events(cursor, timeout_seconds=0.01)).events


@pytest.mark.parametrize("kind", sorted(SIGNALS))
async def test_a_worker_hears_signals_about_what_it_holds_or_waits_for_and_no_other_events(
    store: Store, kind: str
) -> None:
    await submit(store, "before")
    cursor = (await store.events(None)).cursor
    async with aclosing(store.signals("w1", cursor)) as feeds, asyncio.timeout(AT_MOST_SECONDS):
        assert (await anext(feeds)).events == ()
        await submit(store, "other")
        await cause(store, kind)
        heard = (await anext(feeds)).events

    assert [event.kind for event in heard] == [kind]


async def test_signals_are_told_from_the_cursor_on_each_once_and_in_order(store: Store) -> None:
    await submit(store, "before")
    cursor = (await store.events(None)).cursor
    await cause(store, GRANTED)
    async with aclosing(store.signals("w1", cursor)) as feeds, asyncio.timeout(AT_MOST_SECONDS):
        heard = [*(await anext(feeds)).events]
        await submit(store, "other")
        await cause(store, CANCEL_WANTED)
        while len(heard) < 2:
            feed = await anext(feeds)
            heard += feed.events

    assert [(event.kind, event.subject) for event in heard] == [(GRANTED, "waits"), (CANCEL_WANTED, "before")]
    assert heard == [*(await store.events(cursor, kinds=[GRANTED, CANCEL_WANTED])).events]
    assert cursor < feed.cursor <= (await store.events(None)).cursor


async def test_a_listener_whose_cursor_is_older_than_what_is_kept_is_told(store: Store) -> None:
    await submit_all(store, "abcde")
    await at(store, NOW).upkeep(UpkeepRules(keep=Keep(ms=HOUR, jobs=100, events=2, audit=100)))

    async with aclosing(store.signals("w1", 0)) as feeds:
        feed = await anext(feeds)

    assert (feed.reset, feed.cursor) == (True, (await store.events(None)).cursor)


async def cause(store: Store, kind: str) -> None:
    if kind == GRANTED:
        await limit(store, "gpu", 1)
        held, _ = await at(store, NOW).acquire([ticket("holds", "gpu"), ticket("waits", "gpu", worker="w1")])
        await at(store, NOW).release([("holds", held.token)])
        return
    await limit(store, "work", 1)
    (lease,) = await claim(store, capacity=1)
    if kind == CANCEL_WANTED:
        await at(store, NOW).cancel(job_id=lease.job.id)
    else:
        await at(store, NOW).revoke("work", 0, force=True)


# --- waiting for work: it looks at the present state by the store's own clock, so these give no time -------------


def waiting_for_work(store: Store, *, timeout_seconds: float = AT_MOST_SECONDS) -> asyncio.Future[Claimed]:
    return asyncio.ensure_future(store.wait_for_work(worker="w1", tasks=["work"], timeout_seconds=timeout_seconds))


async def test_a_worker_is_answered_at_once_when_there_is_something_to_claim(store: Store) -> None:
    await submit(store, "a", now=None)

    assert await waiting_for_work(store) == Claimed(more=True)


async def test_a_worker_hears_of_a_job_that_is_submitted(store: Store) -> None:
    waiting = waiting_for_work(store)
    await asyncio.sleep(0)

    await submit(store, "a", now=None)

    assert await waiting == Claimed(more=True)


@pytest.mark.parametrize("nothing", ["empty", "other task", "paused", "full task", "full group", "scheduled", "held"])
async def test_a_worker_is_told_when_the_time_is_up_and_there_is_nothing_for_it(store: Store, nothing: str) -> None:
    match nothing:
        case "other task":
            await submit(store, "a", task="other", now=None)
        case "paused":
            await store.set_paused("global", True)
            await submit(store, "a", now=None)
        case "full task":
            await limit(store, "work", 0, now=None)
            await submit(store, "a", now=None)
        case "full group":
            await limit(store, "gpu", 0, now=None)
            await submit(store, "a", groups=("gpu",), now=None)
        case "scheduled":
            await submit(store, "a", run_at_ms=FAR_AWAY, now=None)
        case "held":
            await submit(store, "a", now=None)
            await claim(store, now=None)

    assert await waiting_for_work(store, timeout_seconds=0.01) == Claimed()


@pytest.mark.parametrize("freed_by", ["finish", "resume", "raise", "remove", "cancel", "release", "priority"])
async def test_work_conserving_a_worker_that_waits_hears_of_everything_that_makes_room(
    store: Store, freed_by: str
) -> None:
    await limit(store, "gpu", 1, now=None)
    lease = await start(store, "holder", groups=("gpu",), now=None)
    await submit(store, "next", groups=("gpu",), now=None)
    if freed_by in ("resume", "priority"):
        await limit(store, "gpu", 2, now=None)
        await store.set_paused("priority:50", True)
    assert await claim(store, now=None) == []
    waiting = waiting_for_work(store)
    await asyncio.sleep(0)

    match freed_by:
        case "finish":
            await succeed(store, lease, now=None)
        case "resume":
            await store.set_paused("priority:50", False)
        case "raise":
            await limit(store, "gpu", 2, now=None)
        case "remove":
            await store.set_limits([Unlimited(group="gpu")])
        case "cancel":
            await store.cancel(job_id="holder")
            await hand_back(store, lease, now=None)
        case "release":
            await store.revoke("gpu", 0, force=True)
        case "priority":
            await store.set_priority(20, job_id="next")

    assert await waiting == Claimed(more=True)
    assert [one.job.id for one in await claim(store, now=None)] == ["next"]


async def test_an_offer_gets_the_job_or_a_wake_up_and_never_both(store: Store) -> None:
    """Which of them is the store's choice; with the same claim id, both ways lead to the one lease."""
    offer = Offer(lease_ms=LEASE, claim_id="offered")
    waiting = asyncio.ensure_future(
        store.wait_for_work(worker="w1", tasks=["work"], timeout_seconds=AT_MOST_SECONDS, offer=offer)
    )
    await asyncio.sleep(0)
    await submit(store, "a", now=None)

    found = await waiting

    claimed = await store.claim(worker="w1", tasks=["work"], capacity=1, lease_ms=LEASE, claim_id="offered")
    assert [lease.job.id for lease in claimed.leases] == ["a"]
    assert found in (Claimed(more=True), Claimed(leases=claimed.leases))
    assert (await store.job("a")).attempts == 1
