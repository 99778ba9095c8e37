"""What has to fit together in what a store is asked for: outcomes, tickets, workers, changes, upkeep, reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from qo.errors import InvalidValue
from qo.job import JobError, State
from qo.policy import checks
from qo.policy.groups import MOST_GROUPS
from qo.store import check, check_values
from qo.values import Keep, Renewal, TaskOptions, UpkeepRules
from tests.store.good_values import NO_COUNTS, allowed, outcome, refusal, registration, submission, ticket

# --- outcomes, tickets, workers, changes ------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.RUNNING, State.STARTING, State.WAITING, "succeeded", "gone", None])
def test_a_run_ends_in_a_state_that_a_run_may_end_in(state: State | str | None) -> None:
    told = str(refusal(check_values.check_outcome, outcome(state=state)))

    assert "cancelled, confirming, failed, queued, scheduled, succeeded" in told


@pytest.mark.parametrize("state", sorted(checks.OUTCOMES))
def test_every_outcome_is_allowed(state: State) -> None:
    assert allowed(check_values.check_outcome, outcome(state=state, retry_after_ms=1000))


@pytest.mark.parametrize("result", [b"1", b"null", b'{"a": [1, 2.5]}', '"ü"'.encode(), None])
def test_a_result_is_json(result: bytes | None) -> None:
    assert allowed(check_values.check_outcome, outcome(result=result))


@pytest.mark.parametrize(
    "result", [b"", b"nope", b"{", b"1 2", b'"\xff"', b"NaN", b"1e999", b"[" * 5000 + b"]" * 5000, "1", {}]
)
def test_a_result_that_could_not_be_read_again_is_refused(result: bytes | str | dict[str, object]) -> None:
    assert "JSON" in str(refusal(check_values.check_outcome, outcome(result=result)))


def test_a_retry_needs_its_time() -> None:
    assert "retry_after_ms is not given" in str(refusal(check_values.check_outcome, outcome(state=State.SCHEDULED)))
    negative = outcome(state=State.SCHEDULED, retry_after_ms=-1)
    assert "retry_after_ms is -1" in str(refusal(check_values.check_outcome, negative))


@pytest.mark.parametrize("closed", [{"": 1}, {"gpu": -1}, {"gpu": True}, {"gpu": None}, {"priority:100": 1}])
def test_a_closed_group_has_a_name_and_a_time(closed: dict[str, None] | dict[str, bool] | dict[str, int]) -> None:
    assert "use" in str(refusal(check_values.check_outcome, outcome(state=State.QUEUED, closed=closed)))


def test_a_ticket_of_no_groups_is_refused() -> None:
    assert "groups is empty" in str(refusal(check_values.check_ticket, ticket(groups=())))


def test_a_ticket_names_each_group_once() -> None:
    assert "each once" in str(refusal(check_values.check_ticket, ticket(groups=("a", "b", "a"))))


MOST = tuple(f"g{number}" for number in range(MOST_GROUPS))
NAMING_GROUPS: dict[str, tuple[str, Callable[[tuple[str, ...]], None]]] = {
    "a submit": ("groups", lambda groups: check_values.check_submission(submission(groups=groups))),
    "a task": (
        "groups of task 'build'",
        lambda groups: check_values.check_registration(registration(tasks=(TaskOptions(name="build", groups=groups),))),
    ),
    "a ticket": ("groups", lambda groups: check_values.check_ticket(ticket(groups=groups))),
}


@pytest.mark.parametrize("by", NAMING_GROUPS)
def test_at_most_64_groups_are_named_by_a_submit_a_task_or_a_ticket(by: str) -> None:
    field, named = NAMING_GROUPS[by]

    assert MOST_GROUPS == 64
    assert allowed(named, MOST)
    assert f"{field} has 65 names; at most 64 are allowed" in str(refusal(named, (*MOST, "one-more")))


@pytest.mark.parametrize("groups", [("provider:x", "providers"), ("user:u1",), ("free",), ("global",), ("priority:5",)])
def test_a_caller_may_take_slots_in_any_group(groups: tuple[str, ...]) -> None:
    assert allowed(check_values.check_ticket, ticket(groups=groups))


@pytest.mark.parametrize("fields", [{"lease_ms": 0}, {"lease_ms": -5}, {"wait_ms": -1}, {"lease_ms": True}])
def test_a_ticket_has_a_lease_and_no_negative_wait(fields: dict[str, bool] | dict[str, int]) -> None:
    check_values.check_ticket(ticket(lease_ms=1, wait_ms=0))

    assert next(iter(fields)) in str(refusal(check_values.check_ticket, ticket(**fields)))


@pytest.mark.parametrize("fields", [{"lease_ms": -1}, {"extend_ms": -1}, {"lease_ms": 1.5}])
def test_a_renewal_never_shortens_a_lease(fields: dict[str, float] | dict[str, int]) -> None:
    renewal = Renewal(holder="h", token="1", **fields)

    assert next(iter(fields)) in str(refusal(check.check_renewals, [renewal], worker=None, tickets=()))


def test_a_worker_names_each_task_once() -> None:
    twice = registration(tasks=(TaskOptions(name="build"), TaskOptions(name="build", limit=3)))

    assert "'build' twice" in str(refusal(check_values.check_registration, twice))


@pytest.mark.parametrize(
    "fields", [{"capacity": 0}, {"capacity": True}, {"lifetime_ms": 0}, {"pid": -1}, {"host": ""}, {"host": "a\nb"}]
)
def test_a_worker_has_a_capacity_and_a_lifetime(fields: dict[str, bool] | dict[str, int] | dict[str, str]) -> None:
    assert str(refusal(check_values.check_registration, registration(**fields))).startswith(f"{next(iter(fields))} is ")


def test_a_worker_that_says_goodbye_needs_no_capacity() -> None:
    assert allowed(check_values.check_registration, registration(tasks=(), capacity=0))


@pytest.mark.parametrize("slots", NO_COUNTS[:-1])
def test_a_tasks_limit_is_a_whole_number_from_0(slots: bool | float | str) -> None:
    bad = registration(tasks=(TaskOptions(name="build", limit=cast("int", slots)),))

    assert "limit of task 'build'" in str(refusal(check_values.check_registration, bad))


@pytest.mark.parametrize(("job_id", "parent"), [(None, None), ("j1", "p1")])
def test_a_change_is_for_a_job_or_for_a_parent(job_id: str | None, parent: str | None) -> None:
    check.check_target(job_id="j1", parent=None, by=None)
    check.check_target(job_id=None, parent="p1", by="ops")

    assert "exactly one" in str(refusal(check.check_target, job_id=job_id, parent=parent, by=None))


@pytest.mark.parametrize(("before", "after"), [(None, None), ("b", "c")])
def test_a_move_is_before_or_after_one_job(before: str | None, after: str | None) -> None:
    check.check_move("a", before="b", after=None, by=None)
    check.check_move("a", before=None, after="b", by="ops")

    assert "exactly one" in str(refusal(check.check_move, "a", before=before, after=after, by=None))


@pytest.mark.parametrize("sides", [{"before": "a", "after": None}, {"before": None, "after": "a"}])
def test_a_job_is_not_moved_beside_itself(sides: dict[str, str | None]) -> None:
    assert "the job itself" in str(refusal(check.check_move, "a", **sides, by=None))


@pytest.mark.parametrize("slot_id", [-1, True, "0", 1.0])
def test_a_slot_is_a_number_from_0(slot_id: bool | float | str) -> None:
    check.check_revoke("gpu", 0, by="ops")

    assert str(refusal(check.check_revoke, "gpu", slot_id, by=None)).startswith(f"slot_id is {slot_id!r}")


# --- upkeep and reading -----------------------------------------------------------------------------------------


def upkeep(**rules: Any) -> None:
    check.check_upkeep(UpkeepRules(**{"unconfirmed_error": JobError(message="late"), **rules}))


@pytest.mark.parametrize("field", ["aging_period_ms", "unconfirmed_after_ms"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5])
def test_a_period_is_longer_than_nothing(field: str, value: bool | float) -> None:
    upkeep(**{field: 1})

    assert str(refusal(upkeep, **{field: value})).startswith(f"{field} is {value!r}")


def test_jobs_that_nobody_confirms_need_an_error_to_fail_with() -> None:
    assert "unconfirmed_error" in str(refusal(upkeep, unconfirmed_after_ms=1, unconfirmed_error=None))


@pytest.mark.parametrize("field", ["ms", "jobs", "events", "audit"])
def test_retention_may_keep_nothing_but_not_less(field: str) -> None:
    nothing = {"ms": 0, "jobs": 0, "events": 0, "audit": 0}
    upkeep(keep=Keep(**nothing))

    assert str(refusal(upkeep, keep=Keep(**{**nothing, field: -1}))).startswith(f"keep.{field} is -1")


@pytest.mark.parametrize("ages", [(-1,), (2, 1), (1, 1), (True,)])
def test_reminders_come_one_after_another(ages: list[bool] | list[int]) -> None:
    upkeep(reminder_ages_ms=())
    upkeep(reminder_ages_ms=(1, 2))

    assert "reminder_ages_ms" in str(refusal(upkeep, reminder_ages_ms=ages))


@pytest.mark.parametrize("number", [-1, True, 0.5])
def test_pages_cursors_and_versions_are_whole_numbers(number: bool | float) -> None:
    check.check_page(1)
    check.check_cursor(0)
    check.check_record("key", {}, version=0)

    assert "limit is" in str(refusal(check.check_page, number))
    assert "after is" in str(refusal(check.check_cursor, number))
    assert "version is" in str(refusal(check.check_record, "key", {}, version=number))


def test_a_record_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"^value is .* not JSON"):
        check.check_record("key", object(), version=0)
