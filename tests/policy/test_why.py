"""Why a job is not running: every reason of SPEC.md section 3, as the exact sentence a person reads."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qo.job import ENDED, HELD, Job, State
from qo.policy.why import Blocked, Facts, Holder, Why, explain

NOW = datetime(2026, 3, 11, 12, 0, tzinfo=UTC)
QUARTER_TO = NOW - timedelta(minutes=15)
FIVE_PAST = NOW + timedelta(minutes=5)
TOMORROW = NOW + timedelta(hours=12, minutes=7)

BEHIND_TWO = "2 jobs are ahead of it in line"
"""the beginning of a sentence about a job as `line` makes it"""


def job(state: State = State.QUEUED, **fields) -> Job:
    values = {
        "id": "j1",
        "task": "build",
        "status": state.value,
        "priority": 50,
        "groups": ("global", "build", "priority:50"),
        "submitted_at": QUARTER_TO,
        "attempts": 0,
        "max_attempts": 3,
    }
    return Job(state=state, **{**values, **fields})


def facts(of: Job, **fields) -> Facts:
    values = {
        "ahead": None,
        "blocked_by": (),
        "holders": (),
        "waits_for": None,
        "waits_for_state": None,
        "has_worker": True,
        "now": NOW,
    }
    return Facts(job=of, **{**values, **fields})


def line(*blocked: Blocked, ahead: int = 2, holders: tuple[Holder, ...] = (), has_worker: bool = True) -> str:
    """The sentence about a job in line, behind two others unless told otherwise."""
    return explain(facts(job(), ahead=ahead, blocked_by=blocked, holders=holders, has_worker=has_worker)).sentence


def phase_two(before: State | None, parent: str = "site", **fields) -> str:
    """The sentence about a second phase, by the state of the first."""
    waiting = job(State.WAITING, parent=parent, phase=2, **fields)
    return explain(facts(waiting, waits_for=1, waits_for_state=before)).sentence


def sentence_of(state: State, **fields) -> str:
    return explain(facts(job(state, **fields))).sentence


def full(group: str = "gpu", limit: int = 1) -> Blocked:
    return Blocked(group=group, limit=limit, active=limit)


def held(*names: str | None, group: str = "gpu", minutes: int = 17) -> tuple[Holder, ...]:
    """Holders of a group's slots, the first since so many minutes, each next one a minute longer."""
    return tuple(
        Holder(group=group, slot_id=slot, holder=name, since=NOW - timedelta(minutes=minutes + slot))
        for slot, name in enumerate(names)
    )


# --- how many are ahead -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ahead", "sentence"),
    [
        (0, "It is the first in line and starts as soon as a worker has a free place."),
        (1, "1 job is ahead of it in line; nothing else holds it up."),
        (2, "2 jobs are ahead of it in line; nothing else holds it up."),
        (1000, "1000 jobs are ahead of it in line; nothing else holds it up."),
    ],
)
def test_a_job_in_line_is_told_how_many_are_ahead(ahead, sentence):
    assert line(ahead=ahead) == sentence


@pytest.mark.parametrize(
    ("ahead", "sentence"),
    [
        (1, "1 job is ahead of it in line, and global is paused."),
        (3, "3 jobs are ahead of it in line, and global is paused."),
    ],
)
def test_who_is_ahead_is_told_beside_every_other_reason(ahead, sentence):
    assert line(Blocked(group="global", limit=None, active=0, paused=True), ahead=ahead) == sentence


def test_the_first_in_line_is_told_what_stops_it_all_the_same():
    paused = Blocked(group="global", limit=None, active=0, paused=True)

    assert line(paused, ahead=0) == "It is the first in line, but global is paused."


# --- no worker --------------------------------------------------------------------------------------------------


def test_a_task_that_no_worker_handles_is_named():
    assert line(has_worker=False) == f"{BEHIND_TWO}, and no worker for task build is running."


def test_that_there_is_no_worker_comes_before_the_groups():
    sentence = line(Blocked(group="gpu", limit=0, active=0), has_worker=False)

    assert sentence == (
        f"{BEHIND_TWO}, and no worker for task build is running; gpu has a limit of 0, so nobody starts in it."
    )


# --- paused, closed, never open ---------------------------------------------------------------------------------


@pytest.mark.parametrize("group", ["global", "build", "priority:90", "user:u1", "parent:107"])
def test_a_paused_group_is_named(group):
    assert line(Blocked(group=group, limit=None, active=0, paused=True)) == f"{BEHIND_TWO}, and {group} is paused."


def test_a_group_both_paused_and_full_is_paused_because_room_would_not_help():
    paused = Blocked(group="gpu", limit=1, active=1, paused=True)

    assert line(paused, holders=held("j7")) == f"{BEHIND_TWO}, and gpu is paused."


def test_a_limit_of_zero_lets_nobody_in():
    blocked = Blocked(group="gpu", limit=0, active=0)

    assert line(blocked) == f"{BEHIND_TWO}, and gpu has a limit of 0, so nobody starts in it."


def test_a_group_kept_elsewhere_says_when_it_is_tried_again():
    closed = Blocked(group="quota", limit=None, active=0, closed_until=FIVE_PAST)

    assert line(closed) == f"{BEHIND_TWO}, and quota is full elsewhere and is tried again at 12:05 UTC."


def test_a_group_kept_elsewhere_says_the_day_too_when_it_is_another():
    closed = Blocked(group="quota", limit=None, active=0, closed_until=TOMORROW)

    assert line(closed).endswith("tried again at 00:07 UTC on Thursday, 12 March 2026.")


# --- full groups and who holds them -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "taken"),
    [(1, "its slot is taken"), (2, "both its slots are taken"), (3, "all its 3 slots are taken")],
)
def test_a_full_group_is_told_with_the_number_of_its_slots(limit, taken):
    assert line(full(limit=limit)) == f"{BEHIND_TWO}, and gpu is full: {taken}."


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (["a"], "its slot is taken by a (for 17 minutes)"),
        (
            ["a", "b", "c"],
            "all its 3 slots are taken by a (for 17 minutes), b (for 18 minutes) and c (for 19 minutes)",
        ),
        (
            ["a", "b", "c", "d"],
            "all its 4 slots are taken by a (for 17 minutes), b (for 18 minutes), c (for 19 minutes) and 1 more",
        ),
        (
            ["a", "b", "c", "d", "e"],
            "all its 5 slots are taken by a (for 17 minutes), b (for 18 minutes), c (for 19 minutes) and 2 more",
        ),
    ],
)
def test_holders_are_named_with_the_time_they_hold_and_beyond_three_counted(names, taken):
    assert line(full(limit=len(names)), holders=held(*names)) == f"{BEHIND_TWO}, and gpu is full: {taken}."


@pytest.mark.parametrize(
    ("since", "words"),
    [
        (NOW, "0 seconds"),
        (NOW - timedelta(seconds=1), "1 second"),
        (NOW - timedelta(seconds=75), "1 minute"),
        (NOW - timedelta(hours=26, minutes=5), "26h 5m"),
        (NOW + timedelta(seconds=3), "0 seconds"),
    ],
    ids=["just now", "a second", "a minute", "over a day", "by the store's clock, which is ahead of ours"],
)
def test_the_time_a_holder_holds_is_said_in_words_and_never_negative(since, words):
    holder = Holder(group="gpu", slot_id=0, holder="j7", since=since)

    assert f"j7 (for {words})." in line(full(), holders=(holder,))


@pytest.mark.parametrize(
    ("limit", "taken"), [(1, "its slot is taken"), (5, "all its 5 slots are taken"), (9, "all its 9 slots are taken")]
)
def test_holders_who_may_not_be_seen_are_only_counted(limit, taken):
    hidden = held(*[None] * limit)

    assert line(full(limit=limit), holders=hidden) == f"{BEHIND_TWO}, and gpu is full: {taken}."


@pytest.mark.parametrize(
    ("names", "by_whom"),
    [
        (["mine", None, None], "mine (for 17 minutes) and 2 more"),
        ([None, None, "mine"], "mine (for 19 minutes) and 2 more"),
        (["mine", None, "too"], "mine (for 17 minutes), too (for 19 minutes) and 1 more"),
        (["a", "b", "c", "d", None, None], "a (for 17 minutes), b (for 18 minutes), c (for 19 minutes) and 3 more"),
    ],
)
def test_a_person_sees_their_own_jobs_named_and_the_others_counted_beside_them(names, by_whom):
    sentence = line(full(limit=len(names)), holders=held(*names))

    assert sentence == f"{BEHIND_TWO}, and gpu is full: all its {len(names)} slots are taken by {by_whom}."


@pytest.mark.parametrize("names", [["mine", None, None], ["mine", None, "too"], ["a", "b", "c", "d", None, None]])
def test_every_holder_is_either_named_or_counted(names):
    sentence = line(full(limit=len(names)), holders=held(*names))
    counted = re.search(r"and (\d+) more", sentence)

    assert sentence.count("(for ") + (int(counted[1]) if counted else 0) == len(names)


def test_a_group_over_its_lowered_limit_says_so_and_who_is_in_it():
    over = Blocked(group="gpu", limit=1, active=3)

    assert line(over) == f"{BEHIND_TWO}, and gpu is over its limit of 1: 3 slots are taken."
    assert line(over, holders=held("a", "b", None)) == (
        f"{BEHIND_TWO}, and gpu is over its limit of 1: "
        "3 slots are taken by a (for 17 minutes), b (for 18 minutes) and 1 more."
    )


# --- several groups at once -------------------------------------------------------------------------------------


def test_several_full_groups_are_told_one_after_another_each_without_the_others_holders():
    sentence = line(
        full("global", limit=3),
        full("gpu"),
        holders=(*held(None, None, None, group="global"), *held(None, group="gpu")),
    )

    assert sentence == (f"{BEHIND_TWO}, and global is full: all its 3 slots are taken; gpu is full: its slot is taken.")


def test_each_of_several_groups_names_its_own_holders():
    sentence = line(
        full("user:u1"), full("gpu"), holders=(*held("a", group="user:u1"), *held("b", group="gpu", minutes=1))
    )

    assert sentence == (
        f"{BEHIND_TWO}, and user:u1 is full: its slot is taken by a (for 17 minutes); "
        "gpu is full: its slot is taken by b (for 1 minute)."
    )


def test_reasons_of_every_kind_are_told_together_in_the_order_a_claim_meets_them():
    sentence = line(
        Blocked(group="global", limit=5, active=5, paused=True),
        full("build", limit=3),
        Blocked(group="gpu", limit=0, active=0),
        Blocked(group="quota", limit=None, active=0, closed_until=FIVE_PAST),
        has_worker=False,
    )

    assert sentence == (
        f"{BEHIND_TWO}, and no worker for task build is running; global is paused; "
        "build is full: all its 3 slots are taken; gpu has a limit of 0, so nobody starts in it; "
        "quota is full elsewhere and is tried again at 12:05 UTC."
    )


# --- scheduled --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run_at", "when"), [(FIVE_PAST, "12:05 UTC"), (TOMORROW, "00:07 UTC on Thursday, 12 March 2026")]
)
def test_a_scheduled_job_says_until_when(run_at, when):
    why = explain(facts(job(State.SCHEDULED, run_at=run_at)))

    assert why.sentence == f"It is scheduled for {when}."
    assert why.scheduled_until == run_at


@pytest.mark.parametrize(
    ("attempts", "run_at", "sentence"),
    [
        (1, FIVE_PAST, "It is scheduled for 12:05 UTC, as attempt 2 of 3."),
        (2, FIVE_PAST, "It is scheduled for 12:05 UTC, as attempt 3 of 3."),
        (2, TOMORROW, "It is scheduled for 00:07 UTC on Thursday, 12 March 2026, as attempt 3 of 3."),
    ],
)
def test_a_job_that_waits_for_its_retry_says_which_attempt_that_is(attempts, run_at, sentence):
    assert sentence_of(State.SCHEDULED, run_at=run_at, attempts=attempts) == sentence


# --- waiting for a phase ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "which"),
    [
        (None, "which has not been submitted yet."),
        (State.QUEUED, "which is queued."),
        (State.SCHEDULED, "which is scheduled."),
        (State.WAITING, "which is waiting."),
        (State.STARTING, "which is starting."),
        (State.RUNNING, "which is running."),
        (State.CONFIRMING, "which waits for a person to confirm."),
        (State.FAILED, "which has failed; retry that one and this one goes on."),
        (State.CANCELLED, "which was cancelled, so it cannot start; cancel it too."),
    ],
)
def test_a_waiting_phase_says_for_which_one_and_how_that_one_stands(before, which):
    sentence = phase_two(before)

    assert sentence.startswith("It waits for phase 1 of ")
    assert sentence.endswith(f"site, {which}")


def test_a_parent_that_is_a_number_is_not_taken_for_the_number_of_phases():
    assert phase_two(State.RUNNING, parent="107") == "It waits for phase 1 of parent 107, which is running."


def test_the_phase_that_is_waited_for_is_told_as_a_number_too():
    why = explain(facts(job(State.WAITING, parent="107", phase=5), waits_for=4, waits_for_state=State.QUEUED))

    assert why.waits_for_phase == 4


@pytest.mark.parametrize(
    ("run_at", "when"), [(FIVE_PAST, "12:05 UTC"), (TOMORROW, "00:07 UTC on Thursday, 12 March 2026")]
)
def test_a_phase_whose_turn_has_come_before_its_time_says_until_when_it_waits(run_at, when):
    sentence = sentence_of(State.WAITING, parent="site", phase=2, run_at=run_at)

    assert sentence == f"The phase before it has succeeded; it waits until {when}."


# --- not waiting at all -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("started_at", "since"),
    [(QUARTER_TO, "11:45 UTC"), (NOW - timedelta(days=1), "12:00 UTC on Tuesday, 10 March 2026")],
)
def test_a_running_job_says_where_and_since_when(started_at, since):
    sentence = sentence_of(State.RUNNING, worker="worker-1", started_at=started_at)

    assert sentence == f"It has been running on worker worker-1 since {since}."


def test_a_starting_job_says_where():
    assert sentence_of(State.STARTING, worker="worker-1", started_at=NOW) == "It is starting on worker worker-1."


@pytest.mark.parametrize("state", sorted(ENDED))
def test_an_ended_job_says_how(state):
    assert sentence_of(state) == f"It has ended: {state.value}."


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (None, "It waits for a person to confirm."),
        ("Continue?", 'It waits for a person to confirm "Continue?".'),
        ("Continue for 2 more iterations", 'It waits for a person to confirm "Continue for 2 more iterations".'),
    ],
)
def test_a_confirming_job_says_what_a_person_is_asked(message, sentence):
    assert sentence_of(State.CONFIRMING, message=message) == sentence


# --- as data ----------------------------------------------------------------------------------------------------


def test_what_the_sentence_was_made_from_is_given_as_data():
    blocked, holders = full(), held("j7", None)

    why = explain(facts(job(), ahead=4, blocked_by=(blocked,), holders=holders, has_worker=False))

    assert why == Why(
        job_id="j1",
        state=State.QUEUED,
        sentence=why.sentence,
        ahead=4,
        blocked_by=(blocked,),
        holders=holders,
        no_worker=True,
    )


def test_a_job_that_is_not_in_line_lacks_no_worker_and_is_not_scheduled_unless_it_is():
    for state in set(State) - {State.QUEUED, State.SCHEDULED}:
        why = explain(facts(job(state, run_at=FIVE_PAST, worker="worker-1", started_at=NOW), has_worker=False))

        assert not why.no_worker
        assert why.scheduled_until is None


@pytest.mark.parametrize("state", sorted(HELD | ENDED))
def test_a_job_that_runs_or_has_ended_is_blocked_by_nobody_though_its_groups_are_full(state):
    mine = held("j1")

    why = explain(facts(job(state, worker="worker-1", started_at=NOW), blocked_by=(full(),), holders=mine))

    assert why.blocked_by == ()
    assert why.holders == ()


# --- any combination reads as a sentence ------------------------------------------------------------------------

groups = st.sampled_from(["global", "build", "user:u1", "gpu", "provider:ollama"])
moments = st.timedeltas(timedelta(0), timedelta(days=40)).map(lambda age: NOW - age)
blocked_groups = st.one_of(
    st.builds(
        Blocked, group=groups, limit=st.none() | st.integers(0, 9), active=st.integers(0, 9), paused=st.just(True)
    ),
    st.builds(Blocked, group=groups, limit=st.none(), active=st.integers(0, 9), closed_until=moments),
    st.builds(full, groups, st.integers(0, 9)),
    st.builds(lambda group, limit: Blocked(group=group, limit=limit, active=limit + 2), groups, st.integers(0, 9)),
)
some_holders = st.builds(
    Holder,
    group=groups,
    slot_id=st.integers(0, 9),
    holder=st.none() | st.sampled_from(["j1", "j2", "caller-3"]),
    since=moments,
)


@given(
    ahead=st.integers(0, 3),
    blocked=st.lists(blocked_groups, max_size=5, unique_by=lambda blocked: blocked.group),
    holders=st.lists(some_holders, max_size=12),
    has_worker=st.booleans(),
)
def test_whatever_comes_together_reads_as_one_sentence(ahead, blocked, holders, has_worker):
    sentence = line(*blocked, ahead=ahead, holders=tuple(holders), has_worker=has_worker)

    assert re.fullmatch(r"(It is|1 job is|[23] jobs are) [^\n]*[^ .;,:]\.", sentence)
    assert not re.search(r"  |None|\.\.|;;|,,|, and ;| -\d|\b1 (jobs|slots|seconds|minutes)\b", sentence)
    assert all(each.group in sentence for each in blocked)


@given(st.lists(blocked_groups, max_size=5, unique_by=lambda blocked: blocked.group), st.lists(some_holders))
def test_a_hidden_holder_leaves_no_trace_but_a_number(blocked, holders):
    hidden = tuple(msgspec.structs.replace(holder, holder=None) for holder in holders)

    sentence = line(*blocked, holders=hidden)

    assert not re.search(r"j1|j2|caller-3| by ", sentence)
