"""Watchers that follow a job over HTTP as a browser does: when the connection ends early, they come back."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import aclosing

import qo
from qo.event import Event
from tests.service.stream.client import Address, Frame, StreamClient, connected

CUT = (asyncio.IncompleteReadError, ConnectionError)
"""What a client sees of a server that was killed."""


class Watcher:
    """Follows one job to its end and keeps what it saw."""

    def __init__(self, server: Address, job_id: str, *, is_listening: asyncio.Event) -> None:
        self.job_id = job_id
        self.first: int | None = None
        """The cursor with which it began: it has to see everything behind it."""
        self.seen: list[int] = []
        """The ids of the feed's events, in the order in which they came."""
        self.seen_at: list[float] = []
        """When they came, on this process's steady clock."""
        self.opened = 0
        """How often it was connected."""
        self.resets = 0
        self._server = server
        self._is_listening = is_listening
        self._last: int | None = None

    async def follow(self) -> None:
        """Returns when the job has ended."""
        while True:
            await self._is_listening.wait()
            try:
                if await self._follow_once():
                    return
            except CUT:
                continue

    async def _follow_once(self) -> bool:
        headers = {} if self._last is None else {"Last-Event-ID": str(self._last)}
        async with connected(self._server, f"/api/jobs/{self.job_id}/stream", headers=headers) as client:
            assert client.status == 200
            await self._read(client)
        return client.frames[-1].retry is None  # else the server stops, and wants the client back

    async def _read(self, client: StreamClient) -> None:
        async with aclosing(client.arriving) as frames:
            async for frame in frames:
                if frame.id is None:
                    continue
                if self.first is None:
                    self.first = frame.id
                if frame.event == "connected":
                    self.opened += 1
                elif frame.event == "reset":
                    self.resets += 1
                elif is_of_the_feed(frame):
                    self.seen.append(frame.id)
                    self.seen_at.append(time.monotonic())
                self._last = frame.id


def is_of_the_feed(frame: Frame) -> bool:
    """A change of position is no event of the feed: it is sent with the id of the event before it."""
    return "position_original" not in frame.data


async def events_by_job(queue: qo.Queue) -> dict[str, list[Event]]:
    """Everything that is in the feed."""
    found: dict[str, list[Event]] = defaultdict(list)
    cursor = 0
    while (feed := await queue.store.events(cursor)).events:
        assert not feed.reset
        cursor = feed.cursor
        for event in feed.events:
            found[event.subject].append(event)
    return found


async def check_each_saw_everything_once(queue: qo.Queue, watchers: Sequence[Watcher]) -> None:
    events = await events_by_job(queue)
    for watcher in watchers:
        assert watcher.first is not None
        assert watcher.resets == 0
        assert watcher.seen == [event.id for event in events[watcher.job_id] if event.id > watcher.first]
