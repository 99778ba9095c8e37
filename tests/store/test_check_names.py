"""Which names a store takes, of jobs and people, tasks and groups, and with which words it refuses others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import pytest

from qo.errors import InvalidPriority, InvalidSubmit, InvalidValue
from qo.policy import checks
from qo.store import check, check_values
from qo.values import Advance, Renewal, Submission, TaskOptions
from tests.store.good_values import (
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

NAME_OF_200 = "n" * 200
NO_NAMES = ["", "n" * 201, "line\nbreak", "nul\x00", "tab\t", "del\x7f", "c1\x85", "half\ud800", 7, None, b"x"]
NAMES = ["a", NAME_OF_200, "with space", "ünïcödé", "日本", "🙂", "a:b", "a/b", "a'b\"c", "%_\\", " ", "\u200d"]


# --- names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_names_of_1_to_200_characters_are_allowed(name: str) -> None:
    check_values.check_submission(
        submission(id=name, user=name, project=name, parent=name, unique=name, by=name, standing=standing(tier=name))
    )
    checks.check_group(f"user:{name}")

    assert allowed(checks.check_group, name)


@pytest.mark.parametrize("name", [name for name in NO_NAMES if name is not None])
@pytest.mark.parametrize("field", ["id", "task", "user", "project", "parent", "unique", "by"])
def test_other_names_are_refused_in_a_submission(field: str, name: bytes | int | str) -> None:
    told = str(refusal(check_values.check_submission, submission(**{field: name})))

    assert told.startswith(f"{field} is ")
    assert "200" in told


@pytest.mark.parametrize("name", NO_NAMES)
@pytest.mark.parametrize(
    "checked",
    [
        lambda name: checks.check_standing(standing(tier=name)),
        lambda name: check_values.check_ticket(ticket(holder=name)),
        lambda name: check_values.check_ticket(ticket(groups=(name,))),
        lambda name: check_values.check_registration(registration(name=name)),
        lambda name: check_values.check_registration(registration(tasks=(TaskOptions(name=name),))),
        lambda name: check_values.check_registration(registration(tasks=(TaskOptions(name="a", groups=(name,)),))),
        lambda name: claim(worker=name),
        lambda name: claim(tasks=[name]),
        lambda name: claim(claim_id=name),
        lambda name: check.check_renewals([Renewal(holder=name, token="1")], worker=None, tickets=()),
        lambda name: check.check_renewals([Renewal(holder="h", token=name)], worker=None, tickets=()),
        lambda name: check.check_renewals([], worker=None, tickets=[name]),
        lambda name: check.check_release([(name, None)]),
        lambda name: check_values.check_outcome(outcome(job_id=name)),
        lambda name: check_values.check_outcome(outcome(token=name)),
        lambda name: check_values.check_advance(Advance(job_id=name, token="1")),
        lambda name: check_values.check_limits([limit(group=name)]),
        lambda name: checks.check_own_groups([name]),
        lambda name: check.check_tier(name, standing(), by=None),
        lambda name: check.check_move(name, before="b", after=None, by=None),
        lambda name: check.check_record(name, {}, version=0),
    ],
)
def test_other_names_are_refused_everywhere(checked: Callable[[object], None], name: bytes | int | str | None) -> None:
    assert "1 to 200" in str(refusal(checked, name))


def test_a_long_value_is_shortened_in_the_message() -> None:
    told = str(refusal(check_values.check_submission, submission(user="n" * 100_000)))

    assert "100000 characters" in told
    assert len(told) < 200


def test_a_control_character_is_shown_escaped_and_where_it_is() -> None:
    told = str(refusal(check_values.check_submission, submission(user="ab\x1bc")))

    assert r"'ab\x1bc'" in told
    assert "index 2" in told


@pytest.mark.parametrize("names", ["build", b"build"])
def test_one_name_in_place_of_a_list_is_not_taken_letter_by_letter(names: bytes | str) -> None:
    for checked in (
        lambda: claim(tasks=names),
        lambda: checks.check_own_groups(cast("Sequence[str]", names)),
        lambda: check_values.check_ticket(ticket(groups=names)),
        lambda: check.check_renewals([], worker=None, tickets=cast("Sequence[str]", names)),
    ):
        assert "a list of names" in str(refusal(checked))


def test_a_bad_field_of_a_submit_is_a_refused_submit() -> None:
    with pytest.raises(InvalidSubmit, match=r"^user is empty"):
        check_values.check_submission(Submission(id="a", task="work", user=""))


def test_the_name_of_an_average_has_room_for_a_prefix() -> None:
    checks.check_average(average(name="duration:task:" + "t" * 200))

    with pytest.raises(InvalidValue, match="use 1 to 250"):
        checks.check_average(average(name="x" * 251))


# --- tasks and groups -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["a:b", ":", "user:u1", "global", "providers"])
def test_a_task_has_no_colon_and_no_reserved_name(task: str) -> None:
    told = str(refusal(check_values.check_submission, submission(task=task)))

    assert repr(task) in told
    assert "without a colon" in told


def test_nobody_submits_or_runs_the_task_that_a_server_claims_to_see_whether_its_store_works() -> None:
    options = TaskOptions(name=checks.READINESS_TASK)
    submitted = refusal(check_values.check_submission, submission(task=checks.READINESS_TASK))
    registered = refusal(check_values.check_registration, registration(tasks=(options,)))

    assert str(submitted) == str(registered)
    assert "servers claim" in str(submitted)


@pytest.mark.parametrize("task", ["global_", "Global", "provider", "user", "priority", "send.email-2"])
def test_a_task_may_have_any_other_name(task: str) -> None:
    check_values.check_submission(submission(task=task))

    assert allowed(checks.check_own_groups, [task])


@pytest.mark.parametrize("group", ["gpu", "build", "provider:ollama", "gpu:a100", "provider", "user", "users:u1"])
def test_a_group_of_ones_own_is_a_tasks_name_a_free_name_or_a_provider(group: str) -> None:
    check_values.check_submission(submission(groups=(group,)))
    check_values.check_registration(registration(tasks=(TaskOptions(name="build", groups=(group,)),)))

    assert allowed(checks.check_group, group)


@pytest.mark.parametrize(
    "group", ["global", "providers", "user:u1", "project:p1", "tier:partner", "priority:50", "parent:107"]
)
def test_reserved_groups_cannot_be_added_but_can_be_limited(group: str) -> None:
    told = str(refusal(check_values.check_submission, submission(groups=("gpu", group))))
    refusal(check_values.check_registration, registration(tasks=(TaskOptions(name="build", groups=(group,)),)))
    check_values.check_limits([limit(group=group)])
    check_values.check_submission(submission(limits=(limit(group=group),)))

    assert f"group is {group!r}, which is reserved" in told


@pytest.mark.parametrize("kind", ["user", "project", "tier", "parent", "provider"])
def test_whatever_is_allowed_as_a_name_is_allowed_as_its_group(kind: str) -> None:
    assert allowed(checks.check_group, f"{kind}:{NAME_OF_200}")
    assert "201 characters" in str(refusal(checks.check_group, f"{kind}:{NAME_OF_200}n"))


@pytest.mark.parametrize("group", ["user:", "provider:", "tier:a\nb", "parent:\ud800"])
def test_a_reserved_prefix_needs_a_good_name_behind_it(group: str) -> None:
    assert "1 to 200 characters" in str(refusal(checks.check_group, group))


@pytest.mark.parametrize("number", [0, 7, 50, 99])
def test_the_group_of_a_priority_is_allowed(number: int) -> None:
    assert allowed(checks.check_group, f"priority:{number}")


@pytest.mark.parametrize("number", ["100", "-1", "07", "normal", "5.0", "²", "+5", " 5", "9" * 200])
def test_the_group_of_a_priority_that_does_not_exist_is_refused(number: str) -> None:
    with pytest.raises(InvalidPriority, match="priority:0 to priority:99"):
        checks.check_group(f"priority:{number}")
