"""What only the SQLite store has: a file, how it reaches the disk, and which files and addresses it refuses."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from qo.errors import JobNotFound, SettingsError, StoreUnavailable
from qo.job import moment
from qo.store.open import open_store
from qo.store.sqlite import SQLiteStore, access
from qo.store.sqlite.file.schema import MIGRATIONS
from qo.store.sqlite.shared.rows import JobRow
from qo.values import Accepted
from tests.conformance.suite.harness import NOW, at, claim, submission, submit, succeed


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


async def test_closing_lets_go_of_the_file_and_can_be_repeated(tmp_path: Path) -> None:
    store = await SQLiteStore.open(str(tmp_path / "qo.db"))
    await submit(store, "a")
    await store.job("a")

    await store.close()
    await store.close()

    assert await asyncio.to_thread(os.listdir, tmp_path) == ["qo.db"]  # the last one out folds the log into the file


async def test_a_refused_submit_and_an_accepted_one_say_so(store: SQLiteStore) -> None:
    accepted, refused = await store.submit([submission("a", cap=1), submission("b", cap=1)])

    assert isinstance(accepted, Accepted)
    assert not isinstance(refused, Accepted)
    assert (refused.waiting, refused.cap) == (1, 1)


async def test_a_row_in_memory_has_a_field_for_each_column_of_the_table(store: SQLiteStore) -> None:
    columns = await store.read(lambda db: [str(row[1]) for row in db.execute("PRAGMA table_info(job)").fetchall()])

    assert sorted(columns) == sorted(JobRow.__struct_fields__)
