"""The backup of docs/operations.md, taken from a store in use, opened, and restored by the page's own commands."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import apsw
import pytest

import qo.sync
from tests.cli.conftest import Call
from tests.docs.operations import SECTIONS, examples
from tests.processes import Process

BACKUP, RESTORE = examples("sh", "Backup")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Where the store and the backup are."""
    store, backups = tmp_path / "store", tmp_path / "backups"
    store.mkdir()
    backups.mkdir()
    return store, backups


def run(commands: str, folders: tuple[Path, Path]) -> None:
    store, backups = folders
    for shown, here in {
        "/srv/qo/.venv/bin/python": sys.executable,
        "/var/lib/qo": str(store),
        "/var/backups/qo": str(backups),
    }.items():
        commands = commands.replace(shown, here)
    subprocess.run(["sh", "-eu", "-c", commands], check=True, timeout=60)


def ids_in(file: Path) -> set[str]:
    with qo.sync.connect(file) as queue:
        return {job.id for job in queue.jobs(limit=10_000)}


class Submitter(threading.Thread):
    """Submits one job after the other, and notes each that was acknowledged."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self.acknowledged: list[str] = []
        self.has_begun = threading.Event()
        self.is_over = threading.Event()

    def run(self) -> None:
        with qo.sync.connect(self._file) as queue:
            for number in count():
                self.acknowledged.append(queue.submit("echo", number).id)
                self.has_begun.set()
                if self.is_over.is_set():
                    return


def test_a_backup_of_a_store_in_use_has_every_job_acknowledged_before_and_can_be_opened(
    folders: tuple[Path, Path], app: Path, start: Callable[..., Process]
) -> None:
    store, backups = folders
    (file, copy) = (store / "qo.db", backups / "qo.db")
    start("worker", "app:worker", "--url", f"sqlite:///{file}").until("runs")
    submitter = Submitter(file)
    submitter.start()
    try:
        assert submitter.has_begun.wait(60)
        before = list(submitter.acknowledged)
        run(BACKUP, folders)
        during = len(submitter.acknowledged)
        run(BACKUP, folders)  # over the first one, as the next day
        assert len(submitter.acknowledged) > during, "nothing was submitted meanwhile"
    finally:
        submitter.is_over.set()
        submitter.join()

    assert apsw.Connection(str(copy)).pragma("integrity_check") == "ok"
    assert set(before) <= ids_in(copy) <= set(submitter.acknowledged)


def test_a_restored_store_is_as_it_was_even_beside_the_log_of_the_old_one(
    folders: tuple[Path, Path], call: Callable[..., Call]
) -> None:
    store, _ = folders
    url = f"sqlite:///{store}/qo.db"
    call("submit", "echo", "--id", "before", "--url", url)
    run(BACKUP, folders)
    # A process that is killed leaves a log behind, with a job that is in no file yet.
    killed = "import os, sys, qo.sync; qo.sync.connect(sys.argv[1]).submit('echo', id='after'); os._exit(0)"
    subprocess.run([sys.executable, "-c", killed, url], check=True)
    assert (store / "qo.db-wal").stat().st_size > 0

    run(RESTORE, folders)

    assert ids_in(store / "qo.db") == {"before"}


def test_a_key_that_was_revoked_after_the_backup_is_valid_again_as_the_page_warns(
    folders: tuple[Path, Path], call: Callable[..., Call]
) -> None:
    url = f"sqlite:///{folders[0]}/qo.db"
    key = call("keys", "create", "--role", "admin", "--url", url, "--json").json["id"]
    run(BACKUP, folders)
    call("keys", "revoke", key, "--url", url)

    run(RESTORE, folders)

    assert "Keys that were revoked since are valid again" in SECTIONS["Backup"]
    assert [each["revoked_at"] for each in call("keys", "list", "--url", url, "--json").json] == [None]


def test_a_backup_of_a_file_that_is_not_there_fails_and_keeps_the_last_one(folders: tuple[Path, Path]) -> None:
    """A wrong path must not look like a backup of an empty store."""
    _, backups = folders
    (backups / "qo.db").write_text("the last one")

    with pytest.raises(subprocess.CalledProcessError):
        run(BACKUP, folders)

    assert [file.name for file in backups.iterdir()] == ["qo.db"]
    assert (backups / "qo.db").read_text() == "the last one"
