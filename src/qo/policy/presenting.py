"""The parts of a job that the store does not know: its place in words, when it will run, the usage of its user."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from qo.job import Estimate, Job, State, Upgrade, Usage, moment
from qo.policy.confirming import message_now
from qo.policy.days import midnight
from qo.policy.words import position_message, scheduled_message
from qo.settings.sections import Settings, Tier

NUDGE = "Upgrade to jump ahead"


def present(
    job: Job,
    settings: Settings,
    *,
    usage: Usage | None,
    estimate: Estimate | None = None,
    placed_ahead: int | None = None,
    now: datetime,
) -> Job:
    """The job as its user reads it. `placed_ahead` is the number of jobs ahead that joined later, if it was counted."""
    changes: dict[str, object] = {}
    if usage is not None:
        changes["usage"] = usage_of_job(usage, job)
    if estimate is not None:
        changes["estimate"] = estimate
    if job.position is not None:
        changes["position_message"] = position_message(
            job.position, job.position_original, placed_ahead=placed_ahead, displaced=job.displaced
        )
        changes["upgrade"] = upgrade(job.tier, settings.tiers, settings.queue.upgrade_url)
    if job.state is State.SCHEDULED and job.deferred and job.run_at is not None:
        changes["message"] = scheduled_message(job.run_at, now=now)
    elif (message := message_now(job)) != job.message:
        changes["message"] = message
    return msgspec.structs.replace(job, **changes) if changes else job


def usage_of_job(usage: Usage, job: Job) -> Usage:
    """A user's usage with the iterations of one of their jobs."""
    most = job.iterations_max
    return msgspec.structs.replace(
        usage,
        iterations_used=job.iterations,
        iterations_remaining=None if most is None else max(0, most - job.iterations),
    )


def usage_of_user(*, used: int, quota: int | None, today: int) -> Usage:
    """What a user has used of `today`, a day counted from 1970. The next day begins at midnight UTC."""
    return Usage(
        jobs_used=used,
        jobs_remaining=None if quota is None else max(0, quota - used),
        iterations_used=0,
        iterations_remaining=None,
        daily_limit_resets_at=moment(midnight(today + 1)),
    )


def upgrade(tier: str | None, tiers: Mapping[str, Tier], url: str | None) -> Upgrade | None:
    """The offer to a user whose tier has not the highest boost. None without a url to send them to."""
    if url is None or tier is None or tier not in tiers:
        return None
    highest = max(each.boost for each in tiers.values())
    return Upgrade(message=NUDGE, url=url) if tiers[tier].boost < highest else None
