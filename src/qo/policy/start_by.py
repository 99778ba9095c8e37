"""`start_by`: the time by which a job has to start, given as a span or as a time.

The rule, which every store keeps:

overdue   A job with a `start_by` is overdue from that time on, as long as it is scheduled, waiting or queued and has
          never started. A claim makes its `start_by` void; a job that is handed back as never started has it again. A
          retry by hand and a confirmation drop it. A span ends on steady time, a time on the store's clock.
failing   An overdue job fails with its `overdue_message`. It spends no attempt, and gives its quota back as at
          `cancel`. It is then charged to no day, and a retry by hand charges it to today, also beyond the quota.
first     `submit`, `claim`, `acquire` and `catch_up` begin with one portion of the overdue jobs, by (`start_by` on the
          store's clock, order of submission), before due jobs join the line. Then the deferred jobs of the users who
          got quota back move forward, user by user in the order of their names.
met       A claim or a hand-over that examines an overdue job fails it, whether or not its groups have room, and goes on
          with the next job of its lane. So no job starts late. The users' deferred jobs move forward when that claim
          has examined its last job, before its hand-over; or when that hand-over has examined its last one. They are no
          candidates in it any more. A claim in which quota was given back returns `more`, because jobs that it could
          take may have joined.
refused   A submission is refused when it could not join the line before its `start_by`: when that is not after now, or
          not after its `run_at` or the end of its delay. A quota refuses nobody, so a job that is deferred beyond its
          `start_by` is accepted, and fails when that has come.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from qo.errors import InvalidSubmit
from qo.new_job import New
from qo.policy.words import exact_span, full_time
from qo.spans import Span, checked_ms
from qo.values import Submission

LAST_MOMENT = datetime(9999, 1, 1, tzinfo=UTC)
"""The end of the time that every store can represent."""


class LatestStart(NamedTuple):
    """A `start_by` as a store takes it: at most one of the first two, and the message of its error."""

    at_ms: int | None = None
    within_ms: int | None = None
    message: str | None = None


NONE = LatestStart()


def latest_start(start_by: Span | datetime | None) -> LatestStart:
    """Raises `InvalidSubmit`, which names the field, unless it is a span above 0 or a time with a zone."""
    if start_by is None:
        return NONE
    if isinstance(start_by, datetime):
        return LatestStart(
            at_ms=time_milliseconds("start_by", start_by), message=f"Not started by {full_time(start_by)}"
        )
    within_ms = checked_ms("start_by", start_by, error=InvalidSubmit)
    if within_ms == 0:
        raise InvalidSubmit(f"start_by is {_shown(start_by)}; use seconds above 0, or a datetime with a zone.")
    return LatestStart(within_ms=within_ms, message=f"Not started within {exact_span(within_ms)}")


def time_milliseconds(field: str, at: datetime) -> int:
    """A time that a caller gave as `field`, as whole milliseconds."""
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise InvalidSubmit(f"{field} is {at!r}; use a datetime with a time zone, such as UTC.")
    if not 0 <= at.timestamp() <= LAST_MOMENT.timestamp():
        raise InvalidSubmit(f"{field} is {at.isoformat()}; use a time from 1970 to the end of 9998.")
    return round(at.timestamp() * 1000)


def is_never_in_time(submission: Submission, *, now: int) -> bool:
    """Whether the job could not join the line before it is overdue. `now` is the store's, when it decides."""
    at, within_ms = submission.start_by_ms, submission.start_within_ms
    if at is None and within_ms is None:
        return False
    latest = now + within_ms if within_ms is not None else at or 0
    return latest <= max(now, submission.run_at_ms or 0, now + (submission.delay_ms or 0))


def never_in_time(new: New) -> InvalidSubmit:
    """The error for a job that a store refused because it could not start in time."""
    start_by = _shown(new.start_by)
    if new.delay is not None:
        return InvalidSubmit(
            f"start_by is {start_by} and delay is {_shown(new.delay)}, so the job could not start in time; "
            "use a later start_by, or a shorter delay."
        )
    if new.run_at is not None:
        return InvalidSubmit(
            f"start_by is {start_by} and run_at is {new.run_at.isoformat()}, so the job could not start in time; "
            "use a start_by after run_at."
        )
    return InvalidSubmit(f"start_by is {start_by}, which is over; use a time ahead, or seconds from now.")


def _shown(start_by: Span | datetime | None) -> str:
    if isinstance(start_by, datetime):
        return start_by.isoformat()
    return f"{start_by.total_seconds():g} seconds" if isinstance(start_by, timedelta) else repr(start_by)
