"""A file that cannot be used for now: why in a sentence, logged once when it begins and once when it is over."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress

import apsw

from qo.errors import StoreAway, StoreUnavailable
from qo.store.sqlite.file.lock_holder import told_holder

log = logging.getLogger("qo.store")

MEMORY = ":memory:"
BUSY_SECONDS = 30.0
"""How long an operation waits for another process to end its write, unless the store was opened with another time."""
WARN_SECONDS = 3.0
"""How long it waits before the log says for whom."""
STEP_SECONDS, PATIENT_STEP_SECONDS = 0.0005, 0.01
"""How long it sleeps between two looks, at first and after it has warned."""
CLOSING_SECONDS = 2.0
"""How long it waits at most once the store is being closed."""


class FileTrouble:
    """The state of a store's file, shared by all its connections. May be used from any thread."""

    def __init__(self, path: str, *, busy_seconds: float | None = None) -> None:
        self.path = path
        self._busy_seconds = BUSY_SECONDS if busy_seconds is None else busy_seconds
        # SQLite keeps its log beside the file that a link leads to; and a process may change its working directory.
        self.file = path if path == MEMORY else os.path.realpath(path)
        self._lock = threading.Lock()
        self._told: type[Exception] | None = None
        self._began = 0.0
        self._give_up_at: float | None = None

    def give_up_soon(self) -> None:
        """The store is being closed: wait only briefly for other processes from now on."""
        self._give_up_at = time.monotonic() + CLOSING_SECONDS

    def wait_in(self, db: apsw.Connection) -> None:
        """Let this connection wait for other processes, and say so in the log when it takes long."""
        began = 0.0

        def wait(attempt: int) -> bool:
            nonlocal began
            now = time.monotonic()
            if attempt == 0:
                began = now
            waited = now - began
            if waited > self._busy_seconds or (self._give_up_at is not None and now > self._give_up_at):
                return False
            if waited > WARN_SECONDS:
                self._tell_of_lock(waited)
            # SQLite's own waiting grows to 100 ms a step; between processes that take turns every millisecond
            # that would leave the file idle most of the time.
            time.sleep(PATIENT_STEP_SECONDS if waited > WARN_SECONDS else STEP_SECONDS)
            return True

        db.set_busy_handler(wait)

    def explain(self, error: Exception, *, done: str = "nothing was changed") -> StoreUnavailable:
        """Returns the error to raise for an error of SQLite or of qo, and logs it if it is news. `done` says what was
        changed or read."""
        told = error if isinstance(error, StoreUnavailable) else self._sentence(error, done)
        if not isinstance(error, apsw.BusyError) or self._give_up_at is None:
            self._tell(type(error), str(told))
        return told

    def over(self) -> None:
        """The file has been written."""
        if self._told is None:
            return
        with self._lock:
            told, self._told = self._told, None
        if told is not None:
            log.warning("the store %s can be used again after %.1f s", self.path, time.monotonic() - self._began)

    def _tell_of_lock(self, waited: float) -> None:
        if self._told is not apsw.BusyError:
            self._tell(
                apsw.BusyError,
                f"the store {self.path} has waited {waited:.0f} s to write and goes on waiting: "
                f"{told_holder(self.file)}.",
                since=waited,
            )

    def _tell(self, kind: type[Exception], sentence: str, *, since: float = 0.0) -> None:
        with self._lock:
            if self._told is kind:
                return
            if self._told is None:
                self._began = time.monotonic() - since
            self._told = kind
        log.warning("%s", sentence)

    def _sentence(self, error: Exception, done: str) -> StoreUnavailable:
        path, folder = self.path, os.path.dirname(self.file)
        match error:
            case apsw.BusyError():
                return StoreAway(f"The store {path} is locked by another process, {done}: {told_holder(self.file)}.")
            case apsw.FullError():
                return StoreAway(
                    f"The store {path} could not write: the disk of {folder} is full, {done}. Free space there."
                )
            case apsw.ReadOnlyError() | apsw.PermissionsError():
                return StoreUnavailable(
                    f"{path} cannot be written ({error}), {done}. qo needs the right to write the file and its folder "
                    f"{folder}, also to read: give it to user {_user()}, and see that the disk is not read-only."
                )
            case apsw.CorruptError() | apsw.NotADBError():
                return StoreUnavailable(
                    f"The store {path} is damaged ({error}), {done}. Stop its processes and restore it from a backup."
                )
            case apsw.CantOpenError():
                return StoreAway(
                    f"The store {path} could not open its files, {done}. See that the folder {folder} is there, "
                    f"that user {_user()} may write in it, and that this process has not too many files open."
                )
            case apsw.IOError():
                return StoreAway(
                    f"The disk of the store {path} does not work ({error}), {done}. Check it, and the system's log."
                )
        return StoreAway(f"The store {path} could not be used ({error}), {done}.")


def _user() -> str:
    with suppress(OSError, KeyError, ImportError):
        import getpass

        return getpass.getuser()
    return "of this process"


# --- a file that is gone ----------------------------------------------------------------------------------------


class FileIdentity:
    """The files that this process has open: what is written to a deleted one is lost when it is closed."""

    def __init__(self, trouble: FileTrouble) -> None:
        self._path = trouble.path
        self._known = {file: _identity(file) for file in (trouble.file, f"{trouble.file}-wal", f"{trouble.file}-shm")}

    def check(self) -> None:
        """Raises StoreAway when a file is not the one that was opened."""
        for file, known in self._known.items():
            found = _identity(file)
            if known is None:
                self._known[file] = found  # SQLite begins its log with the first write
            elif found != known:
                what = "was deleted" if found is None else "was replaced by another file"
                raise StoreAway(
                    f"The file {file} {what} while the store {self._path} was open; nothing was changed. Put it back, "
                    "or stop all processes of this store and start them again, which begins with what is there then."
                )


def _identity(file: str) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino
