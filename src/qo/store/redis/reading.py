"""Reads that take more than one call: pages, positions, and the feed of events."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from qo.event import SIGNALS, Feed
from qo.job import Job, State
from qo.store import check
from qo.store.paging import Cursor
from qo.store.redis import wire
from qo.store.redis.calling import Calling
from qo.values import InLine, JobsPage, LinePage, Place, Suspicion

POSITIONS_AT_ONCE = 100
NEWEST_EVENT = 0
"""its place among the counters, whose order `lib/counters.lua` gives"""


class Reading(Calling):
    async def jobs(
        self,
        *,
        status: str | None = None,
        user: str | None = None,
        task: str | None = None,
        parent: str | None = None,
        limit: int = 100,
        newest_first: bool = False,
        after: str | None = None,
    ) -> JobsPage:
        check.check_jobs(limit=limit, after=after)
        cursor = Cursor.read(after)
        wanted = {"status": status, "user": user, "task": task, "parent": parent, "newest_first": newest_first}
        if status not in (None, State.QUEUED) and cursor.in_line:
            cursor = Cursor(False, None)
        found: dict[str, Job] = {}
        looks = self.bounds.page
        while True:
            # In parts, so that a long search or large results hold nobody up. Between two of them a job may have left
            # the line.
            place = {"limit": limit - len(found), "looks": looks, "in_line": cursor.in_line, "last": cursor.last}
            reply = await self._run("jobs", wanted | place)
            for job in reply.jobs():
                found.setdefault(job.id, job)
            if reply.answer["at_the_end"]:
                return JobsPage(jobs=tuple(found.values()))
            cursor = Cursor(reply.answer["in_line"], reply.answer.get("last"))
            looks = reply.answer["looks"]
            if len(found) >= limit or looks <= 0:
                return JobsPage(jobs=tuple(found.values()), next=cursor.text())

    async def line(self, *, limit: int, after: str | None = None) -> LinePage:
        check.check_line(limit=limit, after=after)
        cursor, left = Cursor.read(after), min(limit, self.bounds.page)
        if not cursor.in_line:
            left = 0
        found: list[InLine] = []
        while True:
            # In parts: a call ends early where jobs have many groups.
            answer = (await self._run("line", {"last": cursor.last, "limit": left})).answer
            found += (
                InLine(
                    id=each["id"],
                    task=each["task"],
                    tier=each.get("tier"),
                    groups=tuple(each["groups"]),
                    suspicion=Suspicion(each.get("suspicion", 0)),
                )
                for each in answer["line"]
            )
            left -= len(answer["line"])
            if answer["at_the_end"]:
                return LinePage(jobs=tuple(found), queued=answer["queued"])
            cursor = Cursor(True, answer["last"])
            if left <= 0:
                return LinePage(jobs=tuple(found), queued=answer["queued"], next=cursor.text())

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
