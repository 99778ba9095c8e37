"""What only the SQLite store has: a file, its schema, and other processes on it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from qo.errors import JobNotFound, SettingsError, StoreUnavailable
from qo.job import moment
from qo.policy.ordering import CELL, order_key
from qo.store.open import open_store
from qo.store.sqlite import SQLiteStore, access
from qo.store.sqlite import store as store_module
from qo.store.sqlite.file.migrations import SUSPECTS
from qo.store.sqlite.file.schema import APPLICATION_ID, LANES, MIGRATIONS
from qo.store.sqlite.operations.is_claimable import is_claimable
from qo.store.sqlite.shared.rows import JobRow
from qo.values import Accepted, Claimed, Refusal, Registration, TaskOptions
from tests.conformance.invariants import broken_invariants
from tests.conformance.suite.harness import NOW, at, claim, group_status, ids, submission, submit, succeed
from tests.processes import Process, program
from tests.store.sqlite.snapshot import snapshot


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    store = await SQLiteStore.open(str(tmp_path / "qo.db"))
    yield store
    await store.close()


# --- the file -------------------------------------------------------------------------------------------------


async def test_what_was_answered_is_there_when_the_file_is_opened_again(tmp_path: Path) -> None:
    first = await SQLiteStore.open(str(tmp_path / "qo.db"))
    await submit(first, "a")
    await first.close()

    second = await SQLiteStore.open(str(tmp_path / "qo.db"))

    assert (await second.job("a")).position == 1
    await second.close()


class WatchedFile(apsw.VFSFile):
    """A file as SQLite uses it, which notes when its content was made to reach the disk."""

    def __init__(self, base: str, name: apsw.URIFilename | str | None, flags: list[int], calls: list[str]) -> None:
        super().__init__(base, name, flags)
        filename = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._kind = filename.rpartition("qo.db")[2]
        self._calls = calls

    def xWrite(self, data: Any, offset: int) -> None:
        super().xWrite(data, offset)
        self._calls.append(f"write{self._kind}")

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._calls.append(f"sync{self._kind}")


class WatchedDisk(apsw.VFS):
    """The usual way from SQLite to the disk, watched."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._usual = apsw.vfs_names()[0]
        super().__init__("watched", self._usual, makedefault=True)

    def xOpen(self, name: apsw.URIFilename | str | None, flags: list[int]) -> WatchedFile:
        return WatchedFile(self._usual, name, flags, self.calls)


@pytest.fixture
def disk() -> Iterator[WatchedDisk]:
    usual = apsw.vfs_names()[0]
    watched = WatchedDisk()
    yield watched
    watched.unregister()
    assert apsw.vfs_names()[0] == usual


async def test_commits_reach_the_disk(disk: WatchedDisk, tmp_path: Path) -> None:
    """Before the answer: what was written to the log is behind a sync."""
    store = await SQLiteStore.open(str(tmp_path / "qo.db"))
    lease = None
    try:
        for number in range(3):
            for call in ("submit", "claim", "finish"):
                disk.calls.clear()
                if call == "submit":
                    await submit(store, f"job-{number}")
                elif call == "claim":
                    (lease,) = await claim(store)
                else:
                    assert lease is not None
                    await succeed(store, lease)
                log = [one for one in disk.calls if one.endswith("-wal")]

                assert "write-wal" in log
                assert log[-1] == "sync-wal", call
    finally:
        await store.close()


async def test_an_operations_time_is_read_when_it_runs_and_not_when_it_is_called(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer is busy meanwhile, as it is behind another process that holds the file."""
    now = NOW
    monkeypatch.setattr(access, "system_ms", lambda: now)
    begun, go_on = threading.Event(), threading.Event()

    def busy(db: apsw.Connection) -> None:
        begun.set()
        assert go_on.wait(20)

    blocked = asyncio.create_task(store.writer.call(busy))
    await asyncio.to_thread(begun.wait, 20)
    submitting = asyncio.create_task(submit(store, "a", now=None))
    await asyncio.sleep(0)  # the call is made, and waits behind the other
    now += 5000
    go_on.set()
    await blocked

    assert (await submitting).submitted_at == moment(NOW + 5000)


async def test_the_log_is_folded_into_the_file_while_the_writer_goes_on(tmp_path: Path) -> None:
    store = await SQLiteStore.open(str(tmp_path / "qo.db"))
    payload = b'"' + b"x" * 400_000 + b'"'
    for number in range(150):
        await at(store, NOW).submit([submission(f"job-{number}", payload=payload)])

    written, log = 150 * len(payload), (tmp_path / "qo.db-wal").stat().st_size

    assert log < written / 2
    await store.close()
    assert not (tmp_path / "qo.db-wal").exists()


async def test_a_file_of_a_newer_qo_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "qo.db"
    await (await SQLiteStore.open(str(path))).close()
    db = apsw.Connection(str(path))
    db.pragma("user_version", len(MIGRATIONS) + 1)
    db.close()
    before = path.read_bytes()

    with pytest.raises(StoreUnavailable, match=r"written by a newer qo .* upgrade qo"):
        await SQLiteStore.open(str(path))

    assert path.read_bytes() == before


async def test_a_file_from_before_the_audit_was_cut_goes_on_with_its_numbers(tmp_path: Path) -> None:
    path = str(tmp_path / "qo.db")
    db = apsw.Connection(path)
    db.execute(MIGRATIONS[0])
    db.execute("INSERT INTO audit VALUES (7, 0, 'ops', 'pause', 'global', '{}')")
    db.pragma("application_id", APPLICATION_ID)
    db.pragma("user_version", 1)
    db.close()

    store = await SQLiteStore.open(path)
    await store.set_paused("global", True, by="ops")

    assert [entry.id for entry in await store.audit()] == [8, 7]
    await store.close()


async def test_a_cancelled_phase_of_an_older_file_can_be_submitted_again(tmp_path: Path) -> None:
    path = str(tmp_path / "qo.db")
    db = apsw.Connection(path)
    db.execute("".join(MIGRATIONS[:2]))
    cancelled = {"number": 1, "id": "one", "task": "build", "state": "cancelled", "parent": "app", "phase": 1}
    cancelled |= {"priority": 50, "own_groups": "[]", "parent_order": "app", "submitted_at": 1, "finished_at": 2}
    zeros = ("boost", "deferred", "attempts", "iterations", "cancel_wanted", "reminded")
    row = {**cancelled, **dict.fromkeys(zeros, 0)}
    db.execute(f"INSERT INTO job ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", tuple(row.values()))
    db.execute("INSERT INTO content (number, payload) VALUES (1, x'31'); INSERT INTO counter VALUES ('last_job', 1)")
    db.execute("INSERT INTO parent VALUES ('app', 50)")
    db.pragma("application_id", APPLICATION_ID)
    db.pragma("user_version", 2)
    db.close()

    store = await SQLiteStore.open(path)
    again, third = await store.submit([submission(name, parent="app", phase=1) for name in ("again", "third")])

    assert isinstance(again, Accepted)
    assert isinstance(third, Refusal)
    await store.close()


async def test_workers_of_a_file_from_before_instances_are_known_with_when_they_were_heard_of(tmp_path: Path) -> None:
    path = str(tmp_path / "qo.db")
    db = apsw.Connection(path)
    for migration in MIGRATIONS[:2]:
        db.execute(migration)
    db.execute("INSERT INTO worker VALUES ('w1', '[\"work\"]', 1, 30000, 'h1', 7, 1000, 61000)")
    db.pragma("application_id", APPLICATION_ID)
    db.pragma("user_version", 2)
    db.close()

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
    db = apsw.Connection(path)
    for migration in MIGRATIONS[:6]:
        db.execute(migration)
    worker = {"name": "w1", "tasks": '["work"]', "places": 4, "lifetime_ms": 30_000, "host": "h1", "pid": 7}
    row = {**worker, "registered_at": 1000, "expires_at": 61_000, "instance": "one", "heard_at": 31_000}
    db.execute(f"INSERT INTO worker ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", tuple(row.values()))
    db.pragma("application_id", APPLICATION_ID)
    db.pragma("user_version", 6)
    db.close()

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
    db = apsw.Connection(path)
    before = MIGRATIONS[: MIGRATIONS.index(LANES)]
    db.execute("".join(before))
    queued = {"task": "work", "state": "queued", "priority": 50, "parent_order": "", "submitted_at": 1, "joined_at": 1}
    queued |= dict.fromkeys(("boost", "deferred", "attempts", "iterations", "cancel_wanted", "reminded"), 0)
    for number, (groups, parked) in enumerate([('["gpu"]', "gpu"), ("[]", None), ('["gpu"]', "gpu"), ("[]", None)], 64):
        row = {**queued, "number": number, "id": f"job-{number}", "own_groups": groups, "parked": parked, "aged_at": 1}
        row["key"] = order_key(50, number * CELL)
        db.execute(f"INSERT INTO job ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", tuple(row.values()))
        db.execute("INSERT INTO content (number, payload) VALUES (?, x'31')", (number,))
    db.execute("INSERT INTO grp VALUES ('gpu', 1, 1, 0, NULL, 0); INSERT INTO open VALUES ('work', 'gpu', 0)")
    db.execute(
        "INSERT INTO line_count VALUES (50, 4); INSERT INTO counter VALUES ('last_job', 67), ('next_sequence', 68)"
    )
    db.execute("INSERT INTO ticket VALUES ('caller', 1, '[\"gpu\"]', NULL, 9000000000000, 1000, 1000, NULL, 1)")
    db.pragma("application_id", APPLICATION_ID)
    db.pragma("user_version", len(before))
    db.close()

    store = await SQLiteStore.open(path)
    await store.release([("caller", None)])
    leases = await claim(store, capacity=4)

    assert ids(leases) == ["job-64", "job-65", "job-67"]
    assert broken_invariants(await snapshot(store)) == []
    assert (await group_status(store, "gpu")).waiting == 1
    await store.close()


async def test_jobs_parked_in_a_file_from_before_suspects_start_when_their_group_has_room(tmp_path: Path) -> None:
    path = str(tmp_path / "qo.db")
    db = apsw.Connection(path)
    before = MIGRATIONS[: MIGRATIONS.index(SUSPECTS)]
    db.execute("".join(before))
    row = {"number": 64, "id": "a", "task": "work", "state": "queued", "priority": 50, "own_groups": '["gpu"]'}
    row |= dict.fromkeys(("boost", "deferred", "attempts", "iterations", "cancel_wanted", "reminded"), 0)
    row |= {"parent_order": "", "submitted_at": 1, "joined_at": 1, "aged_at": 1, "key": order_key(50, 64 * CELL)}
    row |= {"lane": 'work\x1f50\x1f\x1f\x1f\x1f\x1f["gpu"]', "first": 1, "parked": "gpu"}
    db.execute(f"INSERT INTO job ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", tuple(row.values()))
    db.execute("INSERT INTO content (number, payload) VALUES (64, x'31')")
    db.execute("INSERT INTO grp VALUES ('gpu', 1, 1, 0, NULL, 0)")
    db.execute("INSERT INTO open VALUES ('work', 'gpu', ?)", (row["key"],))
    db.execute(
        "INSERT INTO line_count VALUES (50, 1); INSERT INTO counter VALUES ('last_job', 64), ('next_sequence', 65)"
    )
    db.pragma("application_id", APPLICATION_ID)
    db.pragma("user_version", len(before))
    db.close()

    store = await SQLiteStore.open(path)

    assert broken_invariants(await snapshot(store)) == []
    assert ids(await claim(store, capacity=4)) == ["a"]
    await store.close()


async def test_an_sqlite_file_of_somebody_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE theirs (x)")
    db.close()

    with pytest.raises(StoreUnavailable, match="not a qo store"):
        await SQLiteStore.open(str(path))

    tables = apsw.Connection(str(path)).execute("SELECT name FROM sqlite_schema").fetchall()
    assert tables == [("theirs",)]


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database at all, but long enough to be looked at " * 20)

    with pytest.raises(StoreUnavailable, match=r"notes.txt cannot be opened"):
        await SQLiteStore.open(str(path))


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="nowhere"):
        await SQLiteStore.open(str(tmp_path / "nowhere" / "qo.db"))


@pytest.mark.parametrize("url", ["", "qo.db", "sqlite://", "sqlite://host/qo.db", "mysql://x/y", "memory://x"])
async def test_a_url_that_no_store_understands_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match=r"store\.url"):
        await open_store(url)


async def test_a_namespace_is_a_file_of_its_own(tmp_path: Path) -> None:
    default = await open_store(f"sqlite:///{tmp_path}/qo.db")
    team = await open_store(f"sqlite:///{tmp_path}/qo.db", namespace="team")
    await submit(default, "a")

    with pytest.raises(JobNotFound):
        await team.job("a")

    await default.close()
    await team.close()


# --- other processes ------------------------------------------------------------------------------------------


async def test_a_waiting_worker_is_woken_by_a_submit_through_another_connection(tmp_path: Path) -> None:
    waiter = await SQLiteStore.open(str(tmp_path / "qo.db"))
    other = await SQLiteStore.open(str(tmp_path / "qo.db"))
    woken = asyncio.create_task(waiter.wait_for_work(worker="w", tasks=["work"], timeout_seconds=30))
    await asyncio.sleep(0)

    await submit(other, "a", now=None)

    assert (await woken).more
    await waiter.close()
    await other.close()


async def test_waiting_for_work_ends_without_any_when_the_time_is_up(store: SQLiteStore) -> None:
    await submit(store, "a", task="another", now=None)

    assert await store.wait_for_work(worker="w", tasks=["work"], timeout_seconds=0.05) == Claimed()


async def test_waiting_on_a_memory_store_does_not_wake_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    store = await SQLiteStore.open(":memory:")
    looks: list[int] = []
    really = is_claimable

    def noted(db: apsw.Connection, *, worker: str, tasks: Sequence[str], suspects: int | None, now: int) -> bool:
        looks.append(now)
        return really(db, worker=worker, tasks=tasks, suspects=suspects, now=now)

    monkeypatch.setattr(store_module, "is_claimable", noted)

    assert await store.wait_for_work(worker="w", tasks=["work"], timeout_seconds=0.25) == Claimed()

    assert 1 <= len(looks) <= 5  # at once, and every tenth of a second for what time itself brings
    await store.close()


async def test_closing_lets_go_of_the_file_and_can_be_repeated(tmp_path: Path) -> None:
    store = await SQLiteStore.open(str(tmp_path / "qo.db"))
    await submit(store, "a")
    await store.job("a")

    await store.close()
    await store.close()

    assert await asyncio.to_thread(os.listdir, tmp_path) == ["qo.db"]  # the last one out folds the log into the file


@pytest.mark.parametrize("path", ["qo.db", ":memory:"])
async def test_who_waits_on_a_store_that_is_closed_is_told(tmp_path: Path, path: str) -> None:
    store = await SQLiteStore.open(path if path == ":memory:" else str(tmp_path / path))
    waiting = asyncio.create_task(store.events(0, timeout_seconds=30))
    await asyncio.sleep(0.02)

    await store.close()

    with pytest.raises(StoreUnavailable, match="is closed"):
        await waiting
    with pytest.raises(StoreUnavailable, match="is closed"):
        await store.jobs()


async def test_followers_are_woken_by_an_event(store: SQLiteStore) -> None:
    after = (await store.events(None)).cursor
    woken = asyncio.create_task(store.events(after, timeout_seconds=30))
    await asyncio.sleep(0)

    await submit(store, "a")

    assert (await woken).events
    assert [event.subject for event in (await store.events(after)).events] == ["a"]


SUBMIT_AT_THE_CAP = """
import asyncio, sys
from qo.store.sqlite import SQLiteStore
from qo.store.sqlite.operations import read_groups as watching
from qo.values import Accepted, Submission

async def main(path, name):
    store = await SQLiteStore.open(path)
    sys.stdin.readline()
    answers = await asyncio.gather(
        *(store.submit([Submission(id=f"{name}-{n}", task="work", cap=100)]) for n in range(25))
    )
    print(sum(isinstance(answer, Accepted) for (answer,) in answers))
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_hundred_submits_from_four_processes_at_99_of_100_admit_exactly_one(store: SQLiteStore) -> None:
    await store.submit([submission(f"job-{number}") for number in range(99)])
    commands = [program(SUBMIT_AT_THE_CAP, store.path, f"process-{number}") for number in range(4)]

    outputs = [process.output() for process in await run_at_once(commands)]

    assert sorted(outputs) == ["0\n", "0\n", "0\n", "1\n"]
    assert (await store.line(limit=0)).queued == 100


async def test_a_refused_submit_and_an_accepted_one_say_so(store: SQLiteStore) -> None:
    accepted, refused = await store.submit([submission("a", cap=1), submission("b", cap=1)])

    assert isinstance(accepted, Accepted)
    assert not isinstance(refused, Accepted)
    assert (refused.waiting, refused.cap) == (1, 1)


async def test_a_row_in_memory_has_a_field_for_each_column_of_the_table(store: SQLiteStore) -> None:
    columns = await store.read(lambda db: [str(row[1]) for row in db.execute("PRAGMA table_info(job)").fetchall()])

    assert sorted(columns) == sorted(JobRow.__struct_fields__)


async def run_at_once(commands: list[list[str]]) -> list[Process]:
    """Start them, let all go on together, and wait for their ends."""
    with ExitStack() as until_the_end:
        processes = [until_the_end.enter_context(Process(command)) for command in commands]
        for process in processes:
            process.say("go")
        await asyncio.gather(*(process.ended() for process in processes))
    return processes


OPEN_AND_SUBMIT = """
import asyncio, sys
from qo.store.sqlite import SQLiteStore
from qo.values import Submission

async def main(path, name):
    sys.stdin.readline()
    store = await SQLiteStore.open(path)
    await store.submit([Submission(id=name, task="work")])
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_many_processes_may_make_the_same_new_file_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "qo.db")

    processes = await run_at_once([program(OPEN_AND_SUBMIT, path, f"process-{number}") for number in range(6)])

    store = await SQLiteStore.open(path)
    assert [process.ends() for process in processes] == [0] * 6
    assert (await store.line(limit=0)).queued == 6
    await store.close()
