"""The recorder: what it writes, that writing twice changes nothing, and what it does with odd entries."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from qo.history import recorder
from qo.history.records import records_of
from qo.history.writing import Writer
from qo.job import JobError, moment
from qo.policy.groups import RECORDER
from qo.store.redis.store import RedisStore
from tests.conformance.suite.harness import (
    NOW,
    at,
    claim,
    fail,
    limit,
    retry_later,
    submit,
    submit_all,
    succeed,
)
from tests.history.staging import Snapshot, Staged, fresh_database, switch_on, until
from tests.servers.redis import shared_server

MIGRATING_AT_ONCE = 50


# --- what is written --------------------------------------------------------------------------------------------


async def test_a_job_is_written_when_it_is_accepted_and_when_it_ends(staged: Staged) -> None:
    await submit(staged.store, "a", user="u1", by="ada")
    await staged.record()
    before = await staged.states()
    (lease,) = await claim(staged.store, now=NOW + 1000)
    await succeed(staged.store, lease, now=NOW + 4000)

    await staged.record()

    assert before == {"a": "accepted"}
    (row,) = await staged.rows("SELECT * FROM history.jobs")
    assert (row["state"], row["user_id"], row["submitted_by"], row["worker"]) == ("succeeded", "u1", "ada", "w1")
    assert (row["submitted_at"], row["finished_at"]) == (moment(NOW), moment(NOW + 4000))
    assert (row["wait_seconds"], row["run_seconds"]) == (1, 3)
    assert row["place"] is not None


async def test_a_job_that_was_accepted_and_ended_in_one_portion_is_one_row_with_both(staged: Staged) -> None:
    await submit(staged.store, "a", by="ada")
    (lease,) = await claim(staged.store)
    await fail(staged.store, lease, error=JobError(message="No.", debug_id="D1"))

    await staged.record()

    (row,) = await staged.rows("SELECT * FROM history.jobs")
    assert (row["state"], row["submitted_by"]) == ("failed", "ada")
    assert msgspec.json.decode(row["error"])["message"] == "No."
    assert row["place"] is not None


async def test_each_attempt_is_a_row(staged: Staged) -> None:
    await limit(staged.store, "gpu", 1)
    await submit(staged.store, "a", groups=("gpu",))
    (lease,) = await claim(staged.store)
    await retry_later(staged.store, lease, at=NOW + 1000)
    (lease,) = await claim(staged.store, now=NOW + 1000)
    await succeed(staged.store, lease, now=NOW + 2000)

    await staged.record()

    rows = await staged.rows("SELECT * FROM history.attempts ORDER BY ended_at")
    assert [(row["number"], row["outcome"], row["slots"]) for row in rows] == [
        (1, "scheduled", '{"gpu": 0}'),
        (2, "succeeded", '{"gpu": 0}'),
    ]
    assert rows[0]["error"] is not None
    assert rows[1]["error"] is None


async def test_a_job_that_failed_and_was_retried_has_its_last_end(staged: Staged) -> None:
    await submit(staged.store, "a", max_attempts=1)
    (lease,) = await claim(staged.store)
    await fail(staged.store, lease)
    await staged.record()
    await at(staged.store, NOW).retry("a", by="ada")
    (lease,) = await claim(staged.store)
    await succeed(staged.store, lease)

    await staged.record()

    assert await staged.states() == {"a": "succeeded"}
    (entry,) = await staged.rows("SELECT action, subject, by_name FROM history.audit")
    assert entry == {"action": "retry", "subject": "a", "by_name": "ada"}


async def test_a_job_from_before_the_history_is_written_when_it_ends(store: RedisStore) -> None:
    await submit(store, "a", user="u1")
    await switch_on(store)
    (lease,) = await claim(store)
    await succeed(store, lease)

    async with fresh_database() as url:
        staged = Staged(store, url)
        await staged.record()

        assert await staged.states() == {"a": "succeeded"}
        await staged.recorder.close()


async def test_the_daily_view_has_counts_and_percentiles_by_tier_task_and_state(staged: Staged) -> None:
    await submit_all(staged.store, ["a", "b", "c"])
    leases = await claim(staged.store, capacity=3, now=NOW + 2000)
    await succeed(staged.store, *leases[:2], now=NOW + 3000)
    await fail(staged.store, leases[2], now=NOW + 5000)

    await staged.record()

    rows = await staged.rows("SELECT * FROM history.daily ORDER BY state")
    assert [(row["state"], row["count"], row["wait_p50"], row["run_p95"]) for row in rows] == [
        ("failed", 1, 2, 3),
        ("succeeded", 2, 2, 1),
    ]
    assert {row["day"] for row in rows} == {moment(NOW).date()}


# --- once each --------------------------------------------------------------------------------------------------


async def everything(staged: Staged) -> list[list[dict[str, object]]]:
    tables = ("job_rows", "attempt_rows", "audit_rows", "entry_rows", "recorder", "rejected")
    return [await staged.rows(f"SELECT * FROM history.{table} ORDER BY 1, 2") for table in tables]


async def test_writing_twice_changes_nothing(staged: Staged) -> None:
    await submit_all(staged.store, ["a", "b"], by="ada")
    (lease,) = await claim(staged.store)
    await succeed(staged.store, lease)
    snapshot = Snapshot(staged.store, shared_server("valkey").url)
    await staged.record()
    before = await everything(staged)

    snapshot.set_back()  # everything is in the outbox again
    await staged.record(again := staged.new_recorder())

    assert await everything(staged) == before
    assert again.numbers.recorded == 0
    assert (await staged.status()).length == 0
    await again.close()


async def test_an_id_that_the_store_gives_again_for_something_else_is_recorded_under_a_new_one(staged: Staged) -> None:
    await submit(staged.store, "a")
    (lease,) = await claim(staged.store)
    await staged.record()
    snapshot = Snapshot(staged.store, shared_server("valkey").url)
    await succeed(staged.store, lease)
    await limit(staged.store, "gpu", 1, by="ada")
    await submit(staged.store, "lost")
    await staged.record()

    snapshot.set_back()
    # At the very same times, so that the ids are those of the lost entries.
    await fail(staged.store, lease)
    await limit(staged.store, "gpu", 2, by="ben")
    await submit(staged.store, "new")
    await staged.record(again := staged.new_recorder())

    assert await staged.states() == {"a": "failed", "lost": "accepted", "new": "accepted"}
    assert {row["by_name"] for row in await staged.rows("SELECT by_name FROM history.audit")} == {"ada", "ben"}
    assert again.numbers.renumbered == 3
    await again.close()


async def test_entries_with_new_ids_are_known_when_they_are_read_again(staged: Staged) -> None:
    snapshot = Snapshot(staged.store, shared_server("valkey").url)
    await limit(staged.store, "gpu", 1, by="ada")
    await staged.record()
    snapshot.set_back()
    await limit(staged.store, "gpu", 2, by="ben")
    unrecorded = Snapshot(staged.store, shared_server("valkey").url)
    await staged.record()
    before = await everything(staged)

    unrecorded.set_back()
    await staged.record(again := staged.new_recorder())

    assert await everything(staged) == before
    await again.close()


async def test_an_older_end_does_not_replace_a_newer_one(staged: Staged) -> None:
    await submit(staged.store, "a", max_attempts=1)
    (lease,) = await claim(staged.store)
    await fail(staged.store, lease)
    failed = Snapshot(staged.store, shared_server("valkey").url)
    await at(staged.store, NOW).retry("a")
    (lease,) = await claim(staged.store, now=NOW + 1)
    await succeed(staged.store, lease, now=NOW + 2)
    await staged.record()

    failed.set_back()
    await staged.record(again := staged.new_recorder())

    assert await staged.states() == {"a": "succeeded"}
    await again.close()


async def test_an_acceptance_that_comes_after_the_end_takes_nothing_back(staged: Staged) -> None:
    await submit(staged.store, "a")
    (lease,) = await claim(staged.store)
    await succeed(staged.store, lease)
    assert staged.store.outbox is not None
    accepted, ended = (await staged.store.outbox.next(None, entries=2, bytes_at_most=10_000)).entries
    writer = Writer(staged.url, namespace=staged.store.client.namespace, keep_days=90)
    await writer.open()

    for entry in (ended, accepted, ended, accepted):
        await writer.write(records_of([entry]))

    assert await staged.states() == {"a": "succeeded"}
    assert await staged.count("history.attempts") == 1
    await writer.close()


# --- one at a time ----------------------------------------------------------------------------------------------


async def test_a_second_recorder_waits_for_the_slot_of_the_first(staged: Staged) -> None:
    at(staged.store, None)
    first, second = staged.new_recorder(lease_seconds=60), staged.new_recorder(lease_seconds=60)
    running = asyncio.create_task(first.run())
    await until_holder_is_there(staged)
    waiting = asyncio.create_task(second.run())
    await submit_all(staged.store, ["a", "b"], now=None)
    await until_recorded(staged, 2)

    assert second.numbers.recorded == 0

    first.stop()
    await running
    await submit(staged.store, "c", now=None)
    await until_recorded(staged, 3)
    assert second.numbers.recorded == 1
    second.stop()
    await waiting


async def test_many_waiting_records_are_warned_of_once(
    staged: Staged, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MANY_RECORDS", 3)
    await submit_all(staged.store, ["a", "b", "c"])

    await staged.record()

    assert caplog.text.count("3 records wait in the outbox") == 1
    assert "at 1000000 submits are refused" in caplog.text


async def until_holder_is_there(staged: Staged) -> None:
    async def is_there() -> bool:
        return (await staged.store.groups([RECORDER]))[0].active > 0

    await until(is_there)


async def until_recorded(staged: Staged, jobs: int) -> None:
    async def is_recorded() -> bool:
        return await staged.count("history.job_rows") >= jobs

    await until(is_recorded)
