"""Objects in a bucket: list, read, and write under a condition, with a definite result.

A conditional write that failed may have taken effect: the reply may be lost, the server may have answered 500 after
writing, and repeating a write that took effect is answered with 412. So after any failure the object is read back:

- it has our own body: written;
- it has another body than the condition asked for: not written, and it never will be, as no body is written twice;
- it still has the body that the condition asked for: not written yet. The same bytes are sent again under the same
  condition, so at most one of these requests takes effect, however late it arrives.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from qo import chance
from qo.errors import SettingsError, StoreUnavailable
from qo.forking import when_forked
from qo.store.bucket.address import BucketAddress

try:
    import obstore
except ImportError:
    raise SettingsError("Slots on a bucket need a driver; install it with: pip install 'qo-queue[s3]'.") from None

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore

ATTEMPTS = 5
FIRST_PAUSE_SECONDS = 0.1
READS_AT_ONCE = 16
WRITES_AT_ONCE = 32

# A write to a missing bucket raises FileNotFoundError. A built-in TimeoutError or ConnectionError is an OSError.
FAILURES = (BaseError, OSError)
NOT_ALLOWED = (PermissionDeniedError, UnauthenticatedError)
CONDITION_FAILED = (AlreadyExistsError, PreconditionError)

Answer = TypeVar("Answer")
Sleep = Callable[[float], Awaitable[None]]


class Stored(NamedTuple):
    """A body, and the ETag and version by which a condition can name it."""

    body: bytes
    e_tag: str | None
    version: str | None

    @property
    def condition(self) -> dict[str, str]:
        # S3 and Azure compare the ETag, Google the version.
        named = {"e_tag": self.e_tag, "version": self.version}
        return {name: value for name, value in named.items() if value is not None}


class Outcome(NamedTuple):
    """The result of a conditional write. `stored` is now in the bucket: ours, or the one in the way."""

    written: bool
    stored: Stored | None


class Objects:
    """Sends requests in threads, apart for reads and writes, so that a renewal does not wait behind many reads.

    The driver's own coroutines are not used. They are completed by threads that Python does not wait for at exit: of a
    hundred programs that ended right after their last request, three were aborted.
    """

    def __init__(self, store: ObjectStore, address: BucketAddress, *, sleep: Sleep = asyncio.sleep) -> None:
        self._store = store
        self._readers = ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="qo-bucket-read")
        self._writers = ThreadPoolExecutor(WRITES_AT_ONCE, thread_name_prefix="qo-bucket-write")
        self._sleep = sleep
        self._folder = f"{address.prefix}/" if address.prefix else ""
        self.address = address
        self._is_forked = False
        when_forked(self, Objects._begin_anew)

    def _begin_anew(self) -> None:
        self._is_forked = True  # the driver has threads of its own, which do not survive a fork

    def close(self) -> None:
        for threads in (self._readers, self._writers):
            threads.shutdown(wait=False)

    async def listed(self, folder: str) -> dict[str, str | None]:
        """The ETags by key of all objects in a folder and its subfolders."""

        def list_now() -> dict[str, str | None]:
            found = obstore.list(self._store, self._folder + folder).collect()
            return {each["path"].removeprefix(self._folder): each["e_tag"] for each in found}

        return await self._patiently(lambda: self._in(self._readers, list_now))

    async def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder: one request for each thousand of them, however full they are."""

        def list_now() -> list[str]:
            found = obstore.list_with_delimiter(self._store, self._folder + folder)
            return [prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"]]

        return await self._patiently(lambda: self._in(self._readers, list_now))

    async def read(self, key: str) -> Stored | None:
        return await self._patiently(lambda: self._read_once(key))

    async def read_all(self, keys: list[str]) -> list[Stored | None]:
        return list(await asyncio.gather(*map(self.read, keys)))

    async def write(self, key: str, body: bytes, *, expected: Stored | None) -> Outcome:
        """Write `body` if the object still is `expected`; with None, if there is no object.

        `body` must be unique, so that it is recognised when it is read back. Raises `StoreUnavailable` when the result
        cannot be found out; the write may then still take effect, until another write does.
        """
        failure: Exception | None = None
        for attempt in range(ATTEMPTS):
            if attempt:
                await self._pause(attempt)
            try:
                return Outcome(True, await self.write_once(key, body, expected=expected))
            except FAILURES as error:
                if isinstance(error, (*NOT_ALLOWED, FileNotFoundError)):
                    raise self._unavailable(error) from error
                failure = error
            try:
                found = await self._read_once(key)
            except FAILURES:
                continue
            if found is not None and found.body == body:
                return Outcome(True, found)
            if (found and found.body) != (expected and expected.body):
                return Outcome(False, found)
        assert failure is not None
        raise self._unavailable(failure) from failure

    async def write_once(self, key: str, body: bytes, *, expected: Stored | None) -> Stored:
        """Send one write. After one of `FAILURES` it is not known whether it took effect."""
        mode: Any = "create" if expected is None else expected.condition

        def put_now() -> Stored:
            written = obstore.put(self._store, self._folder + key, body, mode=mode)
            return Stored(body, written["e_tag"], written["version"])

        return await self._in(self._writers, put_now)

    async def refuses(self, key: str, body: bytes, *, expected: Stored | None) -> bool:
        """Whether the server refuses a write whose condition does not hold."""

        async def try_once() -> bool:
            try:
                await self.write_once(key, body, expected=expected)
            except CONDITION_FAILED:
                return True
            return False

        return await self._patiently(try_once)

    async def remove(self, key: str) -> None:
        """Delete an object without a condition: only one that no other process writes. It may be missing."""

        def delete_now() -> None:
            try:
                obstore.delete(self._store, self._folder + key)
            except FileNotFoundError:
                pass

        await self._patiently(lambda: self._in(self._writers, delete_now))

    async def _read_once(self, key: str) -> Stored | None:
        def get_now() -> Stored | None:
            try:
                found = obstore.get(self._store, self._folder + key)
                return Stored(bytes(found.bytes()), found.meta["e_tag"], found.meta["version"])
            except FileNotFoundError:
                return None

        return await self._in(self._readers, get_now)

    async def _patiently(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await ask()
            except FAILURES as error:
                if attempt == ATTEMPTS or isinstance(error, NOT_ALLOWED):
                    raise self._unavailable(error) from error
            await self._pause(attempt)
        raise AssertionError("the last attempt returns or raises")

    async def _in(self, threads: ThreadPoolExecutor, request: Callable[[], Answer]) -> Answer:
        if self._is_forked:
            raise StoreUnavailable(
                f"The bucket {self.address} was opened by the process from which this one was forked; open it here."
            )
        return await asyncio.get_running_loop().run_in_executor(threads, request)

    async def _pause(self, attempt: int) -> None:
        # Random, because requests often fail when many are sent at the same moment.
        await self._sleep(FIRST_PAUSE_SECONDS * 2 ** (attempt - 1) * chance.between(0.5, 1))

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        advice = "see that it is up and can be reached from here"
        if isinstance(error, NOT_ALLOWED):
            advice = "the credentials must be allowed to list, get and put objects below the prefix"
        elif "NoSuchBucket" in str(error) or isinstance(error, FileNotFoundError):
            advice = "make the bucket first, or name another one"
        elif "redirect" in str(error):
            advice = "name the region that it is in, on S3 as AWS_REGION or with ?region= in the url"
        elif "169.254." in str(error) or "redentials" in str(error):
            advice = "give credentials, on S3 as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        return StoreUnavailable(f"The bucket {self.address} cannot be used ({_said(error)}); {advice}.")


def _said(error: Exception) -> str:
    """The driver's message without debugging details, and without the query of a url, which may contain a key."""
    first_line = str(error).partition("\n")[0].partition("<")[0]
    return re.sub(r"\?\S*", "", first_line).strip(" :") or type(error).__name__
