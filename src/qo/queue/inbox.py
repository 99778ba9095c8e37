"""A watcher's inbox: the events that it has not read yet, a bounded number of them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

from qo.queue.positions import Watched

MOST_EVENTS = 256

E = TypeVar("E")
"""An event: of the store's feed, or a part of a stream."""


class Reset:
    """A watcher gets this when events were dropped before it could read them. It has to read the present state."""


RESET = Reset()


class Inbox(Generic[E]):
    """What a watcher has to look at, in order. Putting something in never waits.

    A watcher that has `MOST_EVENTS` unread events gets one `RESET` in place of them and of the next one: a watcher that
    does not read must not cost more and more memory.
    """

    def __init__(self) -> None:
        self._items: deque[E | Reset | Watched] = deque()
        self._unread_events = 0
        self._arrived = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        """Whether the watcher has read everything, so that the next item wakes it."""
        return not self._items

    def put_event(self, event: E) -> None:
        if self._unread_events >= MOST_EVENTS:
            self.put_reset()
            return
        self._unread_events += 1
        self._put(event)

    def put_reset(self) -> None:
        """Replace all events by one `RESET`. Positions stay, because what is put in only says that there is news."""
        news = [item for item in self._items if isinstance(item, Watched)]
        self._items.clear()
        self._unread_events = 0
        self._put(RESET)
        self._items.extend(news)

    def put_nowait(self, news: Watched) -> None:
        self._put(news)

    async def get(self) -> E | Reset | Watched:
        while not self._items:
            self._arrived.clear()
            await self._arrived.wait()
        item = self._items.popleft()
        if not isinstance(item, Reset | Watched):
            self._unread_events -= 1
        return item

    def _put(self, item: E | Reset | Watched) -> None:
        self._items.append(item)
        self._arrived.set()
