"""What a submit says and what the settings say, as the plain numbers and names a store needs (SPEC.md section 4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qo.errors import InvalidPriority, InvalidSubmit, PayloadTooLarge, QueueFull, SubmitRefused, UnknownTier
from qo.new_job import New
from qo.policy.admission import encode_payload, find_tier, make_submission, milliseconds, retry_after, standing_of
from qo.settings import BUILT_IN_TIERS, QueueSettings, Settings, Tier
from qo.values import Limit, Source, Standing, Submission

NOW_MS = 1_773_230_400_000
NOW = datetime(2026, 3, 11, 12, 0, tzinfo=UTC)
ONE_MIB = 1_048_576


def admit(*, settings: Settings | None = None, task: str = "build", drawn: float = 0, **fields: Any) -> Submission:
    return make_submission(New(task, **fields), settings or Settings(), job_id="j1", drawn=drawn)


def queue_settings(**fields: Any) -> Settings:
    return Settings(queue=QueueSettings(**fields))


def refusal(**fields: Any) -> str:
    with pytest.raises(InvalidSubmit) as refused:
        admit(**fields)
    return str(refused.value)


def test_a_submit_that_says_nothing_has_the_defaults() -> None:
    assert admit() == Submission(id="j1", task="build", payload=b"null", priority=50)


def test_what_needs_no_decision_is_taken_as_the_caller_said_it() -> None:
    said: dict[str, Any] = {
        "user": "ada",
        "project": "site",
        "parent": "107",
        "phase": 2,
        "unique": "key",
        "max_attempts": 7,
        "by": "cli",
    }

    submission = admit(**said)

    assert {field: getattr(submission, field) for field in said} == said


@pytest.mark.parametrize(("drawn", "jitter_ms"), [(0, 0), (0.25, 900_000), (1, 3_600_000)])
def test_the_jitter_of_a_deferred_job_is_the_drawn_share_of_the_configured_span(drawn: float, jitter_ms: int) -> None:
    assert admit(drawn=drawn).quota_jitter_ms == jitter_ms


# --- priority ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_value", "number"),
    [("urgent", 10), ("high", 20), ("normal", 50), ("low", 70), ("background", 90), (0, 0), (37, 37), (99, 99)],
)
def test_a_priority_is_taken_by_name_or_number(given_value: int | str, number: int) -> None:
    assert admit(priority=given_value).priority == number


@pytest.mark.parametrize("value", [-1, 100, 5.0, True, "soon", ""])
def test_any_other_priority_is_refused_with_the_value(value: bool | float | str) -> None:
    with pytest.raises(InvalidPriority, match="priority is ") as refused:
        admit(priority=value)

    assert repr(value) in str(refused.value)


@pytest.mark.parametrize(("default", "number"), [("low", 70), (5, 5)])
def test_a_job_without_a_priority_has_the_configured_one(default: int | str, number: int) -> None:
    assert admit(settings=queue_settings(default_priority=default)).priority == number


def test_a_phase_without_a_priority_inherits_that_of_its_parent() -> None:
    assert admit(parent="107", phase=2).priority is None


@pytest.mark.parametrize(("given_value", "number"), [("high", 20), (0, 0)])
def test_a_phase_may_name_a_priority_of_its_own(given_value: int | str, number: int) -> None:
    assert admit(parent="107", phase=2, priority=given_value).priority == number


# --- groups and their limit -------------------------------------------------------------------------------------


def test_groups_are_taken_in_the_order_given_with_the_concurrency_group_behind_them() -> None:
    assert admit(groups=("gpu", "ports")).groups == ("gpu", "ports")
    assert admit(groups=("gpu", "ports"), concurrency_group="api").groups == ("gpu", "ports", "api")


def test_groups_may_be_any_sequence_of_names() -> None:
    assert admit(groups=["gpu", "ports"]).groups == ("gpu", "ports")


@pytest.mark.parametrize("groups", ["gpu", b"gpu", None, 5])
def test_groups_that_are_no_list_of_names_are_refused_by_their_field(groups: bytes | int | str | None) -> None:
    assert refusal(groups=groups).startswith("groups is ")


def test_the_tasks_own_group_need_not_be_added() -> None:
    assert admit(task="build", concurrency_group="build").groups == ()


@pytest.mark.parametrize(
    ("fields", "limited"),
    [
        ({}, None),
        ({"concurrency_group": "api"}, None),
        ({"concurrency_limit": 5}, "build"),
        ({"concurrency_limit": 0}, "build"),
        ({"concurrency_limit": 5, "concurrency_group": "build"}, "build"),
        ({"concurrency_limit": 5, "concurrency_group": "api"}, "api"),
        ({"concurrency_limit": 5, "groups": ("gpu",)}, "build"),
    ],
)
def test_a_concurrency_limit_is_for_the_concurrency_group_which_defaults_to_the_tasks(
    fields: dict[str, Any], limited: str | None
) -> None:
    assert admit(**fields).limits == (
        () if limited is None else (Limit(group=limited, slots=fields["concurrency_limit"], source=Source.SUBMIT),)
    )


# --- when it runs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delay", "after_ms"),
    [
        (0, 0),
        (30, 30_000),
        (0.25, 250),
        (0.0004, 0),
        (timedelta(minutes=5), 300_000),
        (timedelta(milliseconds=1), 1),
        (timedelta(0), 0),
    ],
)
def test_a_delay_in_seconds_or_as_a_timedelta_stays_a_span(delay: float | timedelta, after_ms: int) -> None:
    assert (admit(delay=delay).delay_ms, admit(delay=delay).run_at_ms) == (after_ms, None)


@pytest.mark.parametrize(
    "run_at",
    [
        NOW + timedelta(hours=1),
        (NOW + timedelta(hours=1)).astimezone(timezone(timedelta(hours=9))),
        (NOW + timedelta(hours=1)).astimezone(timezone(-timedelta(hours=3, minutes=30))),
    ],
)
def test_a_run_at_is_the_same_moment_in_every_zone(run_at: datetime) -> None:
    assert admit(run_at=run_at).run_at_ms == NOW_MS + 3_600_000


def test_a_run_at_that_has_passed_is_allowed() -> None:
    assert admit(run_at=NOW - timedelta(days=1)).run_at_ms == NOW_MS - 86_400_000


@pytest.mark.parametrize("run_at", [NOW.replace(tzinfo=None), "2026-03-11T12:00:00Z", 1_773_230_400, NOW.date()])
def test_a_run_at_without_a_time_zone_is_refused(run_at: object) -> None:
    assert refusal(run_at=run_at) == f"run_at is {run_at!r}; use a datetime with a time zone, such as UTC."


def test_a_delay_and_a_run_at_together_are_refused() -> None:
    sentence = refusal(delay=5, run_at=NOW)

    assert sentence == "delay is 5 and run_at is 2026-03-11T12:00:00+00:00; give one of the two."


def test_a_delay_of_zero_beside_a_run_at_is_refused_too() -> None:
    assert "give one of the two" in refusal(delay=0, run_at=NOW)


def test_a_delay_and_a_run_at_that_is_no_datetime_are_refused_like_any_bad_input() -> None:
    assert "run_at is " in refusal(delay=5, run_at="tomorrow")


NO_SPANS = [-1, -0.001, timedelta(seconds=-1), math.nan, math.inf, -math.inf, True, False, "5", [], 5j]


@pytest.mark.parametrize("field", ["delay", "timeout"])
@pytest.mark.parametrize("span", NO_SPANS, ids=repr)
def test_what_is_no_span_of_time_is_refused_by_its_field_and_value(field: str, span: object) -> None:
    sentence = refusal(**{field: span})

    assert sentence == f"{field} is {span!r}; use seconds of 0 or more (at most a hundred years), or a timedelta."


@pytest.mark.parametrize("field", ["delay", "timeout"])
@pytest.mark.parametrize("span", [1e306, 10**400], ids=["float", "int"])
def test_a_span_too_long_for_a_number_of_milliseconds_is_refused_by_its_field(field: str, span: float) -> None:
    assert refusal(**{field: span}).startswith(f"{field} is ")


@pytest.mark.parametrize(("timeout", "timeout_ms"), [(60, 60_000), (0.5, 500), (timedelta(hours=1), 3_600_000)])
def test_a_timeout_is_stored_in_milliseconds(timeout: float | timedelta, timeout_ms: int) -> None:
    assert admit(timeout=timeout).timeout_ms == timeout_ms


@given(st.timedeltas(timedelta(0), timedelta(days=36_500)))
def test_a_timedelta_and_its_seconds_are_the_same_span(span: timedelta) -> None:
    assert milliseconds("delay", span) == milliseconds("delay", span.total_seconds())
    assert abs(milliseconds("delay", span) - span / timedelta(milliseconds=1)) <= 0.5


# --- the payload ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [None, {}, [], "", 0, -1.5, True, 2**70, {"id": 7, "tags": ["a", None, {"deep": [1, 2.5]}]}, "naïve ✓", "null"],
    ids=repr,
)
def test_a_payload_is_the_json_of_the_data(data: object) -> None:
    assert msgspec.json.decode(admit(data=data).payload) == data


def test_a_typed_payload_is_the_json_of_its_fields() -> None:
    @dataclass
    class Order:
        number: int
        paid: bool

    assert msgspec.json.decode(admit(data=Order(7, True)).payload) == {"number": 7, "paid": True}


def endless() -> list[object]:
    loop: list[object] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    "data",
    [object(), {"when": object()}, {(1, 2): 3}, {None: 1}, lambda: None, "\ud800", 1j, endless()],
    ids=["object", "nested", "tuple key", "None key", "function", "lone surrogate", "complex", "endless"],
)
def test_data_that_is_not_json_is_refused(data: object) -> None:
    sentence = refusal(data=data)

    assert sentence.startswith("data")
    assert sentence.endswith(".")
    assert ";" in sentence


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("wrapped", [lambda number: number, lambda number: {"x": [None, number]}], ids=["bare", "deep"])
def test_numbers_that_json_does_not_have_are_refused_and_not_turned_into_null(
    number: float, wrapped: Callable[[float], object]
) -> None:
    assert f" is {number}, for which JSON has no number; " in refusal(data=wrapped(number))


def test_a_payload_is_at_most_one_mib_of_json() -> None:
    assert len(admit(data="x" * (ONE_MIB - 2)).payload) == ONE_MIB

    with pytest.raises(PayloadTooLarge) as refused:
        admit(data="x" * (ONE_MIB - 1))

    assert str(refused.value) == (
        "data is 1048577 bytes of JSON; at most 1048576 are allowed. Store it elsewhere and submit where it is."
    )


def test_a_payload_is_measured_in_bytes_and_not_in_characters() -> None:
    assert encode_payload("é" * 4, most_bytes=10) == '"éééé"'.encode()

    with pytest.raises(PayloadTooLarge, match="data is 12 bytes of JSON; at most 10 are allowed"):
        encode_payload("é" * 5, most_bytes=10)


def test_the_size_limit_of_a_payload_is_configurable() -> None:
    with pytest.raises(PayloadTooLarge, match="at most 8 are allowed"):
        admit(settings=queue_settings(max_payload_bytes=8), data="1234567")


# --- the cap ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("applies_to", "tier", "cap"),
    [("tiered", None, None), ("tiered", "partner", 100), ("all", None, 100), ("all", "partner", 100)],
)
def test_the_cap_guards_the_door_of_tiered_submits_or_of_all(
    applies_to: str, tier: str | None, cap: int | None
) -> None:
    assert admit(settings=queue_settings(cap_applies_to=applies_to), user="ada", tier=tier).cap == cap


@pytest.mark.parametrize("cap", [0, 5])
def test_the_cap_is_configurable_and_may_be_zero(cap: int) -> None:
    assert admit(settings=queue_settings(cap=cap), user="ada", tier="partner").cap == cap


@pytest.mark.parametrize(
    ("over", "average", "capacity", "minutes"),
    [
        (0, 600, 1, 15),
        (0, 900, 1, 15),
        (0, 901, 1, 30),
        (1, 600, 1, 30),
        (2, 600, 1, 30),
        (3, 600, 2, 30),
        (5, 600, 1, 60),
        (5, 600, 4, 15),
        (5, 600, 100, 15),
        (99, 600, 1, 1005),
        (0, 0, 1, 15),
        (0, 0.001, 100, 15),
    ],
)
def test_a_refused_caller_gets_the_time_to_work_off_the_excess_in_quarters_of_an_hour(
    over: int, average: float, capacity: int, minutes: int
) -> None:
    wait = retry_after(over=over, average_seconds=average, capacity=capacity, step_seconds=900)

    assert wait == timedelta(minutes=minutes)


def test_no_worker_at_all_counts_as_one_place() -> None:
    assert retry_after(over=2, average_seconds=600, capacity=0, step_seconds=900) == timedelta(minutes=30)


@given(
    over=st.integers(0, 10**5), average=st.floats(0, 10**6), capacity=st.integers(0, 10**4), step=st.integers(1, 86_400)
)
def test_the_wait_is_a_whole_number_of_steps_never_none_and_less_than_a_step_too_long(
    over: int, average: float, capacity: int, step: int
) -> None:
    wait = retry_after(over=over, average_seconds=average, capacity=capacity, step_seconds=step)
    needed = (over + 1) * average / max(capacity, 1)

    assert wait >= timedelta(seconds=step)
    assert wait % timedelta(seconds=step) == timedelta(0)
    assert wait.total_seconds() == pytest.approx(max(needed, step), abs=step)
    assert wait.total_seconds() >= needed * (1 - 1e-9)


@pytest.mark.parametrize(
    ("seconds", "said"), [(900, "15 minutes"), (1800, "30 minutes"), (60, "1 minute"), (20, "1 minute")]
)
def test_a_full_line_names_whole_minutes_and_at_least_one(seconds: int, said: str) -> None:
    full = QueueFull(103, 100, timedelta(seconds=seconds))

    assert str(full) == f"The system is busy, try again in {said} (103 jobs in line, cap 100)."
    assert full.retry_after == timedelta(seconds=seconds)
    assert not full.is_guess


def test_a_time_to_try_again_that_was_not_measured_is_called_a_first_guess() -> None:
    full = QueueFull(103, 100, timedelta(hours=7), is_guess=True)

    assert str(full) == "The system is busy, try again in 420 minutes, a first guess (103 jobs in line, cap 100)."
    assert full.is_guess


# --- tiers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bootstrapper", "partner", "cto_scale"])
def test_a_tier_is_found_by_its_name(name: str) -> None:
    assert find_tier(name, Settings().tiers) is BUILT_IN_TIERS[name]


def test_a_tier_of_the_configuration_works_like_a_built_in_one() -> None:
    assert find_tier("gold", {"gold": Tier(boost=9)}).boost == 9


@pytest.mark.parametrize("name", ["gold", "Partner", ""])
def test_an_unknown_tier_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(UnknownTier) as refused:
        find_tier(name, Settings().tiers)

    assert str(refused.value).startswith(f"tier is {name!r}; use one of bootstrapper, cto_scale, partner, ")


def test_the_error_of_an_unknown_tier_says_where_to_add_it() -> None:
    with pytest.raises(UnknownTier) as refused:
        find_tier("gold", Settings().tiers)

    assert str(refused.value) == (
        "tier is 'gold'; use one of bootstrapper, cto_scale, partner, or add it under [tiers.gold]."
    )


def test_a_submit_carries_what_its_tier_grants() -> None:
    tier = Tier(boost=9, per_user=2, per_project=3, jobs_per_day=4, iterations=5, iteration_batches=3)
    standing = Standing(
        tier="gold",
        boost=9,
        user_limit=2,
        project_limit=3,
        daily_quota=4,
        iterations_batch=5,
        iterations_max=15,
    )

    assert standing_of("gold", {"gold": tier}) == standing
    assert admit(settings=Settings(tiers={"gold": tier}), user="ada", tier="gold").standing == standing


@pytest.mark.parametrize("error", [InvalidPriority, PayloadTooLarge, UnknownTier, InvalidSubmit, QueueFull])
def test_whatever_refuses_a_submit_is_a_submit_refused(error: type[Exception]) -> None:
    assert issubclass(error, SubmitRefused)


def test_a_tier_without_a_user_is_refused() -> None:
    assert refusal(tier="partner") == (
        "tier is 'partner' but user is not given; name the user whose tier it is, or leave tier out."
    )


@pytest.mark.parametrize("year", [1, 1969, 9999])
def test_a_time_that_no_store_can_tell_is_refused_by_the_name_that_callers_know(year: int) -> None:
    sentence = refusal(run_at=datetime(year, 6, 1, tzinfo=UTC))

    assert sentence == f"run_at is {year:04}-06-01T00:00:00+00:00; use a time from 1970 to the end of 9998."
