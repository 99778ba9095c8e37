"""What is read from the history: pages, one job, daily figures, over HTTP, in the command and by the doctor."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from qo.cli import doctor_history
from qo.cli.doctor import examine
from qo.errors import HistoryAway, InvalidValue, JobNotFound
from qo.history.reading import HistoryReader
from qo.job import JobError, State
from qo.queue.queue import Queue
from qo.service.access.caller import Role
from qo.settings import load_settings
from qo.values import Keep, UpkeepRules
from tests.cli.installed_command import COMMAND
from tests.conformance.suite.harness import (
    DAY,
    HOUR,
    NOW,
    at,
    claim,
    fail,
    finish,
    numbered,
    submit,
    submit_all,
    succeed,
)
from tests.history.staging import Snapshot, Staged, switch_on, until
from tests.processes import Process, environment
from tests.servers.redis import shared_server
from tests.service.conftest import running_service


@pytest.fixture
async def reader(staged: Staged) -> AsyncIterator[HistoryReader]:
    made = HistoryReader(staged.url)
    yield made
    await made.close()


async def end_some(staged: Staged, names: list[str], *, now: int = NOW, **fields: Any) -> None:
    await submit_all(staged.store, names, now=now, **fields)
    leases = await claim(staged.store, capacity=len(names), now=now + 2000)
    await succeed(staged.store, *leases, now=now + 5000)


async def forget_everything(staged: Staged) -> None:
    rules = UpkeepRules(keep=Keep(ms=0, jobs=0, events=1, audit=0))
    while (await at(staged.store, NOW + 10 * DAY).upkeep(rules)).more:
        pass


# --- the reader -------------------------------------------------------------------------------------------------


async def test_pages_give_every_ended_job_once_the_newest_first(staged: Staged, reader: HistoryReader) -> None:
    names = numbered("job-", 7)
    await end_some(staged, names[:4])
    await end_some(staged, names[4:], now=NOW + HOUR)
    await submit(staged.store, "unfinished")
    await staged.record()

    found, after = [], None
    while True:
        page = await reader.page(limit=3, after=after)
        found += [job.id for job in page.jobs]
        after = page.next
        if after is None:
            break

    assert found == sorted(names[4:], reverse=True) + sorted(names[:4], reverse=True)


async def test_filters_leave_only_what_fits_all_of_them(staged: Staged, reader: HistoryReader) -> None:
    await end_some(staged, ["a1", "a2"], user="ann", project="p", priority=20)
    await end_some(staged, ["b1"], user="ben")
    await staged.record()

    async def found(**wanted: Any) -> list[str]:
        return [job.id for job in (await reader.page(limit=10, **wanted)).jobs]

    assert await found(user="ann") == ["a2", "a1"]
    assert await found(user="ann", id_prefix="a1") == ["a1"]
    assert await found(priority=20, project="p", task="work", status="succeeded") == ["a2", "a1"]
    assert await found(status="failed") == []
    assert await found(tier="partner") == await found(parent="p") == []


@pytest.mark.parametrize("after", ["nonsense", "h1-\0", "h1-\ud800", "h999999999999999-x"])
async def test_a_cursor_that_no_page_has_answered_is_refused(reader: HistoryReader, after: str) -> None:
    with pytest.raises(InvalidValue, match="after is '"):
        await reader.page(limit=1, after=after)


async def test_one_job_has_its_attempts_and_its_promise(staged: Staged, reader: HistoryReader) -> None:
    await submit(staged.store, "a", user="ann")
    await at(staged.store, NOW).note_promises({"a": (1000, 3000)})
    (lease,) = await claim(staged.store, now=NOW + 2000)
    await fail(staged.store, lease, now=NOW + 3000, error=JobError(message="No.", debug_id="D1"))
    await staged.record()

    job = (await reader.job("a")).job

    assert (job.state, job.user) == (State.FAILED, "ann")
    assert job.error == JobError(message="No.", debug_id="D1")
    assert job.history is not None
    assert [(each.number, each.outcome, each.debug_id) for each in job.history.attempts] == [(1, "failed", "D1")]
    assert job.history.promise is not None
    assert job.history.promise.upper_bound == 3
    with pytest.raises(JobNotFound):
        await reader.job("b")


async def test_daily_figures_are_those_of_the_days(staged: Staged, reader: HistoryReader) -> None:
    await end_some(staged, ["a", "b"])
    await end_some(staged, ["c"], now=NOW + DAY)
    await submit(staged.store, "d", now=NOW + DAY)
    await staged.record()

    first, second = await reader.daily(since=datetime(2000, 1, 1, tzinfo=UTC))

    assert (first.succeeded, first.unfinished, first.wait_p50, first.run_p95) == (2, 0, 2, 3)
    assert (second.succeeded, second.unfinished) == (1, 1)
    assert second.day - first.day == timedelta(days=1)


async def test_a_reader_says_that_the_history_is_away() -> None:
    reader = HistoryReader("postgresql://postgres@127.0.0.1:1/x")

    with pytest.raises(HistoryAway):
        await reader.page(limit=1)

    await reader.close()


# --- over HTTP --------------------------------------------------------------------------------------------------


def served_queue(staged: Staged) -> Queue:
    settings = {"history": {"url": staged.url}, "server": {"port": 0}}
    return Queue(staged.store, load_settings(settings, environ={}))


async def test_a_job_that_redis_has_forgotten_is_found_in_the_history_and_by_its_id(staged: Staged) -> None:
    await end_some(staged, ["a"], user="ann")
    await staged.record()
    await forget_everything(staged)
    at(staged.store, None)

    async with running_service(served_queue(staged)) as served:
        admin, ann = await served.key(Role.ADMIN), await served.key(Role.USER, user="ann")
        ben = await served.key(Role.USER, user="ben")
        listed = (await served.client.get("/api/history", headers=admin)).json()
        one = (await served.client.get("/api/jobs/a", headers=ann)).json()
        own = (await served.client.get("/api/history", headers=ann)).json()
        daily = (await served.client.get("/api/history/daily?days=400", headers=admin)).json()
        strangers = await served.client.get("/api/jobs/a", headers=ben)
        of_ben = (await served.client.get("/api/history", headers=ben)).json()

    assert [job["id"] for job in listed["items"]] == [job["id"] for job in own["items"]] == ["a"]
    assert (one["state"], one["user"], one["history"]["attempts"][0]["worker"]) == ("succeeded", "ann", "w1")
    assert strangers.status_code == 404
    assert of_ben["items"] == []
    assert daily["is_complete"]


async def test_a_server_records_the_history_and_reports_how_far_it_is_behind(staged: Staged) -> None:
    await switch_on(staged.store)
    at(staged.store, None)
    await submit_all(staged.store, ["a", "b"], now=None)

    async with running_service(served_queue(staged)) as served:
        await staged.until_outbox_is_empty()
        metrics = (await served.client.get("/metrics")).text

    assert await staged.states() == {"a": "accepted", "b": "accepted"}
    assert "qo_history_outbox_entries 0.0" in metrics
    assert "qo_history_lag_seconds 0.0" in metrics


async def test_a_server_whose_recorder_may_not_record_says_so_and_serves(
    staged: Staged, caplog: pytest.LogCaptureFixture
) -> None:
    at(staged.store, None)
    other = staged.url.replace("postgres@", "nobody_knows@")
    queue = Queue(staged.store, load_settings({"history": {"url": other}, "server": {"port": 0}}, environ={}))

    async def is_told() -> bool:
        return "this server does not record the history" in caplog.text

    async with running_service(queue) as served:
        await until(is_told)
        answer = await served.client.get("/api/history")
        alive = await served.client.get("/api/jobs")

    assert (answer.status_code, alive.status_code) == (500, 200)
    assert "nobody_knows" not in answer.text


async def test_a_queue_without_a_recorder_reports_what_waits_for_one(staged: Staged) -> None:
    await submit_all(staged.store, ["a", "b"], now=None)
    queue = Queue(staged.store, load_settings({"server": {"port": 0}}, environ={}))

    async with running_service(queue) as served:
        metrics = (await served.client.get("/metrics")).text

    assert "qo_history_outbox_entries 2.0" in metrics


# --- the command ------------------------------------------------------------------------------------------------


async def run_qo(staged: Staged, *arguments: str) -> str:
    variables = environment() | {
        "QO_URL": shared_server("valkey").url,
        "QO_STORE__NAMESPACE": staged.store.client.namespace,
        "QO_HISTORY__URL": staged.url,
    }
    process = await asyncio.create_subprocess_exec(COMMAND, *arguments, env=variables, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0, out
    return out.decode()


async def test_qo_history_lists_jobs_and_days(staged: Staged) -> None:
    now = int(datetime.now(UTC).timestamp() * 1000)
    await end_some(staged, ["a"], user="ann", now=now - 10_000)
    await staged.record()

    listed = json.loads(await run_qo(staged, "history", "--user", "ann", "--json"))
    table = await run_qo(staged, "history")
    daily = await run_qo(staged, "history", "--daily")

    assert [job["id"] for job in listed] == ["a"]
    assert "succeeded" in table
    assert "waited p50" in daily


async def test_qo_record_records_until_a_signal(staged: Staged) -> None:
    at(staged.store, None)
    await submit_all(staged.store, ["a", "b"], now=None)
    arguments = ["--url", shared_server("valkey").url, "--namespace", staged.store.client.namespace]
    with Process([COMMAND, "record", "--to", staged.url, *arguments]) as process:
        await asyncio.to_thread(process.until, "recording the history into")
        await staged.until_outbox_is_empty()
        process.signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.ends) == 0

    assert await staged.states() == {"a": "accepted", "b": "accepted"}


async def test_qo_record_migrates_and_switches_off(staged: Staged) -> None:
    migrated = await run_qo(staged, "record", "--migrate")
    await submit(staged.store, "a")
    await run_qo(staged, "record", "--off")

    assert "has schema 1 and keeps 90 days" in migrated
    assert await staged.count("history.jobs") == 0
    status = await staged.status()
    assert (status.options.most, status.length) == (0, 0)


# --- the doctor -------------------------------------------------------------------------------------------------


async def test_the_doctor_lists_jobs_that_the_store_has_lost_and_no_others(staged: Staged) -> None:
    now = int(datetime.now(UTC).timestamp() * 1000) - HOUR
    await submit(staged.store, "kept", now=now, run_at_ms=now + DAY)
    await staged.record()
    snapshot = Snapshot(staged.store, shared_server("valkey").url)
    await submit(staged.store, "lost", now=now)
    await submit(staged.store, "ended", now=now, task="other")
    (lease,) = await claim(staged.store, tasks=["other"], now=now)
    await finish(staged.store, lease, State.SUCCEEDED, now=now)
    await staged.record()

    snapshot.set_back()
    at(staged.store, None)
    found = [each for each in await examine(staged.queue) if each.about == "history"]

    (lost,) = found
    assert "1 job stayed accepted" in lost.wrong
    assert "lost (work, " in lost.wrong
    assert "submit them again" in lost.do


async def test_the_doctor_looks_at_all_jobs_without_an_end(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_history, "JOBS_AT_ONCE", 2)
    now = int(datetime.now(UTC).timestamp() * 1000) - HOUR
    await submit_all(staged.store, numbered("kept-", 5), now=now, run_at_ms=now + DAY)
    await staged.record()
    snapshot = Snapshot(staged.store, shared_server("valkey").url)
    await submit_all(staged.store, ["lost-1", "lost-2"], now=now)
    await staged.record()

    snapshot.set_back()
    at(staged.store, None)
    (found,) = [each for each in await examine(staged.queue) if each.about == "history"]

    assert "2 jobs stayed accepted" in found.wrong


async def test_the_doctor_says_that_nobody_records(staged: Staged) -> None:
    await staged.record()
    await submit(staged.store, "a", now=int(datetime.now(UTC).timestamp() * 1000) - HOUR)
    at(staged.store, None)

    found = [each.wrong for each in await examine(staged.queue) if each.about == "history"]

    assert any("1 record waits for the recorder" in wrong for wrong in found)


async def test_the_doctor_says_that_records_were_dropped(staged: Staged) -> None:
    await staged.record()
    await switch_on(staged.store, most=1, drops=True)
    await submit_all(staged.store, ["a", "b"], now=None)

    found = [each.wrong for each in await examine(staged.queue) if each.about == "history"]

    assert found == ["1 record was dropped by a full outbox, so the history has gaps."]


async def test_a_submit_that_the_history_refuses_is_a_503(staged: Staged) -> None:
    await switch_on(staged.store, most=1)
    at(staged.store, None)
    queue = Queue(staged.store, load_settings({"server": {"port": 0}}, environ={}))

    async with running_service(queue) as served:
        first = await served.client.post("/api/jobs", json={"task": "work"})
        second = await served.client.post("/api/jobs", json={"task": "work"})

    assert (first.status_code, second.status_code) == (201, 503)
    assert second.json()["title"] == "History full"
