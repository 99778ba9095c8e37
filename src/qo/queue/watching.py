"""Watching a job: what happens to it as it happens, and while it waits in line, where it stands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from qo.event import MOVED, POSITION, PRIORITY, Event
from qo.job import ENDED, Job, State
from qo.policy.confirming import message_now
from qo.runtime.feed import Follower, Inbox, Reset
from qo.runtime.positions import News, Positions, Watched
from qo.spans import system_now
from qo.store.base import Store

PRESENT = "present"
"""in the detail of the first event of a watch: it tells how things stand, not that they changed"""
STATES = frozenset(State)
TO_BE_READ_AGAIN = frozenset({State.QUEUED.value, PRIORITY, MOVED})
"""after these events a job is in line, or competes there for other groups"""


async def watch_job(
    store: Store, follower: Follower, positions: Positions | None, job_id: str, *, after: int | None
) -> AsyncGenerator[Event]:
    """What `Queue.watch` promises; without `positions`, what is in the feed and no more."""
    # The cursor is older than the snapshot, so an event may tell what the snapshot already shows, but none
    # can fall between them.
    cursor = await store.newest_event() if after is None else after
    job = await store.job(job_id)
    if after is None:
        yield _present(job, cursor)
    if job.state in ENDED and (after is None or not await _ended_after(store, job_id, after)):
        return
    inbox: Inbox = asyncio.Queue()
    watched = Watched(job_id, inbox)
    try:
        if positions is not None and job.position is not None:
            positions.look_at(watched, job, told=after is None)
        async with aclosing(follower.follow(job_id, after=cursor, inbox=inbox)) as found:
            async for each in found:
                if isinstance(each, Watched):
                    news = each.take_news()
                    if news is not None:
                        # With the id of the last event of the feed, behind which a resumed watch goes on.
                        yield _position(job_id, cursor, news)
                    continue
                if isinstance(each, Reset):
                    cursor = await store.newest_event()
                    each = _present(await store.job(job_id), cursor)
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


def _present(job: Job, cursor: int) -> Event:
    detail = {PRESENT: True, "status": job.status, "position": job.position, "message": message_now(job)}
    return Event(id=cursor, at=system_now(), kind=job.state.value, subject=job.id, detail=detail)


def _position(job_id: str, cursor: int, news: News) -> Event:
    detail = {
        "position": news.place.position,
        "position_original": news.place.original,
        "position_message": news.message,
        "estimate": None if news.estimate is None else msgspec.structs.asdict(news.estimate),
    }
    return Event(id=cursor, at=system_now(), kind=POSITION, subject=job_id, detail=detail)
