"""What a store refuses at its door, and with which words."""

from __future__ import annotations

import pytest

from qo.errors import InvalidPriority, InvalidSubmit, InvalidValue, PayloadTooLarge, QoError
from qo.job import JobError, Progress, State
from qo.store import check, check_value
from qo.store.values import (
    Advance,
    Average,
    Limit,
    Outcome,
    Registration,
    Renewal,
    Source,
    Standing,
    Submission,
    TaskOptions,
    Ticket,
)

MIB = 1024 * 1024
NAME_OF_200 = "n" * 200
NO_NAMES = ["", "n" * 201, "line\nbreak", "nul\x00", "tab\t", "del\x7f", "c1\x85", "half\ud800", 7, None, b"x"]
NAMES = ["a", NAME_OF_200, "with space", "ünïcödé", "日本", "🙂", "a:b", "a/b", "a'b\"c", "%_\\", " ", "\u200d"]
NO_COUNTS = [-1, 1.0, "1", True, 2**31, None]


def submission(**fields):
    return Submission(**{"id": "j1", "task": "build", **fields})


def standing(**fields):
    return Standing(**{"tier": "partner", **fields})


def ticket(**fields):
    return Ticket(**{"holder": "h1", "groups": ("provider:ollama",), "lease_ms": 1000, **fields})


def registration(**fields):
    return Registration(**{"name": "w1", "tasks": (TaskOptions(name="build"),), "places": 1, **fields})


def outcome(**fields):
    return Outcome(**{"job_id": "j1", "token": "1", "state": State.SUCCEEDED, **fields})


def limit(**fields):
    return Limit(**{"group": "gpu", "slots": 1, "source": Source.OPERATOR, **fields})


def average(**fields):
    return Average(**{"name": "task:build", "first": 600.0, "weight": 0.3, **fields})


def claim(**fields):
    asked = {"worker": "w1", "tasks": ["build"], "places": 1, "lease_ms": 1000, "claim_id": "c1", **fields}
    check.check_claim(**asked)


def refusal(checked, *arguments, **named) -> QoError:
    with pytest.raises(InvalidValue) as refused:
        checked(*arguments, **named)
    return refused.value


# --- names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_names_of_1_to_200_characters_are_allowed(name):
    check.check_submission(
        submission(id=name, user=name, project=name, parent=name, unique=name, by=name, standing=standing(tier=name))
    )
    check.check_group(f"user:{name}")

    assert check.check_group(name) is None


@pytest.mark.parametrize("name", [name for name in NO_NAMES if name is not None])
@pytest.mark.parametrize("field", ["id", "task", "user", "project", "parent", "unique", "by"])
def test_other_names_are_refused_in_a_submission(field, name):
    told = str(refusal(check.check_submission, submission(**{field: name})))

    assert told.startswith(f"{field} is ")
    assert "200" in told


@pytest.mark.parametrize("name", NO_NAMES)
@pytest.mark.parametrize(
    "checked",
    [
        lambda name: check.check_standing(standing(tier=name)),
        lambda name: check.check_ticket(ticket(holder=name)),
        lambda name: check.check_ticket(ticket(groups=(name,))),
        lambda name: check.check_registration(registration(name=name)),
        lambda name: check.check_registration(registration(tasks=(TaskOptions(name=name),))),
        lambda name: check.check_registration(registration(tasks=(TaskOptions(name="a", groups=(name,)),))),
        lambda name: claim(worker=name),
        lambda name: claim(tasks=[name]),
        lambda name: claim(claim_id=name),
        lambda name: check.check_renewals([Renewal(holder=name, token="1")], worker=None, tickets=()),
        lambda name: check.check_renewals([Renewal(holder="h", token=name)], worker=None, tickets=()),
        lambda name: check.check_renewals([], worker=None, tickets=[name]),
        lambda name: check.check_release([(name, None)]),
        lambda name: check.check_outcome(outcome(job_id=name)),
        lambda name: check.check_outcome(outcome(token=name)),
        lambda name: check.check_advance(Advance(job_id=name, token="1")),
        lambda name: check.check_limits([limit(group=name)]),
        lambda name: check.check_own_groups([name]),
        lambda name: check.check_tier(name, standing(), by=None),
        lambda name: check.check_move(name, before="b", after=None, by=None),
        lambda name: check.check_record(name, {}, version=0),
    ],
)
def test_other_names_are_refused_everywhere(checked, name):
    assert "1 to 200" in str(refusal(checked, name))


def test_a_long_value_is_shortened_in_the_message():
    told = str(refusal(check.check_submission, submission(user="n" * 100_000)))

    assert "100000 characters" in told
    assert len(told) < 200


def test_a_control_character_is_shown_escaped_and_where_it_is():
    told = str(refusal(check.check_submission, submission(user="ab\x1bc")))

    assert r"'ab\x1bc'" in told
    assert "index 2" in told


@pytest.mark.parametrize("names", ["build", b"build"])
def test_one_name_in_place_of_a_list_is_not_taken_letter_by_letter(names):
    for checked in (
        lambda: claim(tasks=names),
        lambda: check.check_own_groups(names),
        lambda: check.check_ticket(ticket(groups=names)),
        lambda: check.check_renewals([], worker=None, tickets=names),
    ):
        assert "a list of names" in str(refusal(checked))


# --- tasks and groups -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["a:b", ":", "user:u1", "global", "providers"])
def test_a_task_has_no_colon_and_no_reserved_name(task):
    told = str(refusal(check.check_submission, submission(task=task)))

    assert repr(task) in told
    assert "without a colon" in told


@pytest.mark.parametrize("task", ["global_", "Global", "provider", "user", "priority", "send.email-2"])
def test_a_task_may_have_any_other_name(task):
    check.check_submission(submission(task=task))

    assert check.check_own_groups([task]) is None


@pytest.mark.parametrize("group", ["gpu", "build", "provider:ollama", "gpu:a100", "provider", "user", "users:u1"])
def test_a_group_of_ones_own_is_a_tasks_name_a_free_name_or_a_provider(group):
    check.check_submission(submission(groups=(group,)))
    check.check_registration(registration(tasks=(TaskOptions(name="build", groups=(group,)),)))

    assert check.check_group(group) is None


@pytest.mark.parametrize(
    "group", ["global", "providers", "user:u1", "project:p1", "tier:partner", "priority:50", "parent:107"]
)
def test_reserved_groups_cannot_be_added_but_can_be_limited(group):
    told = str(refusal(check.check_submission, submission(groups=("gpu", group))))
    refusal(check.check_registration, registration(tasks=(TaskOptions(name="build", groups=(group,)),)))
    check.check_limits([limit(group=group)])
    check.check_submission(submission(limits=(limit(group=group),)))

    assert f"group is {group!r}, which is reserved" in told


@pytest.mark.parametrize("kind", ["user", "project", "tier", "parent", "provider"])
def test_whatever_is_allowed_as_a_name_is_allowed_as_its_group(kind):
    assert check.check_group(f"{kind}:{NAME_OF_200}") is None
    assert "201 characters" in str(refusal(check.check_group, f"{kind}:{NAME_OF_200}n"))


@pytest.mark.parametrize("group", ["user:", "provider:", "tier:a\nb", "parent:\ud800"])
def test_a_reserved_prefix_needs_a_good_name_behind_it(group):
    assert "1 to 200 characters" in str(refusal(check.check_group, group))


@pytest.mark.parametrize("number", [0, 7, 50, 99])
def test_the_group_of_a_priority_is_allowed(number):
    assert check.check_group(f"priority:{number}") is None


@pytest.mark.parametrize("number", ["100", "-1", "07", "normal", "5.0", "²", "+5", " 5", "9" * 200])
def test_the_group_of_a_priority_that_does_not_exist_is_refused(number):
    with pytest.raises(InvalidPriority, match="priority:0 to priority:99"):
        check.check_group(f"priority:{number}")


# --- numbers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("priority", [-1, 100, True, 5.0, "high", "50"])
def test_a_priority_is_a_whole_number_from_0_to_99(priority):
    for checked in (
        lambda: check.check_submission(submission(priority=priority)),
        lambda: check.check_priority(priority),
        lambda: check.check_ticket(ticket(priority=priority)),
    ):
        with pytest.raises(InvalidPriority, match=r"^priority is .* 0 \(soonest\) to 99"):
            checked()


@pytest.mark.parametrize("priority", [0, 50, 99, Source.OPERATOR])
def test_every_priority_from_0_to_99_is_allowed(priority):
    check.check_submission(submission(priority=priority))

    assert check.check_priority(priority) is None


@pytest.mark.parametrize("slots", NO_COUNTS)
def test_a_limit_is_a_whole_number_from_0(slots):
    told = str(refusal(check.check_limits, [limit(group="gpu", slots=slots)]))
    refusal(check.check_submission, submission(limits=(limit(slots=slots),)))

    assert told == f"limit of group 'gpu' is {slots!r}; use a whole number from 0 to 2147483647."


def test_a_limit_of_0_is_allowed():
    check.check_limits([limit(slots=0)])
    check.check_standing(standing(user_limit=0, project_limit=0))

    assert check.check_registration(registration(tasks=(TaskOptions(name="build", limit=0),))) is None


@pytest.mark.parametrize("source", [1, "operator", None])
def test_a_limit_says_where_it_comes_from(source):
    assert "OPERATOR, CONFIGURATION, TIER, TASK, SUBMIT" in str(refusal(check.check_limits, [limit(source=source)]))


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
def test_a_number_out_of_range_is_refused_with_the_range(field, bad):
    for value in bad:
        told = str(refusal(check.check_submission, submission(parent="p", **{field: value})))

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
def test_a_number_at_the_edge_of_its_range_is_allowed(fields):
    assert check.check_submission(submission(**fields)) is None


def test_a_phase_needs_a_parent():
    told = str(refusal(check.check_submission, submission(phase=2)))

    assert told == "phase is 2 but parent is not given; name the parent, or leave phase out."


@pytest.mark.parametrize("boost", [-1, 64, True, 1.0])
def test_a_boost_is_0_to_63(boost):
    told = str(refusal(check.check_submission, submission(standing=standing(boost=boost))))
    check.check_standing(standing(boost=0))
    check.check_standing(standing(boost=63))

    assert told == f"boost is {boost!r}; use a whole number from 0 to 63."


@pytest.mark.parametrize("field", ["user_limit", "project_limit", "daily_quota", "iterations_batch", "iterations_max"])
@pytest.mark.parametrize("value", [-1, True, 1.5])
def test_a_tier_has_no_negative_numbers(field, value):
    told = str(refusal(check.check_tier, "u1", standing(**{field: value}), by=None))

    assert told.startswith(f"{field} is {value!r}")


@pytest.mark.parametrize("field", ["daily_quota", "iterations_batch", "iterations_max"])
def test_a_quota_of_0_is_refused_because_no_day_would_ever_have_room(field):
    check.check_standing(standing(**{field: 1}))

    assert "from 1" in str(refusal(check.check_standing, standing(**{field: 0})))


@pytest.mark.parametrize(("field", "lowest"), [("places", 1), ("lease_ms", 1)])
@pytest.mark.parametrize("value", [0, -1, True, 1.5, 10**18])
def test_a_claim_asks_for_at_least_one_place_and_one_millisecond(field, lowest, value):
    claim(**{field: lowest})

    assert str(refusal(claim, **{field: value})).startswith(f"{field} is {value!r}; use a whole number from 1 to")


# --- payloads, texts --------------------------------------------------------------------------------------------


def test_a_payload_has_at_most_one_mebibyte():
    check.check_submission(submission(payload=b"x" * MIB))

    with pytest.raises(PayloadTooLarge, match=rf"{MIB + 1} bytes; at most {MIB}"):
        check.check_submission(submission(payload=b"x" * (MIB + 1)))


@pytest.mark.parametrize("payload", ["{}", {}, None, bytearray(b"{}")])
def test_a_payload_is_bytes(payload):
    assert "as bytes" in str(refusal(check.check_submission, submission(payload=payload)))


@pytest.mark.parametrize("text", ["half a pair \ud800", "nul \x00", 5])
def test_a_text_that_some_store_cannot_keep_is_refused(text):
    for checked in (
        lambda: check.check_outcome(outcome(message=text)),
        lambda: check.check_outcome(outcome(state=State.FAILED, error=JobError(message=text))),
        lambda: check.check_outcome(outcome(state=State.FAILED, error=JobError(message="m", detail=text))),
        lambda: check.check_advance(Advance(job_id="j", token="1", message=text)),
        lambda: check.check_advance(Advance(job_id="j", token="1", progress=Progress(1, 2, text))),
    ):
        assert "use text" in str(refusal(checked))


def test_a_text_may_have_lines_and_tabs():
    check.check_advance(Advance(job_id="j", token="1", message="one\n\ttwo"))

    assert check.check_outcome(outcome(message="one\r\ntwo", error=JobError(message="a\nb", detail="c\nd"))) is None


@pytest.mark.parametrize("number", [float("nan"), float("inf"), "1", True])
def test_a_figure_is_a_finite_number(number):
    for checked in (
        lambda: check.check_advance(Advance(job_id="j", token="1", progress=Progress(number))),
        lambda: check.check_advance(Advance(job_id="j", token="1", progress=Progress(1, number))),
        lambda: check.check_observations([(average(), number)]),
        lambda: check.check_observations([(average(first=number), 1.0)]),
        lambda: check.check_estimate_errors("build", [1.0, number], keep=500),
    ):
        assert "use a finite number" in str(refusal(checked))


@pytest.mark.parametrize("weight", [-0.1, 1.1])
def test_the_weight_of_an_average_is_a_share(weight):
    assert "from 0 to 1" in str(refusal(check.check_average, average(weight=weight)))


# --- outcomes, tickets, workers, changes ------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.RUNNING, State.STARTING, State.WAITING, "succeeded", "gone", None])
def test_a_run_ends_in_a_state_that_a_run_may_end_in(state):
    told = str(refusal(check.check_outcome, outcome(state=state)))

    assert "cancelled, confirming, failed, queued, scheduled, succeeded" in told


@pytest.mark.parametrize("state", sorted(check_value.OUTCOMES))
def test_every_outcome_is_allowed(state):
    assert check.check_outcome(outcome(state=state, retry_at_ms=1000)) is None


@pytest.mark.parametrize("result", [b"1", b"null", b'{"a": [1, 2.5]}', '"ü"'.encode(), None])
def test_a_result_is_json(result):
    assert check.check_outcome(outcome(result=result)) is None


@pytest.mark.parametrize(
    "result", [b"", b"nope", b"{", b"1 2", b'"\xff"', b"NaN", b"1e999", b"[" * 5000 + b"]" * 5000, "1", {}]
)
def test_a_result_that_could_not_be_read_again_is_refused(result):
    assert "JSON" in str(refusal(check.check_outcome, outcome(result=result)))


def test_a_retry_needs_its_time():
    assert "retry_at_ms is not given" in str(refusal(check.check_outcome, outcome(state=State.SCHEDULED)))
    assert "retry_at_ms is -1" in str(refusal(check.check_outcome, outcome(state=State.SCHEDULED, retry_at_ms=-1)))


@pytest.mark.parametrize("closed", [{"": 1}, {"gpu": -1}, {"gpu": True}, {"gpu": None}, {"priority:100": 1}])
def test_a_closed_group_has_a_name_and_a_time(closed):
    assert "use" in str(refusal(check.check_outcome, outcome(state=State.QUEUED, closed=closed)))


def test_a_ticket_of_no_groups_is_refused():
    assert "groups is empty" in str(refusal(check.check_ticket, ticket(groups=())))


def test_a_ticket_names_each_group_once():
    assert "each once" in str(refusal(check.check_ticket, ticket(groups=("a", "b", "a"))))


@pytest.mark.parametrize("groups", [("provider:x", "providers"), ("user:u1",), ("free",), ("global",), ("priority:5",)])
def test_a_caller_may_take_slots_in_any_group(groups):
    assert check.check_ticket(ticket(groups=groups)) is None


@pytest.mark.parametrize("fields", [{"lease_ms": 0}, {"lease_ms": -5}, {"wait_ms": -1}, {"lease_ms": True}])
def test_a_ticket_has_a_lease_and_no_negative_wait(fields):
    check.check_ticket(ticket(lease_ms=1, wait_ms=0))

    assert next(iter(fields)) in str(refusal(check.check_ticket, ticket(**fields)))


@pytest.mark.parametrize("fields", [{"lease_ms": -1}, {"extend_ms": -1}, {"lease_ms": 1.5}])
def test_a_renewal_never_shortens_a_lease(fields):
    renewal = Renewal(holder="h", token="1", **fields)

    assert next(iter(fields)) in str(refusal(check.check_renewals, [renewal], worker=None, tickets=()))


def test_a_worker_names_each_task_once():
    twice = registration(tasks=(TaskOptions(name="build"), TaskOptions(name="build", limit=3)))

    assert "'build' twice" in str(refusal(check.check_registration, twice))


@pytest.mark.parametrize(
    "fields", [{"places": 0}, {"places": True}, {"lifetime_ms": 0}, {"pid": -1}, {"host": ""}, {"host": "a\nb"}]
)
def test_a_worker_has_places_and_a_lifetime(fields):
    assert str(refusal(check.check_registration, registration(**fields))).startswith(f"{next(iter(fields))} is ")


def test_a_worker_that_says_goodbye_needs_no_places():
    assert check.check_registration(registration(tasks=(), places=0)) is None


@pytest.mark.parametrize("slots", NO_COUNTS[:-1])
def test_a_tasks_limit_is_a_whole_number_from_0(slots):
    bad = registration(tasks=(TaskOptions(name="build", limit=slots),))

    assert "limit of task 'build'" in str(refusal(check.check_registration, bad))


@pytest.mark.parametrize(("job_id", "parent"), [(None, None), ("j1", "p1")])
def test_a_change_is_for_a_job_or_for_a_parent(job_id, parent):
    check.check_target(job_id="j1", parent=None, by=None)
    check.check_target(job_id=None, parent="p1", by="ops")

    assert "exactly one" in str(refusal(check.check_target, job_id=job_id, parent=parent, by=None))


@pytest.mark.parametrize(("before", "after"), [(None, None), ("b", "c")])
def test_a_move_is_before_or_after_one_job(before, after):
    check.check_move("a", before="b", after=None, by=None)
    check.check_move("a", before=None, after="b", by="ops")

    assert "exactly one" in str(refusal(check.check_move, "a", before=before, after=after, by=None))


@pytest.mark.parametrize("sides", [{"before": "a", "after": None}, {"before": None, "after": "a"}])
def test_a_job_is_not_moved_beside_itself(sides):
    assert "the job itself" in str(refusal(check.check_move, "a", **sides, by=None))


@pytest.mark.parametrize("slot_id", [-1, True, "0", 1.0])
def test_a_slot_is_a_number_from_0(slot_id):
    check.check_revoke("gpu", 0, by="ops")

    assert str(refusal(check.check_revoke, "gpu", slot_id, by=None)).startswith(f"slot_id is {slot_id!r}")


# --- upkeep and reading -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["period_ms", "after_ms", "lease_ms"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5])
def test_a_period_is_longer_than_nothing(field, value):
    check.check_upkeep(**{field: 1})

    assert str(refusal(check.check_upkeep, **{field: value})).startswith(f"{field} is {value!r}")


@pytest.mark.parametrize("field", ["keep_ms", "keep_jobs", "keep_events"])
def test_retention_may_keep_nothing_but_not_less(field):
    check.check_upkeep(**{field: 0})

    assert str(refusal(check.check_upkeep, **{field: -1})).startswith(f"{field} is -1")


@pytest.mark.parametrize("ages", [[-1], [2, 1], [1, 1], [True]])
def test_reminders_come_one_after_another(ages):
    check.check_reminder_ages([])
    check.check_reminder_ages([1, 2])

    assert "ages_ms" in str(refusal(check.check_reminder_ages, ages))


@pytest.mark.parametrize("number", [-1, True, 0.5])
def test_pages_cursors_and_versions_are_whole_numbers(number):
    check.check_page(1)
    check.check_cursor(0)
    check.check_record("key", {}, version=0)

    assert "limit is" in str(refusal(check.check_page, number))
    assert "after is" in str(refusal(check.check_cursor, number))
    assert "version is" in str(refusal(check.check_record, "key", {}, version=number))


def test_a_bad_field_of_a_submit_is_a_refused_submit() -> None:
    with pytest.raises(InvalidSubmit, match=r"^user is empty"):
        check.check_submission(Submission(id="a", task="work", user=""))


def test_a_record_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"^value is .* not JSON"):
        check.check_record("key", object(), version=0)


def test_the_name_of_an_average_has_room_for_a_prefix():
    check.check_average(average(name="duration:task:" + "t" * 200))

    with pytest.raises(InvalidValue, match="use 1 to 250"):
        check.check_average(average(name="x" * 251))
