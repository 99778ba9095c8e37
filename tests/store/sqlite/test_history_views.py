"""The views of a file over the history that it keeps."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from qo.errors import SettingsError
from qo.history.recorder import outbox_of
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.store.sqlite import SQLiteStore
from tests.conformance.suite.harness import NOW, at, claim, fail, submit, submit_all, succeed


async def test_the_views_have_jobs_days_and_changes(tmp_path: Path) -> None:
    path = str(tmp_path / "qo.db")
    store = await SQLiteStore.open(path)
    await submit_all(store, ["a", "b", "c", "d"], user="ann")
    leases = await claim(store, capacity=3, now=NOW + 2000)
    await succeed(store, *leases[:2], now=NOW + 3000)
    await fail(store, leases[2], now=NOW + 6000)
    await at(store, NOW).set_priority(20, job_id="d", by="ada")
    await store.close()

    db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    jobs = db.execute("SELECT id, state, user_id, wait_seconds, run_seconds FROM history_jobs ORDER BY id").fetchall()
    daily = db.execute("SELECT day, task, state, count, wait_p50, run_p95 FROM history_daily ORDER BY state").fetchall()
    changes = db.execute("SELECT at, by_name, action, subject FROM history_audit").fetchall()
    db.close()

    assert jobs == [
        ("a", "succeeded", "ann", 2.0, 1.0),
        ("b", "succeeded", "ann", 2.0, 1.0),
        ("c", "failed", "ann", 2.0, 4.0),
        ("d", "accepted", "ann", None, None),
    ]
    assert daily == [
        ("2024-10-04", "work", "accepted", 1, None, None),
        ("2024-10-04", "work", "failed", 1, 2.0, 4.0),
        ("2024-10-04", "work", "succeeded", 2, 2.0, 1.0),
    ]
    assert changes == [("2024-10-04T10:00:00.000Z", "ada", "priority", "d")]


async def test_percentiles_are_values_that_so_many_are_not_above(tmp_path: Path) -> None:
    path = str(tmp_path / "qo.db")
    store = await SQLiteStore.open(path)
    for number in range(1, 21):
        await submit(store, f"job-{number}", now=NOW)
        (lease,) = await claim(store, now=NOW)
        await succeed(store, lease, now=NOW + number * 1000)
    await store.close()

    db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    found = db.execute("SELECT run_p50, run_p95 FROM history_daily").fetchall()
    db.close()

    assert found == [(10.0, 19.0)]


async def test_a_file_needs_no_recorder() -> None:
    store = await SQLiteStore.open(":memory:")

    with pytest.raises(SettingsError, match=r"keeps its history itself .* history_jobs, history_daily"):
        outbox_of(Queue(store, load_settings(environ={})))

    await store.close()
