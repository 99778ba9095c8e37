"""Reading the history: pages of jobs, one job, daily figures, and jobs that the store has lost."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, NamedTuple, Self, Unpack

import asyncpg
import msgspec

from qo.errors import InvalidValue, JobNotFound
from qo.history.database import check_url, connect, explained, location_of
from qo.job import ENDED, Attempt, Job, JobError, JobHistory, Promise, Reached, State, moment
from qo.policy.checks import shown
from qo.policy.daily import DailyFigures
from qo.values import JobsPage, Wanted

CONNECTIONS = 4
CURSOR = re.compile("h([0-9]{1,14})-([^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,200})")
COLUMNS = """id, submitted_at, state, task, user_id, project, tier, parent, phase, priority, groups, position, run_at,
    joined_at, started_at, finished_at, attempts, max_attempts, worker, message, error, promised_at,
    promised_lower_seconds, promised_upper_seconds"""
FILTERS = {
    "status": "state = {}",
    "user": "user_id = {}",
    "task": "task = {}",
    "parent": "parent = {}",
    "project": "project = {}",
    "tier": "tier = {}",
    "priority": "priority = {}",
    "id_prefix": "starts_with(id, {})",
}
DAILY = """
SELECT (submitted_at AT TIME ZONE 'UTC')::date AS day,
    count(*) FILTER (WHERE state = 'succeeded') AS succeeded, count(*) FILTER (WHERE state = 'failed') AS failed,
    count(*) FILTER (WHERE state = 'cancelled') AS cancelled, count(*) FILTER (WHERE state = 'accepted') AS unfinished,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY wait_seconds) AS wait_p50,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY wait_seconds) AS wait_p95,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY run_seconds) AS run_p50,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY run_seconds) AS run_p95
FROM history.jobs WHERE {} GROUP BY 1 ORDER BY 1"""
_decode_error = msgspec.json.Decoder(JobError).decode
_from_json = msgspec.json.Decoder().decode


class HistoryCursor(NamedTuple):
    """Where a page ended: at this job, submitted then."""

    submitted_ms: int
    id: str

    @classmethod
    def read(cls, text: str) -> Self:
        found = CURSOR.fullmatch(text)
        if found is None:
            raise InvalidValue(f"after is {shown(text)}; use the next of the page before, or None for the first page.")
        return cls(int(found[1]), found[2])

    def text(self) -> str:
        return f"h{self.submitted_ms}-{self.id}"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the history, with its payload if the history keeps payloads."""

    job: Job
    payload: Any = None


class Unended(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was accepted, and of which the history has no end."""

    id: str
    task: str
    submitted_at: datetime


class HistoryReader:
    """A few connections, opened when they are needed. All methods raise `HistoryAway`, and `SettingsError` where the
    url or the rights of its role are wrong."""

    def __init__(self, url: str) -> None:
        check_url(url)
        self.location = location_of(url)
        self._url = url
        self._pool: asyncpg.Pool | None = None

    async def close(self) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            pool.terminate()

    async def page(self, *, limit: int, after: str | None = None, **wanted: Unpack[Wanted]) -> JobsPage:
        """Jobs that have ended, those that were submitted last first."""
        query = _Query("state <> 'accepted'")
        query.add_filters(wanted)
        if after is not None:
            cursor = HistoryCursor.read(after)
            query.add("(submitted_at, id) < ({}, {})", moment(cursor.submitted_ms), cursor.id)
        statement = f"SELECT {COLUMNS} FROM history.jobs WHERE {query.text} ORDER BY submitted_at DESC, id DESC LIMIT"
        rows = await self._fetch(f"{statement} {limit + 1}", *query.values)
        jobs = tuple(_job(row) for row in rows[:limit])
        if len(rows) <= limit:
            return JobsPage(jobs=jobs)
        return JobsPage(jobs=jobs, next=HistoryCursor(_ms(jobs[-1].submitted_at), jobs[-1].id).text())

    async def job(self, job_id: str) -> Found:
        """The newest job of this id that has ended, with its attempts. Raises `JobNotFound`."""
        one = f"SELECT {COLUMNS}, payload, result FROM history.jobs WHERE id = $1 AND state <> 'accepted'"
        rows = await self._fetch(f"{one} ORDER BY submitted_at DESC LIMIT 1", job_id)
        if not rows:
            raise JobNotFound(job_id)
        (row,) = rows
        ends = "SELECT * FROM history.attempts WHERE job_id = $1 AND submitted_at = $2 ORDER BY ended_at, entry"
        attempts = [_attempt(each) for each in await self._fetch(ends, job_id, row["submitted_at"])]
        job = msgspec.structs.replace(_job(row, attempts), result=_json(row["result"]))
        return Found(job=job, payload=_json(row["payload"]))

    async def daily(self, *, since: datetime, **wanted: Unpack[Wanted]) -> list[DailyFigures]:
        """The figures of the jobs that were submitted since then, by day."""
        query = _Query("true")
        query.add("submitted_at >= {}", since)
        query.add_filters(wanted)
        rows = await self._fetch(DAILY.format(query.text), *query.values)
        return [DailyFigures(**dict(row.items())) for row in rows]

    async def unended(self, *, before: datetime, limit: int, after: Unended | None = None) -> list[Unended]:
        """The oldest jobs that were accepted before then and have no end, or those behind `after`."""
        query = _Query("state = 'accepted'")
        query.add("submitted_at < {}", before)
        if after is not None:
            query.add("(submitted_at, id) > ({}, {})", after.submitted_at, after.id)
        statement = (
            f"SELECT id, task, submitted_at FROM history.jobs WHERE {query.text} ORDER BY submitted_at, id LIMIT"
        )
        return [Unended(**dict(row.items())) for row in await self._fetch(f"{statement} {limit}", *query.values)]

    async def _fetch(self, query: str, *values: Any) -> list[asyncpg.Record]:
        with explained(self._url):
            async with self._connection() as connection:
                found: list[asyncpg.Record] = await connection.fetch(query, *values)
                return found

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        if self._pool is None:
            opens: Any = connect  # the stubs want a function with all the options of the driver's own
            self._pool = asyncpg.create_pool(self._url, min_size=0, max_size=CONNECTIONS, connect=opens)
        await self._pool  # makes it ready, once
        async with self._pool.acquire() as connection:
            yield connection


class _Query:
    """Conditions with numbered values."""

    def __init__(self, condition: str) -> None:
        self._conditions = [condition]
        self.values: list[Any] = []

    def add(self, condition: str, *values: Any) -> None:
        numbers = range(len(self.values) + 1, len(self.values) + len(values) + 1)
        self._conditions.append(condition.format(*(f"${number}" for number in numbers)))
        self.values += values

    def add_filters(self, wanted: Wanted) -> None:
        given: Mapping[str, Any] = {**wanted}
        for name, condition in FILTERS.items():
            if given.get(name) is not None:
                self.add(condition, given[name])

    @property
    def text(self) -> str:
        return " AND ".join(self._conditions)


def _job(row: asyncpg.Record, attempts: Sequence[Attempt] = ()) -> Job:
    state = State(row["state"])
    assert state in ENDED
    promise = None
    if row["promised_at"] is not None:
        lower, upper = row["promised_lower_seconds"], row["promised_upper_seconds"]
        promise = Promise(made_at=row["promised_at"], lower_bound=lower, upper_bound=upper)
    return Job(
        id=row["id"],
        task=row["task"],
        state=state,
        status=str(state),
        priority=row["priority"],
        groups=tuple(row["groups"]),
        submitted_at=row["submitted_at"],
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        tier=row["tier"],
        user=row["user_id"],
        project=row["project"],
        parent=row["parent"],
        phase=row["phase"],
        position_original=row["position"],
        error=None if row["error"] is None else _decode_error(row["error"]),
        message=row["message"],
        worker=row["worker"],
        run_at=row["run_at"],
        joined_at=row["joined_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        history=JobHistory(states=tuple(_reached(row)), attempts=tuple(attempts), promise=promise),
    )


def _reached(row: asyncpg.Record) -> Iterator[Reached]:
    """The last times at which it joined the line, started and ended."""
    named = ((State.QUEUED, "joined_at"), (State.RUNNING, "started_at"), (State(row["state"]), "finished_at"))
    return (Reached(status=str(state), at=row[name]) for state, name in named if row[name] is not None)


def _attempt(row: asyncpg.Record) -> Attempt:
    return Attempt(
        number=row["number"],
        worker=row["worker"],
        slots=_from_json(row["slots"]),
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        outcome=row["outcome"],
        debug_id=row["debug_id"],
    )


def _json(text: str | None) -> Any:
    return None if text is None else _from_json(text)


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
