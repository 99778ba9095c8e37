"""From what a caller says of a job to what a store's `submit` takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from qo.errors import InvalidSubmit, InvalidValue
from qo.ids import new_id
from qo.job import New
from qo.policy.admission import admission, find_tier
from qo.settings import Settings, Tier
from qo.store.check_value import check_name, check_number
from qo.store.values import Limit, Source, Standing, Submission


def make_submission(new: New, settings: Settings, *, draw: Callable[[], float]) -> Submission:
    """Raises a `SubmitRefused` that names the field."""
    _check_concurrency(new)
    admitted = admission(new, settings)
    limits: tuple[Limit, ...] = ()
    if admitted.limited_group is not None and new.concurrency_limit is not None:
        limits = (Limit(group=admitted.limited_group, slots=new.concurrency_limit, source=Source.SUBMIT),)
    return Submission(
        id=new_id() if new.id is None else new.id,
        task=new.task,
        payload=admitted.payload,
        priority=admitted.priority,
        user=new.user,
        project=new.project,
        standing=None if new.tier is None else standing_of(new.tier, settings.tiers),
        parent=new.parent,
        phase=new.phase,
        groups=admitted.groups,
        limits=limits,
        unique=new.unique,
        run_at_ms=admitted.run_at_ms,
        delay_ms=admitted.delay_ms,
        quota_jitter_ms=round(draw() * settings.queue.quota_jitter_secs * 1000),
        cap=admitted.cap,
        max_attempts=new.max_attempts,
        timeout_ms=admitted.timeout_ms,
        by=new.by,
    )


def _check_concurrency(new: New) -> None:
    """By the names that callers know; the store knows a group among others and its limit."""
    try:
        if new.concurrency_group is not None:
            check_name("concurrency_group", new.concurrency_group)
        if new.concurrency_limit is not None:
            check_number("concurrency_limit", new.concurrency_limit, 0)
    except InvalidValue as error:
        raise InvalidSubmit(str(error)) from None


def standing_of(name: str, tiers: Mapping[str, Tier]) -> Standing:
    """What a tier grants, as numbers. Raises `UnknownTier`."""
    tier = find_tier(name, tiers)
    return Standing(
        tier=name,
        boost=tier.boost,
        user_limit=tier.per_user,
        project_limit=tier.per_project,
        daily_quota=tier.jobs_per_day,
        iterations_batch=tier.iterations,
        iterations_max=tier.max_iterations,
    )
