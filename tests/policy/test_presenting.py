"""What people read of a job beside what the store knows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from qo.job import Job, State, Upgrade
from qo.policy.presenting import NUDGE, present, upgrade, usage_of_user
from qo.policy.words import scheduled_message
from qo.settings import BUILT_IN_TIERS, QueueSettings, Settings, Tier

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)  # a Monday
RESET = datetime(2026, 11, 17, tzinfo=UTC)
TODAY = (NOW - datetime(1970, 1, 1, tzinfo=UTC)).days
URL = "https://example.com/upgrade"


def job(**fields: Any) -> Job:
    given = {"state": State.QUEUED, **fields}
    return Job(
        id="a",
        task="build",
        status=given["state"].value,
        priority=50,
        groups=(),
        submitted_at=NOW,
        attempts=0,
        **given,
    )


@pytest.mark.parametrize(
    ("run_at", "said"),
    [
        (datetime(2026, 11, 16, 18, tzinfo=UTC), "Scheduled for today"),
        (datetime(2026, 11, 17, 0, 0, 1, tzinfo=UTC), "Scheduled for tomorrow"),
        (datetime(2026, 11, 17, 23, 59, tzinfo=UTC), "Scheduled for tomorrow"),
        (datetime(2026, 11, 18, 0, 30, tzinfo=UTC), "Scheduled for Wednesday, 18 November"),
        (datetime(2026, 12, 1, 0, 30, tzinfo=UTC), "Scheduled for Tuesday, 1 December"),
        (datetime(2026, 12, 31, 23, 59, tzinfo=UTC), "Scheduled for Thursday, 31 December"),
        (datetime(2027, 1, 1, 0, 30, tzinfo=UTC), "Scheduled for Friday, 1 January 2027"),
        (datetime(2026, 11, 17, 1, tzinfo=UTC).astimezone(), "Scheduled for tomorrow"),
    ],
)
def test_a_deferred_job_is_scheduled_for_tomorrow_or_a_weekday_with_its_date(run_at: datetime, said: str) -> None:
    assert scheduled_message(run_at, now=NOW) == said
    deferred = job(state=State.SCHEDULED, deferred=True, run_at=run_at)
    assert present(deferred, Settings(), usage=None, now=NOW).message == said


def test_a_job_that_is_only_delayed_keeps_its_own_message() -> None:
    delayed = job(state=State.SCHEDULED, run_at=NOW + timedelta(days=1), message="later")

    assert present(delayed, Settings(), usage=None, now=NOW).message == "later"


@pytest.mark.parametrize(("used", "quota", "remaining"), [(0, 5, 5), (4, 5, 1), (5, 5, 0), (9, 5, 0), (3, None, None)])
def test_what_is_left_of_a_day_is_never_below_zero_and_none_where_nothing_limits_it(
    used: int, quota: int | None, remaining: int | None
) -> None:
    usage = usage_of_user(used=used, quota=quota, today=TODAY)

    assert (usage.jobs_used, usage.jobs_remaining, usage.daily_limit_resets_at) == (used, remaining, RESET)


@pytest.mark.parametrize(("used", "most", "remaining"), [(0, 6, 6), (4, 6, 2), (6, 6, 0), (3, None, None)])
def test_a_jobs_iterations_are_counted_against_the_hard_cap(used: int, most: int | None, remaining: int | None) -> None:
    usage = usage_of_user(used=1, quota=5, today=TODAY)
    shown = present(job(iterations=used, iterations_max=most), Settings(), usage=usage, now=NOW).usage

    assert shown is not None
    assert (shown.iterations_used, shown.iterations_remaining) == (used, remaining)


@pytest.mark.parametrize(
    ("tier", "offered"),
    [("bootstrapper", True), ("partner", True), ("cto_scale", False), (None, False), ("gone", False)],
)
def test_every_tier_below_the_highest_boost_is_nudged(tier: str | None, offered: bool) -> None:
    assert upgrade(tier, BUILT_IN_TIERS, URL) == (Upgrade(NUDGE, URL) if offered else None)


def test_no_upgrade_is_offered_without_a_url() -> None:
    assert upgrade("bootstrapper", BUILT_IN_TIERS, None) is None


def test_no_upgrade_is_offered_between_tiers_of_the_same_boost() -> None:
    assert upgrade("one", {"one": Tier(boost=3), "two": Tier(boost=3)}, URL) is None


def test_the_nudge_comes_with_the_position_only() -> None:
    settings = Settings(queue=QueueSettings(upgrade_url=URL))
    waiting = present(job(tier="partner", position=4, position_original=4), settings, usage=None, now=NOW)
    running = present(job(state=State.RUNNING, tier="partner"), settings, usage=None, now=NOW)

    assert (waiting.upgrade, running.upgrade) == (Upgrade("Upgrade to jump ahead", URL), None)
    assert waiting.position_message == "You are #4 in queue. Your position may change as priority jobs are added"
