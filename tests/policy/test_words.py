"""Numbers and times as people say them (SPEC.md sections 2 and 6)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qo.policy.words import ago, clock_time, counted, position_message, short_span, span

NOON = datetime(2026, 3, 11, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 seconds"),
        (1, "1 second"),
        (2, "2 seconds"),
        (45, "45 seconds"),
        (59.999, "59 seconds"),
        (60, "1 minute"),
        (119, "1 minute"),
        (120, "2 minutes"),
        (1050, "17 minutes"),
        (1950, "32 minutes"),
        (3599, "59 minutes"),
        (3600, "1h 0m"),
        (7200 + 5 * 60, "2h 5m"),
        (7200 + 5 * 60 + 59.9, "2h 5m"),
        (100 * 3600 + 59 * 60, "100h 59m"),
    ],
)
def test_a_span_is_said_in_its_largest_units_rounded_down(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3, "0 s ago"), (0, "0 s ago"), (40.9, "40 s ago"), (59.9, "59 s ago"), (60, "1 min ago"),
        (3599, "59 min ago"), (3600, "1 h ago"), (172_799, "47 h ago"), (172_800, "2 days ago"),
    ],
)  # fmt: skip
def test_how_long_ago_is_said_in_its_largest_unit_rounded_down(seconds: float, words: str) -> None:
    assert ago(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-0.2, "0.0s"), (0, "0.0s"), (0.39, "0.3s"), (9.99, "9.9s"), (10, "10s"), (59.9, "59s"), (60, "1m 0s"),
        (192, "3m 12s"), (3599, "59m 59s"), (3600, "1h 0m"), (100_000, "27h 46m"),
    ],
)  # fmt: skip
def test_logs_have_a_span_in_few_letters_rounded_down(seconds: float, words: str) -> None:
    assert short_span(seconds) == words


@pytest.mark.parametrize("seconds", [-0.5, -1, -3, -4000])
def test_a_span_that_two_clocks_make_negative_is_no_time_at_all(seconds: float) -> None:
    assert span(seconds) == "0 seconds"


@given(st.floats(0, 10**9), st.floats(0, 10**9))
def test_a_longer_span_is_never_said_as_a_shorter_one(one: float, other: float) -> None:
    shorter, longer = sorted((one, other))

    assert said_seconds(span(shorter)) <= said_seconds(span(longer))
    assert said_seconds(span(longer)) <= longer


def said_seconds(words: str) -> int:
    number, unit = words.split()
    if number.endswith("h"):
        return int(number[:-1]) * 3600 + int(unit[:-1]) * 60
    return int(number) * (60 if unit.startswith("minute") else 1)


@pytest.mark.parametrize(("number", "words"), [(0, "0 jobs"), (1, "1 job"), (2, "2 jobs"), (100, "100 jobs")])
def test_only_one_is_singular(number: int, words: str) -> None:
    assert counted(number, "job") == words


@pytest.mark.parametrize("original", [None, 4, 5, 100])
def test_a_place_no_worse_than_at_first_comes_with_the_warning_that_it_may_change(original: int | None) -> None:
    message = position_message(4, original, placed_ahead=None, displaced=None)

    assert message == "You are #4 in queue. Your position may change as priority jobs are added"


@pytest.mark.parametrize(
    ("original", "position", "placed_ahead", "message"),
    [
        (4, 6, 2, "Originally #4, now #6: 2 priority jobs were placed ahead of you"),
        (4, 5, 1, "Originally #4, now #5: 1 priority job was placed ahead of you"),
        (1, 101, 100, "Originally #1, now #101: 100 priority jobs were placed ahead of you"),
        (4, 6, 5, "Originally #4, now #6: 5 priority jobs were placed ahead of you"),
        (4, 6, 0, "Originally #4, now #6: earlier jobs came back or moved up"),
        (
            4,
            6,
            1,
            "Originally #4, now #6: 1 priority job was placed ahead of you, and earlier jobs came back or moved up",
        ),
        (4, 6, None, "Originally #4, now #6: other jobs went ahead of you"),
    ],
)
def test_a_place_that_got_worse_says_from_where_and_why(
    original: int, position: int, placed_ahead: int | None, message: str
) -> None:
    assert position_message(position, original, placed_ahead=placed_ahead, displaced=None) == message


@pytest.mark.parametrize("placed_ahead", [None, 0, 2])
@pytest.mark.parametrize(
    ("displaced", "message"),
    [
        ("moved", "Originally #4, now #6: an operator moved your job"),
        ("priority", "Originally #4, now #6: the priority of your job was lowered"),
    ],
)
def test_the_message_of_a_job_that_a_person_put_back_says_so(
    displaced: str, placed_ahead: int | None, message: str
) -> None:
    assert position_message(6, 4, placed_ahead=placed_ahead, displaced=displaced) == message


@pytest.mark.parametrize("displaced", ["moved", "priority"])
def test_the_act_of_a_person_is_not_mentioned_for_a_place_that_is_no_worse(displaced: str) -> None:
    message = position_message(4, 4, placed_ahead=None, displaced=displaced)

    assert message == "You are #4 in queue. Your position may change as priority jobs are added"


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (NOON, "12:00 UTC"),
        (NOON + timedelta(hours=2, minutes=5), "14:05 UTC"),
        (NOON - timedelta(hours=11, minutes=51), "00:09 UTC"),
        (NOON + timedelta(hours=11, minutes=59, seconds=59), "23:59 UTC"),
    ],
)
def test_a_time_of_today_has_no_date(at: datetime, words: str) -> None:
    assert clock_time(at, now=NOON) == words


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (NOON + timedelta(hours=12, minutes=7), "00:07 UTC on Thursday, 12 March 2026"),
        (NOON - timedelta(hours=12, minutes=1), "23:59 UTC on Tuesday, 10 March 2026"),
        (NOON.replace(year=2027), "12:00 UTC on Thursday, 11 March 2027"),
    ],
)
def test_a_time_of_another_day_has_its_weekday_and_date(at: datetime, words: str) -> None:
    assert clock_time(at, now=NOON) == words


def test_the_day_of_a_month_has_no_leading_zero() -> None:
    assert clock_time(NOON.replace(day=5), now=NOON) == "12:00 UTC on Thursday, 5 March 2026"


def test_a_time_made_in_another_zone_is_shown_in_utc() -> None:
    tokyo = timezone(timedelta(hours=9))

    assert clock_time(NOON.astimezone(tokyo), now=NOON) == "12:00 UTC"
    assert clock_time(datetime(2026, 3, 12, 1, 30, tzinfo=tokyo), now=NOON) == "16:30 UTC"


def test_a_time_less_than_a_minute_ahead_has_its_seconds_so_that_it_does_not_seem_past() -> None:
    now = NOON + timedelta(seconds=30)

    assert clock_time(now + timedelta(seconds=2), now=now) == "12:00:32 UTC"
