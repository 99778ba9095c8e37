"""Why a job in line is not running: who is ahead, no worker, groups; the exact sentence a person reads."""

from __future__ import annotations

import re
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from why_facts import FIVE_PAST, NOW, TOMORROW, facts, full, held, job

from qo.policy.why import Blocked, Holder, explain

BEHIND_TWO = "2 jobs are ahead of it in line"
"""the beginning of a sentence about a job as `line` makes it"""


def line(*blocked: Blocked, ahead: int = 2, holders: tuple[Holder, ...] = (), has_worker: bool = True) -> str:
    """The sentence about a job in line, behind two others unless told otherwise."""
    return explain(facts(job(), ahead=ahead, blocked_by=blocked, holders=holders, has_worker=has_worker)).sentence


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


def test_without_a_live_worker_the_one_heard_of_last_is_named_and_when_that_was():
    gone = facts(job(), ahead=2, has_worker=False, worker="mail-1", heard_at=NOW - timedelta(seconds=40))
    told = explain(gone)

    assert told.sentence == (
        f"{BEHIND_TWO}, and no worker for task build is running (mail-1 was last heard of 40 s ago)."
    )
    assert (told.no_worker, told.worker, told.worker_heard_at) == (True, "mail-1", gone.heard_at)


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
