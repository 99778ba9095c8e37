"""How many jobs a filter matches, by state."""

from __future__ import annotations

from collections import Counter

import msgspec

from qo.job import State
from qo.service.operations import Call, May, Operation
from qo.service.shapes import MOST_OF_A_PAGE, Filter

MOST_COUNTED = 10_000


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that match, by state. Counting stops at 10,000 jobs: `is_complete` is false then."""

    states: dict[State, int]
    is_complete: bool


async def count(call: Call) -> Counts:
    query = call.query(Filter)
    wanted = query.wanted()
    if not call.sees_all:
        if query.user not in (None, call.caller.user):
            return Counts(states={}, is_complete=True)
        wanted["user"] = call.caller.user
    found: Counter[State] = Counter()
    after = None
    while found.total() < MOST_COUNTED:
        page = await call.queue.store_here.jobs(limit=MOST_OF_A_PAGE, after=after, **wanted)
        found.update(job.state for job in page.jobs)
        after = page.next
        if after is None:
            break
    return Counts(states=dict(found), is_complete=after is None)


OPERATIONS = (
    Operation(
        "GET", "/api/counts", May.OWNER, count, "Count the jobs of a filter, by state.", query=Filter, answers=Counts
    ),
)
