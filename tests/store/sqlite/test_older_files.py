"""A file of an older qo is brought up to date when it is opened, and nothing in it is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import msgspec

from qo.job import moment
from qo.policy.ordering import CELL, order_key
from qo.store.sqlite import SQLiteStore
from qo.store.sqlite.file.migrations import SUSPECTS
from qo.store.sqlite.file.schema import APPLICATION_ID, LANES, MIGRATIONS
from qo.values import Accepted, Refusal, Registration, TaskOptions
from tests.conformance.invariants import broken_invariants
from tests.conformance.suite.harness import at, claim, group_status, ids, submission
from tests.store.sqlite.snapshot import snapshot

ZEROS: dict[str, Any] = dict.fromkeys(("boost", "deferred", "attempts", "iterations", "cancel_wanted", "reminded"), 0)
"""what a job that has not started yet has in these columns"""


@contextmanager
def older_file(path: str, *, migrations: int) -> Iterator[apsw.Connection]:
    """A file of the qo that had so many migrations, to be given its rows."""
    db = apsw.Connection(path)
    db.execute("".join(MIGRATIONS[:migrations]))
    yield db
    db.pragma("application_id", APPLICATION_ID)
    db.pragma("user_version", migrations)
    db.close()


def insert(db: apsw.Connection, table: str, row: dict[str, Any]) -> None:
    db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", tuple(row.values()))


async def test_a_file_from_before_the_audit_was_cut_goes_on_with_its_numbers(tmp_path: Path) -> None:
    path = str(tmp_path / "qo.db")
    with older_file(path, migrations=1) as db:
        db.execute("INSERT INTO audit VALUES (7, 0, 'ops', 'pause', 'global', '{}')")

    store = await SQLiteStore.open(path)
    await store.set_paused("global", True, by="ops")

    assert [entry.id for entry in await store.audit()] == [8, 7]
    await store.close()


async def test_a_cancelled_phase_of_an_older_file_can_be_submitted_again(tmp_path: Path) -> None:
    path = str(tmp_path / "qo.db")
    with older_file(path, migrations=2) as db:
        cancelled = {"number": 1, "id": "one", "task": "build", "state": "cancelled", "parent": "app", "phase": 1}
        cancelled |= {"priority": 50, "own_groups": "[]", "parent_order": "app", "submitted_at": 1, "finished_at": 2}
        insert(db, "job", {**cancelled, **ZEROS})
        db.execute("INSERT INTO content (number, payload) VALUES (1, x'31')")
        db.execute("INSERT INTO counter VALUES ('last_job', 1); INSERT INTO parent VALUES ('app', 50)")

    store = await SQLiteStore.open(path)
    again, third = await store.submit([submission(name, parent="app", phase=1) for name in ("again", "third")])

    assert isinstance(again, Accepted)
    assert isinstance(third, Refusal)
    await store.close()


async def test_workers_of_a_file_from_before_instances_are_known_with_when_they_were_heard_of(tmp_path: Path) -> None:
    path = str(tmp_path / "qo.db")
    with older_file(path, migrations=2) as db:
        db.execute("INSERT INTO worker VALUES ('w1', '[\"work\"]', 1, 30000, 'h1', 7, 1000, 61000)")

    store = await SQLiteStore.open(path)
    (worker,) = await at(store, 50_000).workers()
    again = Registration(name="w1", instance="new", tasks=(TaskOptions(name="work"),), capacity=1)
    taken = await at(store, 50_000).register(again)
    replaced = await at(store, 50_000).register(msgspec.structs.replace(again, replaces=""))

    assert (worker.instance, worker.heard_at, worker.host) == ("", moment(31_000), "h1")
    assert (taken.namesake, replaced.namesake) == (worker, None)
    await store.close()


async def test_workers_of_a_file_that_still_said_places_keep_their_capacity(tmp_path: Path) -> None:
    path = str(tmp_path / "qo.db")
    with older_file(path, migrations=6) as db:
        worker = {"name": "w1", "tasks": '["work"]', "places": 4, "lifetime_ms": 30_000, "host": "h1", "pid": 7}
        row = {**worker, "registered_at": 1000, "expires_at": 61_000, "instance": "one", "heard_at": 31_000}
        insert(db, "worker", row)

    store = await SQLiteStore.open(path)
    (known,) = await at(store, 50_000).workers()
    again = Registration(name="w1", instance="one", tasks=(TaskOptions(name="work"),), capacity=2)
    await at(store, 50_000).register(again)
    (changed,) = await at(store, 50_000).workers()

    assert (known.instance, known.capacity, known.heard_at) == ("one", 4, moment(31_000))
    assert (changed.instance, changed.capacity) == ("one", 2)
    await store.close()


async def test_jobs_of_a_file_from_before_lanes_start_in_their_order(tmp_path: Path) -> None:
    path = str(tmp_path / "qo.db")
    with older_file(path, migrations=MIGRATIONS.index(LANES)) as db:
        queued = {"task": "work", "state": "queued", "priority": 50, "parent_order": "", **ZEROS}
        queued |= {"submitted_at": 1, "joined_at": 1, "aged_at": 1}
        ready: dict[str, Any] = {"own_groups": "[]", "parked": None}
        parked_in_gpu: dict[str, Any] = {"own_groups": '["gpu"]', "parked": "gpu"}
        for number, place in enumerate([parked_in_gpu, ready, parked_in_gpu, ready], 64):
            key = order_key(50, number * CELL)
            insert(db, "job", {**queued, **place, "number": number, "id": f"job-{number}", "key": key})
            db.execute("INSERT INTO content (number, payload) VALUES (?, x'31')", (number,))
        db.execute("INSERT INTO grp VALUES ('gpu', 1, 1, 0, NULL, 0); INSERT INTO open VALUES ('work', 'gpu', 0)")
        db.execute(
            "INSERT INTO line_count VALUES (50, 4); INSERT INTO counter VALUES ('last_job', 67), ('next_sequence', 68)"
        )
        db.execute("INSERT INTO ticket VALUES ('caller', 1, '[\"gpu\"]', NULL, 9000000000000, 1000, 1000, NULL, 1)")

    store = await SQLiteStore.open(path)
    await store.release([("caller", None)])
    leases = await claim(store, capacity=4)

    assert ids(leases) == ["job-64", "job-65", "job-67"]
    assert broken_invariants(await snapshot(store)) == []
    assert (await group_status(store, "gpu")).waiting == 1
    await store.close()


async def test_jobs_parked_in_a_file_from_before_suspects_start_when_their_group_has_room(tmp_path: Path) -> None:
    path = str(tmp_path / "qo.db")
    with older_file(path, migrations=MIGRATIONS.index(SUSPECTS)) as db:
        row = {"number": 64, "id": "a", "task": "work", "state": "queued", "priority": 50, "own_groups": '["gpu"]'}
        row |= ZEROS
        row |= {"parent_order": "", "submitted_at": 1, "joined_at": 1, "aged_at": 1, "key": order_key(50, 64 * CELL)}
        row |= {"lane": 'work\x1f50\x1f\x1f\x1f\x1f\x1f["gpu"]', "first": 1, "parked": "gpu"}
        insert(db, "job", row)
        db.execute("INSERT INTO content (number, payload) VALUES (64, x'31')")
        db.execute("INSERT INTO grp VALUES ('gpu', 1, 1, 0, NULL, 0)")
        db.execute("INSERT INTO open VALUES ('work', 'gpu', ?)", (row["key"],))
        db.execute(
            "INSERT INTO line_count VALUES (50, 1); INSERT INTO counter VALUES ('last_job', 64), ('next_sequence', 65)"
        )

    store = await SQLiteStore.open(path)

    assert broken_invariants(await snapshot(store)) == []
    assert ids(await claim(store, capacity=4)) == ["a"]
    await store.close()
