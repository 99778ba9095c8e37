"""Reads that take more than one call: pages, positions, and the feed of events."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Unpack

import msgspec

from qo.errors import JobNotFound
from qo.event import SIGNALS, Feed
from qo.job import Job, State
from qo.store import check
from qo.store.paging import Cursor, EndedCursor
from qo.store.redis import wire
from qo.store.redis.calling import Calling, refused
from qo.values import InLine, JobsPage, LinePage, Place, Wanted

POSITIONS_AT_ONCE = 100
JOBS_AT_ONCE = 100
NEWEST_EVENT = 0
"""its place among the counters, whose order `lib/counters.lua` gives"""


class Reading(Calling):
    async def jobs(
        self,
        *,
        ids: Sequence[str] | None = None,
        limit: int = 100,
        newest_first: bool = False,
        after: str | None = None,
        **wanted: Unpack[Wanted],
    ) -> JobsPage:
        check.check_jobs(ids=ids, limit=limit, after=after, **wanted)
        if ids is not None:
            return await self._jobs_by_id(list(dict.fromkeys(ids)))
        if wanted.get("ended"):
            return await self._ended_jobs(wanted, limit, newest_first, EndedCursor.read(after))
        cursor = Cursor.read(after)
        if wanted.get("status") not in (None, State.QUEUED) and cursor.in_line:
            cursor = Cursor(False, None)
        found: dict[str, Job] = {}
        looks = self.bounds.page
        while True:
            # In parts, so that a long search or large results hold nobody up. Between two of them a job may have left
            # the line.
            place = {"limit": limit - len(found), "looks": looks, "in_line": cursor.in_line, "last": cursor.last}
            reply = await self._run("jobs", {**wanted, "newest_first": newest_first, **place})
            for job in reply.jobs(with_history=True):
                found.setdefault(job.id, job)
            if reply.answer["at_the_end"]:
                return JobsPage(jobs=tuple(found.values()))
            cursor = Cursor(reply.answer["in_line"], reply.answer.get("last"))
            looks = reply.answer["looks"]
            if len(found) >= limit or looks <= 0:
                return JobsPage(jobs=tuple(found.values()), next=cursor.text())

    async def _ended_jobs(self, wanted: Wanted, limit: int, newest_first: bool, cursor: EndedCursor | None) -> JobsPage:
        found: dict[str, Job] = {}
        looks = self.bounds.page
        while True:
            place: dict[str, Any] = {"limit": limit - len(found), "looks": looks, "newest_first": newest_first}
            if cursor is not None:
                place |= {"ended_at": cursor.at, "ended_number": f"{cursor.number:012d}"}
            reply = await self._run("jobs", {**wanted, **place})
            for job in reply.jobs(with_history=True):
                found.setdefault(job.id, job)
            if reply.answer["at_the_end"]:
                return JobsPage(jobs=tuple(found.values()))
            cursor = EndedCursor(reply.answer["ended_at"], int(reply.answer["ended_number"]))
            looks = reply.answer["looks"]
            if len(found) >= limit or looks <= 0:
                return JobsPage(jobs=tuple(found.values()), next=cursor.text())

    async def _jobs_by_id(self, ids: list[str]) -> JobsPage:
        found: list[Job] = []
        for first in range(0, len(ids), JOBS_AT_ONCE):
            reply = await self._run("jobs", {"ids": ids[first : first + JOBS_AT_ONCE]})
            found += reply.jobs(with_history=True)
        return JobsPage(jobs=tuple(found))

    async def line(self, *, limit: int, after: str | None = None, around: str | None = None) -> LinePage:
        check.check_line(limit=limit, after=after, around=around)
        if around is not None:
            reply = await self._run("line", {"around": around, "limit": limit})
            if refused(reply) is not None:
                raise JobNotFound(around)
            return wire.line_page(reply.answer, [*map(wire.in_line, reply.answer["line"])], following=None)
        cursor, left = Cursor.read(after), min(limit, self.bounds.page)
        if not cursor.in_line:
            left = 0
        found: list[InLine] = []
        while True:
            # In parts: a call ends early where jobs have many groups.
            answer = (await self._run("line", {"last": cursor.last, "limit": left})).answer
            found += map(wire.in_line, answer["line"])
            left -= len(answer["line"])
            is_last = answer["at_the_end"]
            if not is_last:
                cursor = Cursor(True, answer["last"])
            if is_last or left <= 0:
                return wire.line_page(answer, found, following=None if is_last else cursor.text())

    async def positions(self, job_ids: Sequence[str]) -> dict[str, Place]:
        found: dict[str, Place] = {}
        for first in range(0, len(job_ids), POSITIONS_AT_ONCE):
            part = list(job_ids[first : first + POSITIONS_AT_ONCE])
            places = (await self._run("positions", {"ids": part})).answer["places"]
            found.update((job_id, Place(**place)) for job_id, place in zip(part, places, strict=True) if place)
        return found

    async def _events(
        self, after: int, kinds: Collection[str] | None, subjects: Collection[str] | None, limit: int
    ) -> Feed:
        wanted = {
            "after": after,
            "kinds": None if kinds is None else list(kinds),
            "only_signals": kinds is not None and SIGNALS.issuperset(kinds),
            "subjects": None if subjects is None else list(subjects),
            "limit": limit,
        }
        answer = (await self._run("events", wanted)).answer
        found = tuple(wire.event_of(each) for each in answer["events"])
        return Feed(events=found, cursor=answer["cursor"], reset=answer.get("reset", False))

    async def _newest_event(self) -> int:
        packed = await self._command("GET", "counters")
        return 0 if packed is None else int(msgspec.msgpack.decode(packed)[NEWEST_EVENT])
