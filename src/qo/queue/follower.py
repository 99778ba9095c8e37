"""Following the store's events: one reader a process, whatever the number of watchers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

from qo.errors import StoreUnavailable
from qo.event import Event
from qo.runtime.positions import Watched
from qo.store.base import Store

log = logging.getLogger("qo.feed")

WAIT_SECONDS = 30.0
TRY_AGAIN_SECONDS = 1.0
PAGE = 1000


class Reset:
    """Told to a watcher whose cursor is older than what is kept: read the present state, then go on."""


RESET = Reset()


Inbox = asyncio.Queue[Event | Reset | Watched]
"""what a watcher has to look at, in order"""


class Follower:
    """Reads what the watchers of a process want to know, once for all of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watchers: dict[str, set[Inbox]] = {}
        self._reading = asyncio.Lock()
        self._cursor = 0
        self._task: asyncio.Task[None] | None = None

    async def follow(
        self, subject: str, *, after: int, inbox: Inbox | None = None
    ) -> AsyncGenerator[Event | Reset | Watched]:
        """Every event of a subject after the cursor, each once, for as long as the caller listens.

        Whatever else is put into an inbox that is given comes in between.
        """
        inbox = asyncio.Queue() if inbox is None else inbox
        self._watchers.setdefault(subject, set()).add(inbox)
        try:
            # From here on every new read looks for this subject. One that began earlier does not: what it
            # passes over is found by the first read below, which therefore waits for it.
            async with self._reading:
                await self._start()
            while True:
                feed = await self._store.events(after, subjects=[subject], limit=PAGE)
                if feed.reset:
                    yield RESET
                for event in feed.events:
                    yield event
                after = feed.cursor
                if len(feed.events) < PAGE:
                    break
            while True:
                found = await inbox.get()
                if not isinstance(found, Event) or found.id > after:
                    yield found
        finally:
            self._leave(subject, inbox)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _start(self) -> None:
        if self._task is None or self._task.done():
            self._cursor = await self._store.newest_event()
            self._task = asyncio.create_task(self._read_on(), name="qo-feed")

    def _leave(self, subject: str, inbox: Inbox) -> None:
        watchers = self._watchers[subject]
        watchers.discard(inbox)
        if not watchers:
            del self._watchers[subject]
        if not self._watchers and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _read_on(self) -> None:
        while True:
            try:
                await self._store.wait_for_events(self._cursor, timeout_seconds=WAIT_SECONDS)
                async with self._reading:
                    await self._read()
            except StoreUnavailable as error:
                log.warning("events cannot be followed for now, trying again: %s", error)
                await asyncio.sleep(TRY_AGAIN_SECONDS)

    async def _read(self) -> None:
        feed = await self._store.events(self._cursor, subjects=list(self._watchers), limit=PAGE)
        self._cursor = feed.cursor
        if feed.reset:
            for watchers in self._watchers.values():
                for inbox in watchers:
                    inbox.put_nowait(RESET)
        for event in feed.events:
            for inbox in self._watchers.get(event.subject, ()):
                inbox.put_nowait(event)
