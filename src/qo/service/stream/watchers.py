"""The open streams of a process: how many there may be, for whom they are counted, and how all of them are ended."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import NamedTuple

import msgspec

from qo.errors import QoError

MOST_STREAMS = 2000
KEPT_FOR_KEYS = 200
"""So many of them are for callers with a key: strangers with watch links cannot lock the operators out."""
MOST_OF_A_USER_KEY = 20
MOST_OF_A_WATCH_TOKEN = 5
MOST_OF_AN_ADDRESS = 50
"""Streams of watch links only: callers with a key may share the address of a proxy."""
RETRY_AFTER_SECONDS = 10
LOOKED_AT_AT_ONCE = 64
"""After so many streams, requests get a turn."""


class Dropped(StrEnum):
    """Why a stream was refused or ended, where neither the client nor the job ended it."""

    SLOW = "slow"
    FULL = "full"
    TOO_MANY = "too_many"
    FAILED = "failed"
    REFUSED = "refused"


class StreamRefused(QoError):
    """No more streams can be opened for now. `status` is the HTTP status: 503 for the process, 429 for the caller."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = RETRY_AFTER_SECONDS


class Share(msgspec.Struct, frozen=True):
    """Something whose streams are counted together. No message contains its name, which may be a secret."""

    kind: str
    name: str
    most: int


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """For whom a stream is counted."""

    has_key: bool
    shares: tuple[Share, ...] = ()
    session: str | None = None
    """The browser's session that opened it, which sign-out ends."""


OPERATOR = Owner(has_key=True)
"""A viewer or an admin, whose streams only the process limits."""


def user_key(key_id: str) -> Owner:
    return Owner(has_key=True, shares=(Share("key", key_id, MOST_OF_A_USER_KEY),))


def watch_token(token: str, *, address: str) -> Owner:
    return Owner(
        has_key=False,
        shares=(
            Share("watch link", token, MOST_OF_A_WATCH_TOKEN),
            Share("address", address, MOST_OF_AN_ADDRESS),
        ),
    )


IsAllowed = Callable[[], Awaitable[bool]]


class _Open(NamedTuple):
    caller: Owner
    close: Callable[[], None]
    is_allowed: IsAllowed | None


class Watchers:
    """The registry of a process. All of it happens in the service's event loop."""

    def __init__(self) -> None:
        self.dropped: Counter[Dropped] = Counter()
        self._open: dict[object, _Open] = {}
        self._by_share: Counter[Share] = Counter()
        self._closed = False

    @property
    def open(self) -> int:
        return len(self._open)

    @contextmanager
    def place(self, caller: Owner, *, close: Callable[[], None], is_allowed: IsAllowed | None = None) -> Iterator[None]:
        """Count a stream while the block runs. `close_all` calls `close`, which has to end the stream soon;
        `close_refused` does so when `is_allowed` says no.

        Raises `StreamRefused` when there are too many, and counts that.
        """
        self._check(caller)
        mark = object()
        self._open[mark] = _Open(caller, close, is_allowed)
        self._by_share.update(caller.shares)
        try:
            yield
        finally:
            del self._open[mark]
            for share in caller.shares:
                self._by_share[share] -= 1
                if not self._by_share[share]:
                    del self._by_share[share]  # tokens and addresses come and go, and there is no end of them

    def close_all(self) -> None:
        """End all streams, and refuse new ones: the process stops. A signal handler has to call this by
        `loop.call_soon_threadsafe`."""
        self._closed = True
        for each in list(self._open.values()):
            each.close()

    def close_session(self, session: str) -> None:
        """End the streams that a browser has opened in this session: its user signs out."""
        for each in list(self._open.values()):
            if each.caller.session == session:
                each.close()

    async def close_refused(self) -> None:
        """End the streams whose callers may no longer have them: their keys were revoked or have expired."""
        for number, each in enumerate(list(self._open.values()), 1):
            if each.is_allowed is not None and not await each.is_allowed():
                self.dropped[Dropped.REFUSED] += 1
                each.close()
            if number % LOOKED_AT_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _check(self, caller: Owner) -> None:
        if self._closed:
            self.dropped[Dropped.FULL] += 1
            raise StreamRefused("This server is stopping; open the stream again in some seconds.", status=503)
        most = MOST_STREAMS if caller.has_key else MOST_STREAMS - KEPT_FOR_KEYS
        if len(self._open) >= most:
            self.dropped[Dropped.FULL] += 1
            raise StreamRefused(
                f"This server has {len(self._open)} open streams and opens no more than {most} for such callers; try "
                f"again in {RETRY_AFTER_SECONDS} seconds.",
                status=503,
            )
        for share in caller.shares:
            if self._by_share[share] >= share.most:
                self.dropped[Dropped.TOO_MANY] += 1
                raise StreamRefused(
                    f"This {share.kind} has {share.most} open streams, which is the most it may have; close one of "
                    f"them, or try again in {RETRY_AFTER_SECONDS} seconds.",
                    status=429,
                )
