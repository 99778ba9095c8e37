"""The stream of one job: its present state, then every change until it has ended."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from typing import Any

from qo.errors import InvalidValue
from qo.event import POSITION, PROGRESS, STAGE, Event
from qo.job import Job, State, in_whole_seconds, moment, status_of
from qo.policy.checks import shown
from qo.policy.presenting import upgrade
from qo.queue.queue import Queue
from qo.queue.watching import PRESENT, STATES
from qo.service.stream.encoding import EventFrames, frame

CONNECTED = "connected"
STATUS = "status"
RESET = "reset"

LAST_EVENT_ID = "Last-Event-ID"

CURSOR = re.compile("[0-9]{1,19}")
LARGEST_CURSOR = 2**63 - 1


def cursor_from(*, last_event_id: str | None, after: str | None) -> int | None:
    """The id behind which a stream goes on: the header's, which a browser keeps up to date, else the query's.

    Raises `InvalidValue` for anything but a whole number. Whether the store knows it is for the stream to find out.
    """
    field, text = ("after", after) if last_event_id is None else (LAST_EVENT_ID, last_event_id)
    if text is None:
        return None
    if not CURSOR.fullmatch(text):
        raise InvalidValue(
            f"{field} is {shown(text)}; use the id of the last event that you got (a whole number), or leave it out to "
            "begin with the present state."
        )
    return min(int(text), LARGEST_CURSOR)


class JobStreams:
    """The streams of jobs of one queue. The frame of a feed event is made once for all of them."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.frames = EventFrames()

    async def stream(self, job_id: str, *, after: int | None = None) -> AsyncGenerator[bytes]:
        """Yields `connected` with the present state, then `status` for each change, until the job has ended.

        With `after`, the stream goes on behind that event and misses nothing. Where that is not possible, because the
        events are no longer kept or the cursor was never given, `reset` comes in place of `connected`; it also comes
        later, in place of events that the caller did not read in time. Raises `JobNotFound`.
        """
        store = self._queue.store_here
        opening, cursor = CONNECTED, after
        if after is not None and (await store.events(after, subjects=(), limit=1)).reset:
            opening, cursor = RESET, None
        resumed = cursor is not None
        # The cursor is older than the snapshot, so an event may repeat what the snapshot shows, but no event can fall
        # between them.
        cursor = (await store.events(None)).cursor if cursor is None else cursor
        told = await self._present(job_id)
        yield frame(opening, id=cursor, data=told.snapshot(self._queue.system.now(), resumed=resumed))
        async with aclosing(self._queue.watch(job_id, after=cursor)) as events:
            async for event in events:
                if event.detail.get(PRESENT):
                    told = await self._present(job_id)
                    yield frame(RESET, id=event.id, data=told.snapshot(event.at, resumed=False))
                elif event.kind == POSITION:  # it is in no feed, and each watcher has its own
                    yield frame(STATUS, id=event.id, data=told.change(event))
                else:
                    yield self.frames.get(event, name=STATUS, data=told.change(event))

    async def _present(self, job_id: str) -> _Told:
        job, settings = await self._queue.get(job_id), self._queue.settings
        offer = upgrade(job.tier, settings.tiers, settings.queue.upgrade_url)
        return _Told(job, upgrade_url=None if offer is None else offer.url)


class _Told:
    """What the watcher of a job knows of it. An event of the feed names only what it changes.

    A snapshot has everything that a watcher may see. A `status` has the state with its message and position; of the
    rest it has what it changes. So a watcher drops what it knows when the state changes, and else adds to it.
    """

    def __init__(self, job: Job, *, upgrade_url: str | None) -> None:
        """`upgrade_url` is the offer to the job's user, which goes with every position."""
        self._job_id = job.id
        self._state = job.state
        self._stage = job.stage
        self._message = _message_of(job)
        self._position = job.position
        self._upgrade_url = upgrade_url
        values = job.to_dict()
        self._more = {
            name: values[name] for name in ("stage", "progress", "position_original", "estimate", "upgrade_url")
        }
        self._more["run_at"] = job.run_at

    def snapshot(self, at: datetime, *, resumed: bool) -> dict[str, Any]:
        return {"job_id": self._job_id, "resumed": resumed, **self._known(at), **self._more}

    def change(self, event: Event) -> dict[str, Any]:
        """The data of this event, which also changes what is known.

        Only fields that are meant for the job's user go out: some events name workers, tokens and slots.
        """
        detail = event.detail
        more: dict[str, Any] = {}
        if event.kind in STATES:
            self._state = State(event.kind)
            self._message = detail.get("message")
            self._position = detail.get("position")
            if self._state is State.STARTING:
                self._stage = None
        elif event.kind == STAGE:
            self._state = State.RUNNING
            self._stage = more["stage"] = detail["stage"]
            self._message = detail.get("message") or self._message
        elif event.kind == PROGRESS:
            self._state = State.RUNNING  # which a watcher that has just resumed may not know
            more["progress"] = {name: detail.get(name) for name in ("done", "total", "text")}
        elif event.kind == POSITION:
            self._position, self._message = detail["position"], detail["position_message"]
            more = {
                "position_original": detail["position_original"],
                "estimate": in_whole_seconds(detail["estimate"]),
                "upgrade_url": self._upgrade_url,
            }
        if isinstance(detail.get("run_at"), int):
            more["run_at"] = moment(detail["run_at"])
        return {"job_id": self._job_id, **self._known(event.at), **more}

    def _known(self, at: datetime) -> dict[str, Any]:
        return {
            "status": status_of(self._state, self._stage),
            "state": self._state,
            "message": self._message,
            "position": self._position,
            "timestamp": at,
        }


def _message_of(job: Job) -> str | None:
    """The text for the job's user, as the events have it: the error of a failed job, the place of one in line."""
    if job.state is State.FAILED and job.error is not None:
        return job.error.message
    return job.message if job.position_message is None else job.position_message
