"""The history: jobs that have ended, and the figures of each day."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import msgspec
from msgspec import Meta

from qo.job import Job
from qo.policy.daily import DailyFigures, daily_figures
from qo.service.operations import Call, May, Operation
from qo.service.shapes import MOST_OF_A_PAGE, AName, JobPage, JobsQuery, Page, Taken
from qo.values import Wanted

MOST_DAYS = 400
JOBS_OF_A_STORE = 2000
"""Where no database keeps the history, the figures are those of so many newest ended jobs."""


class DailyQuery(Taken, frozen=True, kw_only=True):
    days: Annotated[int, Meta(ge=1, le=MOST_DAYS, description=f"a whole number of days from 1 to {MOST_DAYS}")] = 30
    task: AName | None = None
    tier: AName | None = None


class Daily(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of days on which jobs were submitted, the oldest first."""

    items: list[DailyFigures]
    is_complete: bool
    """False where they are only those of the newest ended jobs that the store keeps."""


async def history(call: Call) -> Page:
    query = call.query(JobsQuery)
    wanted = query.wanted()
    if not call.sees_all:
        if query.user not in (None, call.caller.user):
            return Page(items=[])
        wanted["user"] = call.caller.user
    reader = call.shared.history
    if reader is not None:
        page = await reader.page(limit=query.limit, after=query.after, **wanted)
    else:
        wanted["ended"] = True
        page = await call.queue.jobs_page(limit=query.limit, after=query.after, newest_first=True, **wanted)
    return Page(items=await call.rows(page.jobs), next=page.next)


async def daily(call: Call) -> Daily:
    query = call.query(DailyQuery)
    midnight = call.queue.system.now().replace(hour=0, minute=0, second=0, microsecond=0)
    since = midnight - timedelta(days=query.days - 1)
    wanted = Wanted(task=query.task, tier=query.tier)
    reader = call.shared.history
    if reader is not None:
        return Daily(items=await reader.daily(since=since, **wanted), is_complete=True)
    jobs, is_complete = await _newest_ended(call, wanted)
    return Daily(items=daily_figures(job for job in jobs if job.submitted_at >= since), is_complete=is_complete)


async def _newest_ended(call: Call, wanted: Wanted) -> tuple[list[Job], bool]:
    found: list[Job] = []
    after = None
    wanted["ended"] = True
    while len(found) < JOBS_OF_A_STORE:
        page = await call.queue.store_here.jobs(limit=MOST_OF_A_PAGE, after=after, newest_first=True, **wanted)
        found += page.jobs
        after = page.next
        if after is None:
            break
    return found, after is None


OPERATIONS = (
    Operation(
        "GET",
        "/api/history",
        May.OWNER,
        history,
        "List jobs that have ended, the newest first.",
        query=JobsQuery,
        answers=JobPage,
    ),
    Operation(
        "GET",
        "/api/history/daily",
        May.VIEWER,
        daily,
        "Get the figures of each day: how many jobs ended and how, how long they waited and ran.",
        query=DailyQuery,
        answers=Daily,
    ),
)
