"""Stages: the next one, or from the last the first; a handler returns at the last (SPEC.md section 5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qo.errors import InvalidTransition
from qo.policy.stages import check_may_return, check_stage, stages_after

STAGES = ("scaffold", "code", "deps", "checks")
ALLOWED = {
    (None, "scaffold"),
    ("scaffold", "code"),
    ("code", "deps"),
    ("deps", "checks"),
    ("checks", "scaffold"),
}
FORBIDDEN = [
    (present, wanted)
    for present in (None, *STAGES)
    for wanted in (*STAGES, "ready", "Code", "")
    if (present, wanted) not in ALLOWED
]

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
declared = st.lists(names, min_size=1, max_size=6, unique=True).map(tuple)


def is_allowed(stages: tuple[str, ...], present: str | None, wanted: str) -> bool:
    try:
        check_stage(stages, present, wanted)
    except InvalidTransition:
        return False
    return True


def may_return(stages: tuple[str, ...], present: str | None) -> bool:
    try:
        check_may_return(stages, present)
    except InvalidTransition:
        return False
    return True


@pytest.mark.parametrize(("present", "wanted"), sorted(ALLOWED, key=str))
def test_the_next_stage_and_from_the_last_the_first_are_allowed(present: str | None, wanted: str) -> None:
    check_stage(STAGES, present, wanted)

    assert stages_after(STAGES, present) == (wanted,)


@pytest.mark.parametrize(("present", "wanted"), FORBIDDEN)
def test_any_other_stage_is_refused_with_what_was_allowed(present: str | None, wanted: str) -> None:
    [allowed] = stages_after(STAGES, present)

    with pytest.raises(InvalidTransition) as refused:
        check_stage(STAGES, present, wanted)

    assert repr(wanted) in str(refused.value)
    assert str(refused.value).endswith(f"allowed now: {allowed!r}.")


@pytest.mark.parametrize(
    ("present", "wanted", "sentence"),
    [
        ("code", "checks", "The job is at stage 'code' and cannot become 'checks'; allowed now: 'deps'."),
        ("checks", "deps", "The job is at stage 'checks' and cannot become 'deps'; allowed now: 'scaffold'."),
        (None, "code", "The job is before its first stage and cannot become 'code'; allowed now: 'scaffold'."),
    ],
)
def test_a_refused_stage_raises_a_sentence_that_names_the_allowed_ones(
    present: str | None, wanted: str, sentence: str
) -> None:
    with pytest.raises(InvalidTransition) as refused:
        check_stage(STAGES, present, wanted)

    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("present", "sentence"),
    [
        (
            None,
            "The job is before its first stage and cannot become ready; allowed now: 'scaffold'; "
            "a handler returns at 'checks'.",
        ),
        (
            "code",
            "The job is at stage 'code' and cannot become ready; allowed now: 'deps'; a handler returns at 'checks'.",
        ),
        (
            "deps",
            "The job is at stage 'deps' and cannot become ready; allowed now: 'checks'; a handler returns at 'checks'.",
        ),
    ],
)
def test_returning_before_the_last_stage_is_refused_with_what_was_allowed(present: str | None, sentence: str) -> None:
    with pytest.raises(InvalidTransition) as refused:
        check_may_return(STAGES, present)

    assert str(refused.value) == sentence
    assert refused.value.wanted == "ready"


def test_a_handler_may_return_at_the_last_stage() -> None:
    check_may_return(STAGES, "checks")


def test_without_stages_a_handler_returns_when_it_likes() -> None:
    check_may_return((), None)


def test_without_stages_none_can_be_entered_and_the_refusal_says_that_there_are_none() -> None:
    assert stages_after((), None) == ()

    with pytest.raises(InvalidTransition) as refused:
        check_stage((), None, "code")

    assert "'code'" in str(refused.value)
    assert "the task has no stages" in str(refused.value)
    assert "first stage" not in str(refused.value)


def test_a_single_stage_follows_itself_as_another_iteration() -> None:
    check_stage(("only",), None, "only")
    check_stage(("only",), "only", "only")
    check_may_return(("only",), "only")


@given(declared, st.data())
def test_every_walk_that_is_allowed_goes_round_the_stages_in_their_order(
    stages: tuple[str, ...], data: st.DataObject
) -> None:
    wishes = data.draw(st.lists(st.sampled_from(stages) | names, max_size=40))
    present, walked = None, []
    for wanted in wishes:
        if is_allowed(stages, present, wanted):
            walked.append(wanted)
            present = wanted

    assert walked == [stages[step % len(stages)] for step in range(len(walked))]


@given(declared, st.integers(1, 30))
def test_going_round_the_stages_in_their_order_is_always_allowed(stages: tuple[str, ...], steps: int) -> None:
    present = None
    for step in range(steps):
        wanted = stages[step % len(stages)]
        assert is_allowed(stages, present, wanted)
        present = wanted


@given(declared, st.data())
def test_exactly_one_stage_is_allowed_at_any_time(stages: tuple[str, ...], data: st.DataObject) -> None:
    present = data.draw(st.none() | st.sampled_from(stages))

    assert sum(is_allowed(stages, present, wanted) for wanted in stages) == 1


@given(declared, st.integers(0, 30))
def test_a_walk_may_end_exactly_at_the_last_stage(stages: tuple[str, ...], steps: int) -> None:
    present = stages[(steps - 1) % len(stages)] if steps else None

    assert may_return(stages, present) == (steps > 0 and steps % len(stages) == 0)
