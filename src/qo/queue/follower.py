"""Following the store's events: one reader for each queue, however many watchers there are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

from qo.event import Event
from qo.loops.repeating import repeat
from qo.loops.trouble import Trouble
from qo.queue.inbox import RESET, Inbox, Reset
from qo.queue.positions import Watched
from qo.store.contract import Store

log = logging.getLogger("qo.feed")

WAIT_SECONDS = 30.0
TRY_AGAIN_SECONDS = 1.0
PAGE = 1000
HANDED_OUT_AT_ONCE = 128
"""After so many events watchers get a turn to read. Fewer than an inbox holds: a watcher that reads is never reset."""
WOKEN_AT_ONCE = 4
"""After so many watchers were woken, other work of the loop gets a turn. Each of them takes a tenth of a millisecond to
send its event, and a request that comes meanwhile waits for them several times."""
TURN_SECONDS = 0.001
BETWEEN_READS_SECONDS = 0.02
"""A busy feed changes hundreds of times a second. What comes within this time is read at once."""
NAMED_AT_MOST = 64
"""Beyond so many subjects the events of all are read: to look each of them up would take longer."""


class Follower:
    """Reads the events of all watched subjects together, and hands each to its watchers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.watchers: dict[str, set[Inbox[Event]]] = {}
        """The inboxes of all watchers, by subject. A subject that nobody watches is not in it."""
        self._reading = asyncio.Lock()
        self._cursor = 0
        self._pause_seconds = 0.0
        self._task: asyncio.Task[None] | None = None

    async def follow(
        self, subject: str, *, after: int, inbox: Inbox[Event] | None = None
    ) -> AsyncGenerator[Event | Reset | Watched]:
        """Yields every event of a subject after the cursor, each once, for as long as the caller listens.

        `RESET` comes in place of events that are no longer kept, or that a slow caller left unread. Other items that
        are put into a given `inbox` come in between.
        """
        inbox = Inbox[Event]() if inbox is None else inbox
        self.watchers.setdefault(subject, set()).add(inbox)
        try:
            # From here on every new read looks for this subject. A read that began earlier does not: the events that
            # it passes over are found by the first read below, which therefore waits for it.
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
            self._cursor = (await self._store.events(None)).cursor
            self._task = asyncio.create_task(self._read_on(), name="qo-feed")

    def _leave(self, subject: str, inbox: Inbox[Event]) -> None:
        watchers = self.watchers[subject]
        watchers.discard(inbox)
        if not watchers:
            del self.watchers[subject]
        if not self.watchers and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _read_on(self) -> None:
        trouble = Trouble("events cannot be followed for now", log)
        await repeat(
            self._read_next, pause=lambda: self._pause_seconds, retry_seconds=TRY_AGAIN_SECONDS, trouble=trouble
        )

    async def _read_next(self) -> None:
        # This only waits: the subjects to look for may change meanwhile.
        await self._store.events(self._cursor, limit=1, timeout_seconds=WAIT_SECONDS)
        self._pause_seconds = BETWEEN_READS_SECONDS
        async with self._reading:
            await self._read()

    async def _read(self) -> None:
        subjects = list(self.watchers) if len(self.watchers) <= NAMED_AT_MOST else None
        feed = await self._store.events(self._cursor, subjects=subjects, limit=PAGE)
        self._cursor = feed.cursor
        if feed.reset:
            for watchers in self.watchers.values():
                for inbox in watchers:
                    inbox.put_reset()
        woken = 0
        for number, event in enumerate(feed.events, 1):
            for inbox in list(self.watchers.get(event.subject, ())):
                woken += inbox.is_empty
                inbox.put_event(event)
                if woken == WOKEN_AT_ONCE:
                    woken = 0
                    await asyncio.sleep(TURN_SECONDS)
            if number % HANDED_OUT_AT_ONCE == 0:
                await asyncio.sleep(0)
