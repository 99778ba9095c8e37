"""Watching a job: its events as they happen, and its position while it is in line."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime

import msgspec

from qo.event import MOVED, POSITION, PRIORITY, Event
from qo.job import ENDED, Job, State
from qo.policy.confirming import message_now
from qo.queue.follower import Follower
from qo.queue.inbox import Inbox, Reset
from qo.queue.positions import News, Positions, Watched
from qo.store.contract import Store

PRESENT = "present"
"""In the detail of the first event of a watch, which gives the present state and is no change."""
STATES = frozenset(State)
TO_BE_READ_AGAIN = frozenset({State.QUEUED.value, PRIORITY, MOVED})
"""After these events a job is in line, or competes there for other groups."""


async def watch_job(
    store: Store,
    follower: Follower,
    positions: Positions | None,
    job_id: str,
    *,
    after: int | None,
    now: Callable[[], datetime],
) -> AsyncGenerator[Event]:
    """Yields the events that `Queue.watch` promises; without `positions`, only those of the feed."""
    # The cursor is older than the snapshot, so an event may repeat what the snapshot shows, but no event can fall
    # between them.
    cursor = (await store.events(None)).cursor if after is None else after
    job = await store.job(job_id)
    if after is None:
        yield _present(job, cursor, now())
    if job.state in ENDED and (after is None or not await _ended_after(store, job_id, after)):
        return
    inbox = Inbox[Event]()
    watched = Watched(job_id, inbox)
    try:
        if positions is not None and job.position is not None:
            positions.look_at(watched, job, told=after is None)
        del job  # a watch may last for hours, and thousands of them need not keep its texts
        async with aclosing(follower.follow(job_id, after=cursor, inbox=inbox)) as found:
            async for each in found:
                if isinstance(each, Watched):
                    news = each.take_news()
                    if news is not None:
                        # With the id of the last event of the feed, so that a resumed watch goes on behind that.
                        yield _position(job_id, cursor, news, now())
                    continue
                if isinstance(each, Reset):
                    cursor = (await store.events(None)).cursor
                    each = _present(await store.job(job_id), cursor, now())
                elif each.id <= cursor:
                    continue  # it came before the present state that a reset has just given
                cursor = each.id
                if positions is not None:
                    _look(positions, watched, each)
                yield each
                if each.kind in ENDED:
                    return
    finally:
        if positions is not None:
            positions.look_away(watched)


def _look(positions: Positions, watched: Watched, event: Event) -> None:
    if event.kind in TO_BE_READ_AGAIN:
        positions.look_at(watched)
    elif event.kind in STATES:
        positions.look_away(watched)


async def _ended_after(store: Store, job_id: str, cursor: int) -> bool:
    feed = await store.events(cursor, kinds=[state.value for state in ENDED], subjects=[job_id], limit=1)
    return feed.reset or bool(feed.events)


def _present(job: Job, cursor: int, now: datetime) -> Event:
    detail = {PRESENT: True, "status": job.status, "position": job.position, "message": message_now(job)}
    return Event(id=cursor, at=now, kind=job.state.value, subject=job.id, detail=detail)


def _position(job_id: str, cursor: int, news: News, now: datetime) -> Event:
    detail = {
        "position": news.place.position,
        "position_original": news.place.original,
        "position_message": news.message,
        "estimate": None if news.estimate is None else msgspec.structs.asdict(news.estimate),
    }
    return Event(id=cursor, at=now, kind=POSITION, subject=job_id, detail=detail)
