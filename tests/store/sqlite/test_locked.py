"""A process that is stopped inside a write of the file: the others wait for it, name it, and go on by themselves."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

import apsw
import pytest

from qo.errors import StoreAway, StoreUnavailable
from qo.store.sqlite import SQLiteStore
from qo.store.sqlite.file import lock_holder
from qo.store.sqlite.file import trouble as file_trouble
from qo.store.sqlite.file.schema import MIGRATIONS
from qo.store.sqlite.file.trouble import FileTrouble
from tests.conformance.suite.harness import submission, submit
from tests.processes import Process, program

PATIENCE_SECONDS = 20
"""A net for what never happens."""

HOLDING = """
import sys, time
import apsw
db = apsw.Connection(sys.argv[1])
db.execute("BEGIN IMMEDIATE")
db.execute("INSERT INTO counter VALUES ('half done', 1)")
print("holding", flush=True)
sys.stdin.readline()
db.execute("COMMIT")
print("ended", flush=True)
"""


class FrozenProcess(Process):
    """Another process, stopped by SIGSTOP while it has the write lock."""

    def continue_(self) -> None:
        self.signal(signal.SIGCONT)

    def end_its_write(self) -> None:
        self.continue_()
        self.say("")
        self.ends()


@contextmanager
def frozen(path: str) -> Iterator[FrozenProcess]:
    with FrozenProcess(program(HOLDING, path)) as process:
        process.until("holding")
        process.freeze()
        yield process


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "qo.db")


@pytest.fixture
async def store(path: str) -> AsyncIterator[SQLiteStore]:
    store = await SQLiteStore.open(path)
    yield store
    await store.close()


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_trouble, "WARN_SECONDS", 0.1)
    monkeypatch.setattr(file_trouble, "BUSY_SECONDS", 0.5)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - a thread of the store changes it
            await asyncio.sleep(0.005)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# --- by name --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("short_waits")
async def test_an_operation_that_waited_in_vain_names_the_stopped_process_and_what_to_do(
    store: SQLiteStore, path: str
) -> None:
    with frozen(path) as other, pytest.raises(StoreAway) as raised:
        await store.submit([submission("a")])

    told = str(raised.value)
    assert f"process {other.pid} (python" in told
    assert "holds its write lock and is stopped" in told
    assert f"`kill -CONT {other.pid}`" in told
    assert "nothing was changed" in told
    assert "disk" not in told


async def test_others_wait_with_one_warning_and_go_on_by_themselves_when_the_process_continues(
    store: SQLiteStore, path: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_trouble, "WARN_SECONDS", 0.1)
    with frozen(path) as other:
        waiting = [asyncio.create_task(store.submit([submission(f"job-{number}")])) for number in range(3)]
        await until(lambda: bool(warnings_in(caplog)))
        still_read = (await store.line(limit=0)).queued
        done_meanwhile = [task.done() for task in waiting]

        other.end_its_write()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*waiting)

    assert (still_read, done_meanwhile) == (0, [False] * 3)
    assert (await store.line(limit=0)).queued == 3
    first, last = warnings_in(caplog)
    assert re.search(rf"has waited 0 s to write and goes on waiting: process {other.pid} \(.*\) .*is stopped", first)
    assert re.search(r"can be used again after [\d.]+ s", last)


@pytest.mark.usefixtures("short_waits")
async def test_however_many_operations_wait_in_vain_the_log_says_it_once(
    store: SQLiteStore, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with frozen(path) as other:
        for _ in range(3):
            with pytest.raises(StoreAway):
                await store.submit([submission("a")])
    await submit(store, "a")

    assert len(warnings_in(caplog)) == 2, warnings_in(caplog)
    assert f"process {other.pid}" in warnings_in(caplog)[0]


async def test_what_a_killed_process_had_not_committed_is_undone_and_the_others_go_on(
    store: SQLiteStore, path: str
) -> None:
    with frozen(path) as other:
        waiting = asyncio.create_task(store.submit([submission("a")]))
        other.signal(signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await waiting

    left = await store.read(lambda db: db.execute("SELECT count(*) FROM counter WHERE name = 'half done'").get)
    assert left == 0


@pytest.mark.usefixtures("short_waits")
async def test_opening_a_file_of_an_older_schema_names_the_process_too(path: str) -> None:
    db = apsw.Connection(path)
    db.pragma("journal_mode", "wal")
    db.execute(MIGRATIONS[0])
    db.close()

    with frozen(path) as other, pytest.raises(StoreAway) as raised:
        await SQLiteStore.open(path)

    assert re.search(rf"process {other.pid} .*holds its write lock and is stopped", str(raised.value))


async def test_a_store_is_closed_soon_although_another_process_is_stopped(
    store: SQLiteStore, path: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_trouble, "CLOSING_SECONDS", 0.1)
    monkeypatch.setattr(file_trouble, "WARN_SECONDS", 0.05)
    with frozen(path):
        waiting = asyncio.create_task(store.submit([submission("a")]))
        await until(lambda: bool(warnings_in(caplog)))
        async with asyncio.timeout(5):
            await store.close()

        with pytest.raises(StoreAway):
            await waiting


@pytest.mark.usefixtures("short_waits")
async def test_where_the_system_does_not_tell_that_is_said(
    store: SQLiteStore, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_holder, "LOCKS", tmp_path / "no such file")
    with frozen(path), pytest.raises(StoreAway, match="which process holds its write lock cannot be told here"):
        await store.submit([submission("a")])


@pytest.mark.usefixtures("short_waits")
async def test_the_process_is_found_when_the_store_is_named_by_a_link(path: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    os.symlink(path, tmp_path / "elsewhere" / "link.db")
    store = await SQLiteStore.open(str(tmp_path / "elsewhere" / "link.db"))
    with frozen(path) as other, pytest.raises(StoreAway) as raised:
        await store.submit([submission("a")])
    await store.close()

    assert f"process {other.pid} (python" in str(raised.value)


async def test_a_store_with_a_relative_path_goes_on_when_the_process_changes_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = await SQLiteStore.open("qo.db")
    monkeypatch.chdir(tmp_path / "elsewhere")

    await submit(store, "a")

    assert (await store.line(limit=0)).queued == 1
    await store.close()


# --- reading /proc --------------------------------------------------------------------------------------------


def locks_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *lines: str) -> None:
    file = tmp_path / "locks"
    file.write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.setattr(lock_holder, "LOCKS", file)


class LockLine(TypedDict, total=False):
    """What differs in a line of the kernel's list of locks."""

    pid: int
    bytes_: str
    kind: str
    device: str


def line_for(file: Path, *, pid: int, bytes_: str = "120 120", kind: str = "WRITE", device: str = "") -> str:
    found = file.stat()
    device = device or f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
    return f"1: POSIX  ADVISORY  {kind} {pid} {device}:{found.st_ino} {bytes_}"


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ({}, True),
        ({"bytes_": "0 EOF"}, True),
        ({"bytes_": "121 121"}, True),
        ({"bytes_": "123 123"}, False),
        ({"bytes_": "128 128"}, False),
        ({"kind": "READ"}, False),
        ({"pid": 0}, False),
        ({"pid": -1}, False),
        ({"device": "ff:ff"}, True),
    ],
)
def test_the_holder_is_found_by_device_file_and_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: LockLine, is_found: bool
) -> None:
    """An unknown device is one of a file system that numbers locks differently; this process has the file open."""
    shared = tmp_path / "qo.db-shm"
    with shared.open("w"):
        listed: LockLine = {"pid": os.getpid(), **line}
        locks_with(monkeypatch, tmp_path, "", "nonsense", line_for(shared, **listed))
        found = lock_holder.find_holder(str(tmp_path / "qo.db"))

    assert (found is not None) is is_found


def test_who_only_waits_for_the_lock_is_not_its_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "qo.db-shm"
    shared.touch()
    locks_with(monkeypatch, tmp_path, line_for(shared, pid=os.getpid()).replace("POSIX", "-> POSIX"))

    assert lock_holder.find_holder(str(tmp_path / "qo.db")) is None


@pytest.mark.parametrize(
    ("state", "said"),
    [("T", "kill -CONT 7"), ("t", "debugger"), ("D", "waits for the disk"), ("S", "kill 7"), ("", "kill 7")],
)
def test_what_to_do_depends_on_what_the_holder_does(state: str, said: str) -> None:
    assert said in str(lock_holder.Holder(7, command="any (name) at all", state=state))


def test_a_lock_of_this_very_process_is_called_so() -> None:
    assert "this process itself" in str(lock_holder.Holder(os.getpid(), command="python", state="S"))


# --- other reasons --------------------------------------------------------------------------------------------


async def test_a_full_disk_is_called_so_and_logged_once_and_once_when_it_is_over(
    store: SQLiteStore, caplog: pytest.LogCaptureFixture
) -> None:
    await submit(store, "before")
    pages = await store.writer.call(lambda db: db.pragma("page_count"))
    await store.writer.call(lambda db: db.pragma("max_page_count", pages))
    for _ in range(2):
        with pytest.raises(StoreAway, match=r"the disk of .* is full, nothing was changed\. Free space there"):
            await store.submit([submission("a", payload=b'"' + b"x" * 1_000_000 + b'"')])
    await store.writer.call(lambda db: db.pragma("max_page_count", 1_000_000))
    await submit(store, "after")

    assert (await store.line(limit=0)).queued == 2
    assert len(warnings_in(caplog)) == 2, warnings_in(caplog)


@pytest.mark.parametrize("ending", ["", "-wal", "-shm"])
async def test_nothing_is_acknowledged_into_a_file_that_was_deleted(path: str, ending: str) -> None:
    store = await SQLiteStore.open(path)
    await submit(store, "before")
    os.unlink(path + ending)

    with pytest.raises(StoreAway, match=rf"qo.db{ending} was deleted while .* nothing was changed"):
        await store.submit([submission("a")])
    await store.close()


async def test_nothing_is_acknowledged_into_a_file_that_was_replaced_until_it_is_back(
    store: SQLiteStore, path: str
) -> None:
    await submit(store, "before")
    os.rename(path, f"{path}.kept")
    shutil.copy(f"{path}.kept", path)

    with pytest.raises(StoreAway, match="was replaced by another file"):
        await store.submit([submission("a")])
    os.rename(f"{path}.kept", path)
    await submit(store, "after")

    assert (await store.line(limit=0)).queued == 2


@pytest.mark.parametrize(
    ("error", "said", "may_pass"),
    [
        (
            apsw.ReadOnlyError("attempt to write a readonly database"),
            r"qo\.db cannot be written .*also to read: give it to user",
            False,
        ),
        (apsw.CorruptError("database disk image is malformed"), "restore it from a backup", False),
        (apsw.CantOpenError("unable to open database file"), "could not open its files", True),
        (apsw.IOError("disk I/O error"), r"does not work \(disk I/O error\)", True),
    ],
)
def test_each_reason_has_a_sentence_of_its_own(path: str, error: apsw.Error, said: str, may_pass: bool) -> None:
    told = FileTrouble(path).explain(error)

    assert re.search(said, str(told))
    assert isinstance(told, StoreUnavailable)
    assert isinstance(told, StoreAway) is may_pass


async def test_a_read_that_fails_is_told_in_a_sentence(store: SQLiteStore) -> None:
    def fail(db: apsw.Connection) -> None:
        raise apsw.IOError("disk I/O error")

    with pytest.raises(StoreAway, match="nothing was read"):
        await store.read(fail)
    with pytest.raises(StoreAway, match="nothing was read"):
        await store.look(fail)
