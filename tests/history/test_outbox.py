"""The outbox of a store on Redis: what is added, in which step, how much, and how it is removed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from qo.errors import HistoryFull
from qo.history.records import Record, records_of
from qo.job import JobError, State
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.store.outbox import Outbox, OutboxEntry, OutboxOptions
from qo.store.redis.store import RedisStore
from qo.values import Keep, RefusalReason, UpkeepRules
from tests.conformance.suite.harness import (
    DAY,
    NOW,
    accepted,
    at,
    catch_up,
    claim,
    fail,
    finish,
    hand_back,
    limit,
    retry_later,
    submit,
    submit_all,
    succeed,
    try_submit,
)
from tests.history.staging import switch_on

MANY = 10_000_000


def outbox_of(store: RedisStore) -> Outbox:
    assert store.outbox is not None
    return store.outbox


async def entries_in(store: RedisStore) -> list[OutboxEntry]:
    return list((await outbox_of(store).next(None, entries=500, bytes_at_most=MANY)).entries)


async def records_in(store: RedisStore) -> list[Record]:
    return records_of(await entries_in(store))


async def contents_in(store: RedisStore) -> list[dict[str, Any]]:
    return [content_of(record) for record in await records_in(store)]


def content_of(record: Record) -> dict[str, Any]:
    """Without what is null."""
    assert record.row is not None
    row: dict[str, Any] = msgspec.json.decode(record.row)
    return {name: value for name, value in row.items() if value is not None}


async def remove_all(store: RedisStore) -> None:
    await outbox_of(store).next((await entries_in(store))[-1], entries=0, bytes_at_most=MANY)


# --- what is added ----------------------------------------------------------------------------------------------


async def test_a_store_without_a_history_adds_nothing(store: RedisStore) -> None:
    await submit(store, "a", by="ada")
    (lease,) = await claim(store)
    await succeed(store, lease)

    assert await entries_in(store) == []
    assert (await outbox_of(store).status()).options.most == 0


async def test_an_accepted_job_is_added_with_whom_it_is_for(store: RedisStore) -> None:
    await switch_on(store)

    await submit(store, "a", user="u1", project="p1", priority=20, groups=("gpu",))

    (found,) = await contents_in(store)
    assert found["kind"] == "job"
    assert found["state"] == "accepted"
    assert (found["job_id"], found["user_id"], found["project"]) == ("a", "u1", "p1")
    assert (found["task"], found["priority"], found["submitted_ms"], found["position"]) == ("work", 20, NOW, 1)
    assert found["groups"] == ["global", "work", "priority:20", "user:u1", "project:p1", "gpu"]
    assert "place" in found
    assert "payload" not in found


async def test_the_end_of_a_job_is_added_with_its_attempt_and_its_promise(store: RedisStore) -> None:
    await switch_on(store)
    await limit(store, "gpu", 1)
    await submit(store, "a", groups=("gpu",))
    await at(store, NOW).note_promises({"a": (1000, 5000)})
    (lease,) = await claim(store, now=NOW + 2000)
    await remove_all(store)

    await succeed(store, lease, now=NOW + 3000)

    (found,) = await contents_in(store)
    assert (found["kind"], found["state"], found["submitted_ms"]) == ("job", "succeeded", NOW)
    assert (found["joined_ms"], found["started_ms"], found["finished_ms"]) == (NOW, NOW + 2000, NOW + 3000)
    assert (found["attempt"], found["attempt_worker"], found["attempt_slots"]) == (1, "w1", {"gpu": 0})
    assert (found["promised_lower_ms"], found["promised_upper_ms"]) == (1000, 5000)


async def test_an_attempt_that_is_repeated_is_added_with_its_error(store: RedisStore) -> None:
    await switch_on(store)
    await submit(store, "a")
    (lease,) = await claim(store)
    await remove_all(store)

    await retry_later(store, lease, at=NOW + 1000)

    (found,) = await contents_in(store)
    assert (found["kind"], found["outcome"], found["attempt"]) == ("attempt", "scheduled", 1)


async def test_an_attempt_that_was_handed_back_is_not_added(store: RedisStore) -> None:
    await switch_on(store)
    await submit(store, "a")
    (lease,) = await claim(store)
    await remove_all(store)

    await hand_back(store, lease)

    assert await entries_in(store) == []


async def test_a_lost_lease_is_added_as_an_attempt(store: RedisStore) -> None:
    await switch_on(store)
    await submit(store, "a")
    await claim(store, lease_ms=1000)
    await remove_all(store)

    await catch_up(store, now=NOW + 1000)

    (found,) = await contents_in(store)
    assert (found["kind"], found["outcome"]) == ("attempt", "lost")


async def test_a_change_by_a_person_is_added(store: RedisStore) -> None:
    await switch_on(store)

    await limit(store, "gpu", 3, by="ada")

    (found,) = await contents_in(store)
    assert (found["kind"], found["action"], found["subject"], found["by_name"]) == ("audit", "limit", "gpu", "ada")


async def test_all_records_of_a_step_are_one_entry_under_the_id_of_the_last(store: RedisStore) -> None:
    await switch_on(store)

    await submit_all(store, ["a", "b", "c"])

    (entry,) = await entries_in(store)
    ids = [record.id for record in records_of([entry])]
    assert ids == [entry.id - 2, entry.id - 1, entry.id]
    assert ids[0] == NOW * 1000
    assert (await outbox_of(store).status()).length == 3


async def test_ids_grow_when_the_clock_is_set_back(store: RedisStore) -> None:
    await switch_on(store)

    await submit(store, "a", now=NOW)
    await submit(store, "b", now=NOW - 1000)

    first, second = await records_in(store)
    assert second.id == first.id + 1


async def test_a_job_that_fails_and_is_forgotten_in_one_step_is_added(store: RedisStore) -> None:
    await switch_on(store)
    await submit(store, "a", start_by_ms=NOW + 1, overdue_message="late")
    await remove_all(store)

    await catch_up(store, now=NOW + 1)
    while (await at(store, NOW + DAY).upkeep(UpkeepRules(keep=Keep(ms=0, jobs=0, events=1, audit=0)))).more:
        pass

    (found,) = await contents_in(store)
    assert (found["job_id"], found["state"], found["error"]) == ("a", "failed", {"message": "late"})


async def test_payloads_and_results_are_added_only_when_that_is_configured(store: RedisStore) -> None:
    await switch_on(store, payloads=True)
    await submit(store, "a", payload=b'{"n":1}')
    (lease,) = await claim(store)
    await finish(store, lease, State.SUCCEEDED, result=b"[2]")

    first, last = await contents_in(store)
    assert first["payload"] == {"n": 1}
    assert last["result"] == [2]


@pytest.mark.parametrize("letter", ["x", "é", "語"])
async def test_a_record_has_at_most_2_kilobytes_however_much_the_job_has(store: RedisStore, letter: str) -> None:
    await switch_on(store)
    await submit(store, "a", user="u1", groups=tuple(f"group-{number:03d}-{'x' * 50}" for number in range(64)))
    (lease,) = await claim(store)
    await fail(store, lease, error=JobError(message=letter * 1000, detail="y" * 5000, debug_id="D1"))

    first, last = await records_in(store)
    assert len(first.packed) <= 2048
    assert len(last.packed) <= 2048
    assert content_of(first)["user_id"] == "u1"
    error = content_of(last)["error"]
    assert error["message"].rstrip("…") == letter * (300 // len(letter.encode()))
    assert error["debug_id"] == "D1"
    assert content_of(last)["debug_id"] == "D1"


# --- what is full -----------------------------------------------------------------------------------------------


async def test_a_full_outbox_refuses_new_jobs_and_takes_the_ends_of_others(store: RedisStore) -> None:
    await switch_on(store, most=2)
    await submit_all(store, ["a", "b"])

    refused = await try_submit(store, "c")
    known = accepted(await try_submit(store, "a"))
    (lease,) = await claim(store)
    await succeed(store, lease)

    assert refused.reason is RefusalReason.HISTORY_FULL  # type: ignore[union-attr]
    assert known.known
    assert (await outbox_of(store).status()).length == 3


async def test_jobs_are_accepted_again_when_the_recorder_has_made_room(store: RedisStore) -> None:
    await switch_on(store, most=2)
    await submit_all(store, ["a", "b"])

    await remove_all(store)

    assert accepted(await try_submit(store, "c"))


async def test_a_submit_that_is_refused_says_what_to_do(store: RedisStore) -> None:
    await switch_on(store, most=1)
    queue = Queue(store, load_settings(environ={}))
    await queue.submit("work")

    with pytest.raises(HistoryFull, match=r"1 records wait .*outbox_max 1\); start one with `qo record`"):
        await queue.submit("work")


async def test_a_full_outbox_that_drops_counts_what_it_drops(store: RedisStore) -> None:
    await switch_on(store, most=2, drops=True)

    await submit_all(store, ["a", "b", "c"])
    await submit(store, "d")

    status = await outbox_of(store).status()
    assert (status.length, status.dropped) == (2, 2)
    assert [content["job_id"] for content in await contents_in(store)] == ["a", "b"]


# --- how it is removed ------------------------------------------------------------------------------------------


async def test_what_was_recorded_is_removed_and_no_more(store: RedisStore) -> None:
    await switch_on(store)
    await submit(store, "a")
    await submit(store, "b")
    first, second = await entries_in(store)

    portion = await outbox_of(store).next(first, entries=500, bytes_at_most=MANY)

    assert portion.entries == (second,)
    assert portion.length == 1


async def test_nothing_is_removed_where_another_entry_has_the_id_by_now(store: RedisStore) -> None:
    await switch_on(store)
    await submit(store, "a")
    (entry,) = await entries_in(store)

    other = msgspec.structs.replace(entry, packed=b"another")
    portion = await outbox_of(store).next(other, entries=500, bytes_at_most=MANY)

    assert portion.entries == (entry,)


async def test_reading_goes_on_behind_an_entry_that_is_there_and_begins_anew_where_it_is_another(
    store: RedisStore,
) -> None:
    await switch_on(store)
    await submit(store, "a")
    await submit(store, "b")
    first, second = await entries_in(store)

    behind = await outbox_of(store).next(None, after=first, entries=500, bytes_at_most=MANY)
    other = msgspec.structs.replace(first, packed=b"another")
    anew = await outbox_of(store).next(None, after=other, entries=500, bytes_at_most=MANY)

    assert behind.entries == (second,)
    assert anew.entries == (first, second)


async def test_a_portion_has_a_bounded_number_of_bytes(store: RedisStore) -> None:
    await switch_on(store)
    for name in "abc":
        await submit(store, name)
    first, second, _ = await entries_in(store)

    size = len(first.packed) + 1
    portion = await outbox_of(store).next(None, entries=500, bytes_at_most=size)

    assert portion.entries == (first, second)


async def test_the_age_of_the_oldest_record_is_known(store: RedisStore) -> None:
    await switch_on(store)
    await submit(store, "a", now=NOW)
    at(store, NOW + 7000)

    assert (await outbox_of(store).status()).age_seconds == 7


async def test_an_outbox_that_is_switched_off_is_empty(store: RedisStore) -> None:
    await switch_on(store)
    await submit(store, "a")

    await outbox_of(store).configure(OutboxOptions(most=0))
    await submit(store, "b")

    assert await entries_in(store) == []
    assert (await outbox_of(store).status()).length == 0
