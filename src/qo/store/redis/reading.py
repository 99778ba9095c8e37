"""Reading: what a Redis store can be asked without changing anything."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from qo.errors import JobNotFound, ParentNotFound
from qo.event import SIGNALS, AuditEntry, Event, Feed
from qo.job import Job, State, moment
from qo.store import check
from qo.store.redis import wire
from qo.store.redis.calling import Calling, refused
from qo.store.redis.rows import plain_token
from qo.store.values import (
    Blockers,
    GroupStatus,
    InLine,
    Lease,
    Mean,
    ParentStatus,
    Place,
    Record,
    SeriesPoint,
    SlotInfo,
    Source,
    UserUsage,
    WorkerInfo,
)

LINE_AT_ONCE = 2000
POSITIONS_AT_ONCE = 100
NEWEST_EVENT = 0
"""its place among the counters, whose order `lib/counters.lua` gives"""
_json = msgspec.json.Decoder().decode


class Reading(Calling):
    async def job(self, job_id: str) -> Job:
        reply = await self._run("job", {"job_id": job_id})
        if refused(reply) is not None:
            raise JobNotFound(job_id)
        return reply.jobs()[0]

    async def payload(self, job_id: str) -> tuple[bytes, bytes | None]:
        reply = await self._run("payload", {"job_id": job_id})
        if refused(reply) is not None:
            raise JobNotFound(job_id)
        checkpoint = reply.answer.get("checkpoint")
        return reply.blob(reply.answer["payload"]), None if checkpoint is None else reply.blob(checkpoint)

    async def jobs(
        self,
        *,
        status: str | None = None,
        user: str | None = None,
        task: str | None = None,
        parent: str | None = None,
        limit: int = 100,
        newest_first: bool = False,
    ) -> tuple[Job, ...]:
        check.check_page(limit)
        wanted = {"status": status, "user": user, "task": task, "parent": parent, "newest_first": newest_first}
        found: dict[str, Job] = {}
        in_line = status in (None, State.QUEUED)
        following: int | None = 0
        while following is not None and len(found) < limit:
            # In parts, so that a long search holds nobody up. Between two of them a job may have left the line.
            part = wanted | {"limit": limit - len(found), "in_line": in_line, "from": following}
            reply = await self._run("jobs", part)
            for job in reply.jobs():
                found.setdefault(job.id, job)
            in_line, following = reply.answer["in_line"], reply.answer.get("from")
        return tuple(found.values())

    async def line(self, *, limit: int) -> tuple[InLine, ...]:
        check.check_page(limit)
        found: list[InLine] = []
        while len(found) < limit:
            wanted = min(LINE_AT_ONCE, limit - len(found))
            answer = (await self._run("line", {"from": len(found), "limit": wanted})).answer
            found += (
                InLine(id=each["id"], task=each["task"], tier=each.get("tier"), groups=tuple(each["groups"]))
                for each in answer["line"]
            )
            if not answer["more"]:
                break
        return tuple(found)

    async def positions(self, job_ids: Sequence[str]) -> dict[str, Place]:
        found: dict[str, Place] = {}
        for first in range(0, len(job_ids), POSITIONS_AT_ONCE):
            part = list(job_ids[first : first + POSITIONS_AT_ONCE])
            places = (await self._run("positions", {"ids": part})).answer["places"]
            found.update((job_id, Place(**place)) for job_id, place in zip(part, places, strict=True) if place)
        return found

    async def waiting_count(self) -> int:
        count: int = await self._command("ZCARD", "line")
        return count

    async def parent(self, parent: str) -> ParentStatus:
        reply = await self._run("parent", {"parent": parent})
        if refused(reply) is not None:
            raise ParentNotFound(parent)
        phases = sorted((job for job in reply.jobs() if job.phase is not None), key=lambda job: job.phase or 0)
        others = [job for job in reply.jobs() if job.phase is None]
        return ParentStatus(parent=parent, priority=reply.answer["priority"], jobs=(*phases, *others))

    async def blockers(self, job_id: str, *, now: int | None = None) -> Blockers:
        reply = await self._run("blockers", {"job_id": job_id}, now=now)
        if refused(reply) is not None:
            raise JobNotFound(job_id)
        (job,) = reply.jobs()
        state, heard_at = reply.answer.get("waits_for_state"), reply.answer.get("heard_at")
        return Blockers(
            job=job,
            ahead=None if job.position is None else job.position - 1,
            groups=tuple(_status(group) for group in reply.answer["groups"]),
            waits_for=reply.answer.get("waits_for"),
            waits_for_state=None if state is None else State(state),
            has_worker=reply.answer["has_worker"],
            worker=reply.answer.get("worker"),
            heard_at=None if heard_at is None else moment(heard_at),
        )

    async def leases(self, *, worker: str | None = None) -> tuple[Lease, ...]:
        return (await self._run("leases", {"worker": worker})).leases()

    async def group(self, group: str) -> GroupStatus:
        return _status((await self._run("group", {"group": group})).answer["groups"][0])

    async def groups(self) -> tuple[GroupStatus, ...]:
        return tuple(_status(group) for group in (await self._run("groups", {})).answer["groups"])

    async def workers(self, *, now: int | None = None) -> tuple[WorkerInfo, ...]:
        return tuple(map(wire.worker, (await self._run("workers", {}, now=now)).answer["workers"]))

    async def usage(self, user: str, *, now: int | None = None) -> UserUsage:
        return UserUsage(user=user, **(await self._run("usage", {"user": user}, now=now)).answer)

    async def series(self, *, prefix: str = "", since_minute: int = 0) -> tuple[SeriesPoint, ...]:
        reply = await self._run("series", {"prefix": prefix, "since_minute": since_minute})
        points = (SeriesPoint(**point) for point in reply.answer["points"])
        return tuple(sorted(points, key=lambda point: (point.name, point.minute)))

    async def audit(self, *, subject: str | None = None, limit: int = 100) -> tuple[AuditEntry, ...]:
        check.check_page(limit)
        reply = await self._run("audit", {"subject": subject, "limit": limit})
        return tuple(
            AuditEntry(id=id_, at=moment(at), by=by or None, action=action, subject=of, detail=_json(detail))
            for id_, at, by, action, of, detail in reply.answer["entries"]
        )

    async def averages(self, names: Sequence[str]) -> Mapping[str, Mean]:
        if not names:
            return {}
        packed = await self._command("HMGET", "averages", *names)
        found = {name: msgspec.msgpack.decode(text) for name, text in zip(names, packed, strict=True) if text}
        return {
            name: Mean(value=float(value), square=float(square), count=count)
            for name, (value, square, count) in found.items()
        }

    async def estimate_errors(self, task: str) -> tuple[float, ...]:
        return tuple(float(ratio) for ratio in await self._command("LRANGE", f"errors:{task}", 0, -1))

    async def events(
        self,
        after: int,
        *,
        kinds: Collection[str] | None = None,
        subjects: Collection[str] | None = None,
        limit: int = 1000,
    ) -> Feed:
        check.check_cursor(after)
        check.check_page(limit)
        wanted = {
            "after": after,
            "kinds": None if kinds is None else list(kinds),
            "only_signals": kinds is not None and SIGNALS.issuperset(kinds),
            "subjects": None if subjects is None else list(subjects),
            "limit": limit,
        }
        answer = (await self._run("events", wanted)).answer
        found = tuple(event_of(each) for each in answer["events"])
        return Feed(events=found, cursor=answer["cursor"], reset=answer.get("reset", False))

    async def newest_event(self) -> int:
        packed = await self._command("GET", "counters")
        return 0 if packed is None else int(msgspec.msgpack.decode(packed)[NEWEST_EVENT])

    async def record(self, name: str) -> Record:
        packed = await self._command("HGET", "records", name)
        if packed is None:
            return Record()
        version, value = msgspec.msgpack.decode(packed)
        return Record(version=version, value=_json(value))

    async def records(self, prefix: str) -> Mapping[str, Record]:
        found = (await self._run("records", {"prefix": prefix})).answer["records"]
        return {name: Record(version=version, value=_json(value)) for name, version, value in found}


def event_of(found: Sequence[Any]) -> Event:
    id_, at, kind, subject, detail = found
    return Event(id=id_, at=moment(at), kind=kind, subject=subject, detail=_json(detail))


def _status(found: Mapping[str, Any]) -> GroupStatus:
    source, closed_until = found.get("source"), found.get("closed_until")
    return GroupStatus(
        group=found["group"],
        limit=found.get("limit"),
        source=None if source is None else Source(source),
        paused=found.get("paused", False),
        closed_until=None if closed_until is None else moment(closed_until),
        active=found["active"],
        waiting=found["waiting"],
        slots=tuple(
            SlotInfo(
                slot_id=slot["slot_id"],
                holder=slot["holder"],
                worker_id=slot.get("worker"),
                expires_at=moment(slot["expires_at"]),
                token=plain_token(slot["token"]),
            )
            for slot in found.get("slots") or ()
        ),
    )
