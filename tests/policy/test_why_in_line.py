"""Why a job in line is not running: who is ahead, no worker, groups; the exact sentence a person reads."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qo.policy.why import explain
from qo.values import Blockers, GroupStatus, Suspicion
from tests.policy.blocked_jobs import (
    FIVE_PAST,
    HIDDEN,
    NOW,
    TOMORROW,
    explained,
    full,
    held_by,
    held_since,
    job,
)

BEHIND_TWO = "2 jobs are ahead of it in line"
"""The beginning of the sentence that `line` returns."""


def line(*groups: GroupStatus, ahead: int = 2, has_worker: bool = True) -> str:
    """The sentence about a job in line that these groups block."""
    return explained(job(), *groups, ahead=ahead, has_worker=has_worker).sentence


# --- how many are ahead -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ahead", "sentence"),
    [
        (0, "It is the first in line and starts as soon as a worker has free capacity."),
        (1, "1 job is ahead of it in line; nothing else holds it up."),
        (2, "2 jobs are ahead of it in line; nothing else holds it up."),
        (1000, "1000 jobs are ahead of it in line; nothing else holds it up."),
    ],
)
def test_a_job_in_line_says_how_many_are_ahead(ahead: int, sentence: str) -> None:
    assert line(ahead=ahead) == sentence


@pytest.mark.parametrize(
    ("ahead", "sentence"),
    [
        (1, "1 job is ahead of it in line, and global is paused."),
        (3, "3 jobs are ahead of it in line, and global is paused."),
    ],
)
def test_the_number_of_jobs_ahead_stands_beside_every_other_reason(ahead: int, sentence: str) -> None:
    assert line(GroupStatus(group="global", paused=True), ahead=ahead) == sentence


def test_the_first_in_line_says_what_stops_it_all_the_same() -> None:
    paused = GroupStatus(group="global", paused=True)

    assert line(paused, ahead=0) == "It is the first in line, but global is paused."


# --- no worker --------------------------------------------------------------------------------------------------


def test_a_task_that_no_worker_handles_is_named() -> None:
    assert line(has_worker=False) == f"{BEHIND_TWO}, and no worker for task build is running."


def test_without_a_live_worker_the_last_known_worker_is_named_with_its_time() -> None:
    heard_at = NOW - timedelta(seconds=40)
    why = explained(job(), ahead=2, has_worker=False, worker="mail-1", heard_at=heard_at)

    assert why.sentence == (
        f"{BEHIND_TWO}, and no worker for task build is running (mail-1 was last heard of 40 s ago)."
    )
    assert (why.no_worker, why.worker, why.worker_heard_at) == (True, "mail-1", heard_at)


def test_that_there_is_no_worker_comes_before_the_groups() -> None:
    sentence = line(GroupStatus(group="gpu", limit=0), has_worker=False)

    assert sentence == (
        f"{BEHIND_TWO}, and no worker for task build is running; gpu has a limit of 0, so nobody starts in it."
    )


# --- paused, closed, never open ---------------------------------------------------------------------------------


@pytest.mark.parametrize("group", ["global", "build", "priority:90", "user:u1", "parent:107"])
def test_a_paused_group_is_named(group: str) -> None:
    assert line(GroupStatus(group=group, paused=True)) == f"{BEHIND_TWO}, and {group} is paused."


def test_a_group_both_paused_and_full_is_paused_because_room_would_not_help() -> None:
    paused = GroupStatus(group="gpu", limit=1, active=1, paused=True, slots=held_by("j7"))

    assert line(paused) == f"{BEHIND_TWO}, and gpu is paused."


def test_a_limit_of_zero_lets_no_job_in() -> None:
    blocked = GroupStatus(group="gpu", limit=0)

    assert line(blocked) == f"{BEHIND_TWO}, and gpu has a limit of 0, so nobody starts in it."


def test_a_group_kept_elsewhere_says_when_it_is_tried_again() -> None:
    closed = GroupStatus(group="quota", closed_until=FIVE_PAST)

    assert line(closed) == f"{BEHIND_TWO}, and quota is full elsewhere and is tried again at 12:05 UTC."


def test_a_group_kept_elsewhere_says_the_day_too_when_it_is_another() -> None:
    closed = GroupStatus(group="quota", closed_until=TOMORROW)

    assert line(closed).endswith("tried again at 00:07 UTC on Thursday, 12 March 2026.")


# --- full groups and who holds them -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "taken"),
    [(1, "its slot is taken"), (2, "both its slots are taken"), (3, "all its 3 slots are taken")],
)
def test_a_full_group_is_named_with_the_number_of_its_slots(limit: int, taken: str) -> None:
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
def test_holders_are_named_with_the_time_they_hold_and_beyond_three_counted(names: list[str], taken: str) -> None:
    assert line(full(limit=len(names), slots=held_by(*names))) == f"{BEHIND_TWO}, and gpu is full: {taken}."


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
def test_the_time_a_holder_holds_is_said_in_words_and_never_negative(since: datetime, words: str) -> None:
    assert f"j7 (for {words})." in line(full(slots=(held_since(since, "j7"),)))


@pytest.mark.parametrize(
    ("limit", "taken"), [(1, "its slot is taken"), (5, "all its 5 slots are taken"), (9, "all its 9 slots are taken")]
)
def test_hidden_holders_are_only_counted(limit: int, taken: str) -> None:
    hidden = held_by(*[HIDDEN] * limit)

    assert line(full(limit=limit, slots=hidden)) == f"{BEHIND_TWO}, and gpu is full: {taken}."


@pytest.mark.parametrize(
    ("names", "by_whom"),
    [
        (["mine", HIDDEN, HIDDEN], "mine (for 17 minutes) and 2 more"),
        ([HIDDEN, HIDDEN, "mine"], "mine (for 19 minutes) and 2 more"),
        (["mine", HIDDEN, "too"], "mine (for 17 minutes), too (for 19 minutes) and 1 more"),
        (["a", "b", "c", "d", HIDDEN, HIDDEN], "a (for 17 minutes), b (for 18 minutes), c (for 19 minutes) and 3 more"),
    ],
)
def test_a_person_sees_their_own_jobs_named_and_the_others_counted_beside_them(names: list[str], by_whom: str) -> None:
    sentence = line(full(limit=len(names), slots=held_by(*names)))

    assert sentence == f"{BEHIND_TWO}, and gpu is full: all its {len(names)} slots are taken by {by_whom}."


@pytest.mark.parametrize(
    "names", [["mine", HIDDEN, HIDDEN], ["mine", HIDDEN, "too"], ["a", "b", "c", "d", HIDDEN, HIDDEN]]
)
def test_every_holder_is_either_named_or_counted(names: list[str]) -> None:
    sentence = line(full(limit=len(names), slots=held_by(*names)))
    counted = re.search(r"and (\d+) more", sentence)

    assert sentence.count("(for ") + (int(counted[1]) if counted else 0) == len(names)


def test_a_group_over_its_lowered_limit_says_so_and_names_its_holders() -> None:
    over = GroupStatus(group="gpu", limit=1, active=3)
    holders = held_by("a", "b", HIDDEN)

    assert line(over) == f"{BEHIND_TWO}, and gpu is over its limit of 1: 3 slots are taken."
    assert line(GroupStatus(group="gpu", limit=1, active=3, slots=holders)) == (
        f"{BEHIND_TWO}, and gpu is over its limit of 1: "
        "3 slots are taken by a (for 17 minutes), b (for 18 minutes) and 1 more."
    )


# --- several groups at once -------------------------------------------------------------------------------------


def test_several_full_groups_are_named_in_order_each_without_the_holders_of_the_others() -> None:
    sentence = line(
        full("global", limit=3, slots=held_by(HIDDEN, HIDDEN, HIDDEN)),
        full("gpu", slots=held_by(HIDDEN)),
    )

    assert sentence == (f"{BEHIND_TWO}, and global is full: all its 3 slots are taken; gpu is full: its slot is taken.")


def test_each_of_several_groups_names_its_own_holders() -> None:
    sentence = line(
        full("user:u1", slots=held_by("a")),
        full("gpu", slots=held_by("b", minutes=1)),
    )

    assert sentence == (
        f"{BEHIND_TWO}, and user:u1 is full: its slot is taken by a (for 17 minutes); "
        "gpu is full: its slot is taken by b (for 1 minute)."
    )


def test_reasons_of_every_kind_stand_together_in_the_order_a_claim_meets_them() -> None:
    sentence = line(
        GroupStatus(group="global", limit=5, active=5, paused=True),
        full("build", limit=3),
        GroupStatus(group="gpu", limit=0),
        GroupStatus(group="quota", closed_until=FIVE_PAST),
        has_worker=False,
    )

    assert sentence == (
        f"{BEHIND_TWO}, and no worker for task build is running; global is paused; "
        "build is full: all its 3 slots are taken; gpu has a limit of 0, so nobody starts in it; "
        "quota is full elsewhere and is tried again at 12:05 UTC."
    )


# --- any combination reads as a sentence ------------------------------------------------------------------------

groups = st.sampled_from(["global", "build", "user:u1", "gpu", "provider:ollama"])
numbers = st.integers(0, 9)
moments = st.timedeltas(timedelta(0), timedelta(days=40)).map(lambda age: NOW - age)


def blocking_groups(holders: list[str]) -> st.SearchStrategy[list[GroupStatus]]:
    slots = st.lists(st.builds(held_since, moments, st.sampled_from(holders), slot_id=numbers), max_size=12).map(tuple)
    paused = st.builds(
        GroupStatus, group=groups, limit=st.none() | numbers, active=numbers, paused=st.just(True), slots=slots
    )
    closed = st.builds(GroupStatus, group=groups, active=numbers, closed_until=moments, slots=slots)
    over = st.builds(
        lambda group, limit, slots: GroupStatus(group=group, limit=limit, active=limit + 2, slots=slots),
        groups,
        numbers,
        slots,
    )
    full_groups = st.builds(full, groups, numbers, slots=slots)
    one = st.one_of(paused, closed, full_groups, over)
    return st.lists(one, max_size=5, unique_by=lambda group: group.group)


@given(ahead=st.integers(0, 3), blocked=blocking_groups(["j1", "j2", "caller-3", HIDDEN]), has_worker=st.booleans())
def test_any_combination_of_reasons_reads_as_one_sentence(
    ahead: int, blocked: list[GroupStatus], has_worker: bool
) -> None:
    sentence = line(*blocked, ahead=ahead, has_worker=has_worker)

    assert re.fullmatch(r"(It is|1 job is|[23] jobs are) [^\n]*[^ .;,:]\.", sentence)
    assert not re.search(r"  |None|\.\.|;;|,,|, and ;| -\d|\b1 (jobs|slots|seconds|minutes)\b", sentence)
    assert all(each.group in sentence for each in blocked)


@given(blocking_groups([HIDDEN]))
def test_a_hidden_holder_leaves_no_trace_but_a_number(blocked: list[GroupStatus]) -> None:
    assert not re.search(rf"{HIDDEN}| by ", line(*blocked))


# --- turns ------------------------------------------------------------------------------------------------------


def kept(group: str, by: str) -> GroupStatus:
    """A group with a free slot that is kept for another."""
    return GroupStatus(group=group, limit=2, active=1, kept=by)


def test_a_job_whose_turn_it_is_says_which_slots_are_kept_for_it() -> None:
    why = explained(job(), full("gpu", slots=held_by("j7")), ahead=3, turn=("provider:openai", "gpu"))

    assert why.sentence == (
        "It is its turn: the next free slots of provider:openai and gpu are kept for it; "
        "gpu is full: its slot is taken by j7 (for 17 minutes)."
    )
    assert why.turn == ("provider:openai", "gpu")


def test_a_turn_in_one_group_is_said_in_the_singular() -> None:
    sentence = explained(job(), full("gpu"), turn=("gpu",)).sentence

    assert sentence.startswith("It is its turn: the next free slot of gpu is kept for it; gpu is full")


def test_a_job_behind_a_turn_says_for_whom_the_slot_is_kept() -> None:
    blockers = Blockers(
        job=job(), groups=(kept("api", "j3"),), has_worker=True, ahead=2, kept_for={"j3": ("gpu", "disk")}
    )

    why = explain(blockers, now=NOW)

    assert why.sentence == (
        "2 jobs are ahead of it in line, and api has a free slot, kept for j3, which stands before it and waits for "
        "gpu and disk."
    )
    assert [(each.is_kept, each.kept_for) for each in why.blocked_by] == [(True, "j3")]


def test_a_user_does_not_read_for_whom_the_slot_is_kept() -> None:
    why = explained(job(), kept("api", HIDDEN), ahead=2, kept_for={HIDDEN: ("gpu",)})

    assert why.sentence == "2 jobs are ahead of it in line, and api has a free slot, kept for a job before it."
    assert [(each.is_kept, each.kept_for) for each in why.blocked_by] == [(True, None)]
    assert HIDDEN not in repr(why)


# --- suspects ---------------------------------------------------------------------------------------------------

STOPPED = "It was running when its worker stopped responding"


@pytest.mark.parametrize(
    ("suspicion", "groups", "ahead", "sentence"),
    [
        (Suspicion.LAST, (), 0, f"It is the first in line. {STOPPED}, so it waits to run alone."),
        (Suspicion.LAST, (), 2, f"{BEHIND_TWO}. {STOPPED}, so it waits to run alone."),
        (
            Suspicion.LAST,
            (GroupStatus(group="gpu", paused=True),),
            2,
            f"{BEHIND_TWO}, and gpu is paused. {STOPPED}, so it waits to run alone.",
        ),
        (
            Suspicion.SUSPECT,
            (),
            0,
            f"It is the first in line. {STOPPED}, so a worker runs only a few such jobs at once.",
        ),
    ],
)
def test_a_job_whose_worker_stopped_responding_says_so(
    suspicion: Suspicion, groups: tuple[GroupStatus, ...], ahead: int, sentence: str
) -> None:
    assert explained(job(), *groups, ahead=ahead, suspicion=suspicion).sentence == sentence
