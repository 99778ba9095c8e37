"""Which numbers, payloads and texts a store takes, and with which words it refuses others."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from qo.errors import InvalidPriority, PayloadTooLarge
from qo.job import JobError, Progress, State
from qo.policy import checks
from qo.store import check, check_values
from qo.values import Advance, Source, TaskOptions
from tests.store.good_values import (
    NO_COUNTS,
    allowed,
    average,
    claim,
    limit,
    outcome,
    refusal,
    registration,
    standing,
    submission,
    ticket,
)

MIB = 1024 * 1024


# --- numbers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("priority", [-1, 100, True, 5.0, "high", "50"])
def test_a_priority_is_a_whole_number_from_0_to_99(priority: bool | float | str) -> None:
    asked: list[Callable[[], None]] = [
        lambda: check_values.check_submission(submission(priority=priority)),
        lambda: checks.check_priority(cast("int", priority)),
        lambda: check_values.check_ticket(ticket(priority=priority)),
    ]
    for checked in asked:
        with pytest.raises(InvalidPriority, match=r"^priority is .* 0 \(soonest\) to 99"):
            checked()


@pytest.mark.parametrize("priority", [0, 50, 99, Source.OPERATOR])
def test_every_priority_from_0_to_99_is_allowed(priority: Source | int) -> None:
    check_values.check_submission(submission(priority=priority))

    assert allowed(checks.check_priority, priority)


@pytest.mark.parametrize("slots", NO_COUNTS)
def test_a_limit_is_a_whole_number_from_0(slots: bool | float | str | None) -> None:
    told = str(refusal(check_values.check_limits, [limit(group="gpu", slots=slots)]))
    refusal(check_values.check_submission, submission(limits=(limit(slots=slots),)))

    assert told == f"limit of group 'gpu' is {slots!r}; use a whole number from 0 to 2147483647."


def test_a_limit_of_0_is_allowed() -> None:
    check_values.check_limits([limit(slots=0)])
    checks.check_standing(standing(user_limit=0, project_limit=0))

    assert allowed(check_values.check_registration, registration(tasks=(TaskOptions(name="build", limit=0),)))


@pytest.mark.parametrize("source", [1, "operator", None])
def test_a_limit_says_where_it_comes_from(source: int | str | None) -> None:
    assert "OPERATOR, CONFIGURATION, TIER, TASK, SUBMIT" in str(
        refusal(check_values.check_limits, [limit(source=source)])
    )


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("phase", [0, -1, True, 1.0, "1"]),
        ("max_attempts", [0, -1, True, 1.0]),
        ("timeout_ms", [0, -1, True, 1.5]),
        ("quota_jitter_ms", [-1, 3_600_001, True, 0.5, None]),
        ("cap", [-1, True, 1.0, "100"]),
        ("run_at_ms", [-1, True, 1.5, 10**18, "tomorrow"]),
    ],
)
def test_a_number_out_of_range_is_refused_with_the_range(
    field: str, bad: list[bool | float | None] | list[bool | float | str] | list[bool | float]
) -> None:
    for value in bad:
        told = str(refusal(check_values.check_submission, submission(parent="p", **{field: value})))

        assert told.startswith(f"{field} is {value!r}; use a whole number from ")


@pytest.mark.parametrize(
    "fields",
    [
        {"phase": 1, "parent": "p"},
        {"max_attempts": 1},
        {"timeout_ms": 1},
        {"quota_jitter_ms": 0},
        {"quota_jitter_ms": 3_600_000},
        {"cap": 0},
        {"run_at_ms": 0},
        {"priority": 0},
    ],
)
def test_a_number_at_the_edge_of_its_range_is_allowed(fields: dict[str, int | str] | dict[str, int]) -> None:
    assert allowed(check_values.check_submission, submission(**fields))


def test_a_phase_needs_a_parent() -> None:
    told = str(refusal(check_values.check_submission, submission(phase=2)))

    assert told == "phase is 2 but parent is not given; name the parent, or leave phase out."


@pytest.mark.parametrize("boost", [-1, 64, True, 1.0])
def test_a_boost_is_0_to_63(boost: bool | float) -> None:
    told = str(refusal(check_values.check_submission, submission(standing=standing(boost=boost))))
    checks.check_standing(standing(boost=0))
    checks.check_standing(standing(boost=63))

    assert told == f"boost is {boost!r}; use a whole number from 0 to 63."


@pytest.mark.parametrize("field", ["user_limit", "project_limit", "daily_quota", "iterations_batch", "iterations_max"])
@pytest.mark.parametrize("value", [-1, True, 1.5])
def test_a_tier_has_no_negative_numbers(field: str, value: bool | float) -> None:
    told = str(refusal(check.check_tier, "u1", standing(**{field: value}), by=None))

    assert told.startswith(f"{field} is {value!r}")


@pytest.mark.parametrize("field", ["daily_quota", "iterations_batch", "iterations_max"])
def test_a_quota_of_0_is_refused_because_no_day_would_ever_have_room(field: str) -> None:
    checks.check_standing(standing(**{field: 1}))

    assert "from 1" in str(refusal(checks.check_standing, standing(**{field: 0})))


@pytest.mark.parametrize(("field", "lowest"), [("capacity", 1), ("lease_ms", 1)])
@pytest.mark.parametrize("value", [0, -1, True, 1.5, 10**18])
def test_a_claim_asks_for_at_least_one_place_and_one_millisecond(field: str, lowest: int, value: bool | float) -> None:
    claim(**{field: lowest})

    assert str(refusal(claim, **{field: value})).startswith(f"{field} is {value!r}; use a whole number from 1 to")


# --- payloads, texts --------------------------------------------------------------------------------------------


def test_a_payload_has_at_most_one_mebibyte() -> None:
    check_values.check_submission(submission(payload=b"x" * MIB))

    with pytest.raises(PayloadTooLarge, match=rf"{MIB + 1} bytes; at most {MIB}"):
        check_values.check_submission(submission(payload=b"x" * (MIB + 1)))


@pytest.mark.parametrize("payload", ["{}", {}, None, bytearray(b"{}")])
def test_a_payload_is_bytes(payload: str | dict[str, object] | bytearray | None) -> None:
    assert "as bytes" in str(refusal(check_values.check_submission, submission(payload=payload)))


@pytest.mark.parametrize("text", ["half a pair \ud800", "nul \x00", 5])
def test_a_text_that_some_store_cannot_keep_is_refused(text: int | str) -> None:
    as_text = cast("str", text)  # the number among them is refused too
    for checked in (
        lambda: check_values.check_outcome(outcome(message=text)),
        lambda: check_values.check_outcome(outcome(state=State.FAILED, error=JobError(message=as_text))),
        lambda: check_values.check_outcome(outcome(state=State.FAILED, error=JobError(message="m", detail=as_text))),
        lambda: check_values.check_advance(Advance(job_id="j", token="1", message=as_text)),
        lambda: check_values.check_advance(Advance(job_id="j", token="1", progress=Progress(1, 2, as_text))),
    ):
        assert "use text" in str(refusal(checked))


def test_a_text_may_have_lines_and_tabs() -> None:
    check_values.check_advance(Advance(job_id="j", token="1", message="one\n\ttwo"))

    assert allowed(
        check_values.check_outcome, outcome(message="one\r\ntwo", error=JobError(message="a\nb", detail="c\nd"))
    )


@pytest.mark.parametrize("number", [float("nan"), float("inf"), "1", True])
def test_a_figure_is_a_finite_number(number: bool | float | str) -> None:
    as_number = cast("float", number)  # the text among them is refused too
    for checked in (
        lambda: check_values.check_advance(Advance(job_id="j", token="1", progress=Progress(as_number))),
        lambda: check_values.check_advance(Advance(job_id="j", token="1", progress=Progress(1, as_number))),
        lambda: check.check_observe([(average(), as_number)]),
        lambda: check.check_observe([(average(first=number), 1.0)]),
        lambda: check.check_observe(errors={"build": [1.0, as_number]}),
    ):
        assert "use a finite number" in str(refusal(checked))


@pytest.mark.parametrize("weight", [-0.1, 1.1])
def test_the_weight_of_an_average_is_a_share(weight: float) -> None:
    assert "from 0 to 1" in str(refusal(checks.check_average, average(weight=weight)))
