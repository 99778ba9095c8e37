"""Why a job that is not in line is not running, as the exact sentence a person reads, and every reason as data.

Why one in line is not, is in `test_why_in_line.py`; together they are the reasons of SPEC.md section 3.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from qo.job import ENDED, HELD, State
from qo.policy.why import Blocked, Holder, Why, explain
from qo.values import Blockers
from tests.policy.blocked_jobs import FIVE_PAST, HIDDEN, NOW, QUARTER_TO, TOMORROW, explained, full, held_by, job


def phase_two(before: State | None, parent: str = "site", **fields: Any) -> str:
    """The sentence about a second phase, by the state of the first."""
    waiting = job(State.WAITING, parent=parent, phase=2, **fields)
    return explained(waiting, waits_for=1, waits_for_state=before).sentence


def sentence_of(state: State, **fields: Any) -> str:
    return explained(job(state, **fields)).sentence


# --- scheduled --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run_at", "when"), [(FIVE_PAST, "12:05 UTC"), (TOMORROW, "00:07 UTC on Thursday, 12 March 2026")]
)
def test_a_scheduled_job_says_until_when(run_at: datetime, when: str) -> None:
    why = explained(job(State.SCHEDULED, run_at=run_at))

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
def test_a_job_that_waits_for_its_retry_says_which_attempt_that_is(
    attempts: int, run_at: datetime, sentence: str
) -> None:
    assert sentence_of(State.SCHEDULED, run_at=run_at, attempts=attempts) == sentence


@pytest.mark.parametrize("state", [State.SCHEDULED, State.WAITING, State.QUEUED])
def test_a_job_that_has_to_start_in_time_says_until_when(state: State) -> None:
    why = explained(job(state, run_at=FIVE_PAST), start_by=FIVE_PAST)

    assert why.sentence.endswith(". It must start by 12:05 UTC, or it fails.")
    assert why.start_by == FIVE_PAST


OVER_QUOTA = "because ada's quota of 5 jobs a day is used up until then"


def test_a_deferred_job_names_the_quota() -> None:
    deferred = job(State.SCHEDULED, run_at=TOMORROW, user="ada", deferred=True)

    told = explained(deferred, daily_quota=5).sentence

    assert told == f"It is scheduled for 00:07 UTC on Thursday, 12 March 2026, {OVER_QUOTA}."


@pytest.mark.parametrize(("quota", "words"), [(1, "quota of 1 job a day"), (None, "daily quota")])
def test_a_quota_is_named_by_its_number_where_that_is_known(quota: int | None, words: str) -> None:
    deferred = job(State.SCHEDULED, run_at=TOMORROW, user="ada", deferred=True)

    told = explained(deferred, daily_quota=quota).sentence

    assert told.endswith(f", because ada's {words} is used up until then.")


def test_a_deferred_phase_names_the_quota_when_the_one_before_has_succeeded() -> None:
    deferred = job(State.WAITING, parent="site", phase=2, run_at=TOMORROW, user="ada", deferred=True)

    told = explained(deferred, daily_quota=5).sentence

    when = "00:07 UTC on Thursday, 12 March 2026"
    assert told == f"The phase before it has succeeded; it waits until {when}, {OVER_QUOTA}."


def test_a_delay_is_no_matter_of_the_quota() -> None:
    delayed = job(State.SCHEDULED, run_at=FIVE_PAST, user="ada")

    assert explained(delayed, daily_quota=5).sentence == "It is scheduled for 12:05 UTC."


# --- waiting for a phase ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "which"),
    [
        (
            None,
            "which is not known here: it has not been submitted yet, or it ended so long ago that it is no longer kept;"
            " submit it, and this one goes on when it has succeeded.",
        ),
        (State.QUEUED, "which is queued."),
        (State.SCHEDULED, "which is scheduled."),
        (State.WAITING, "which is waiting."),
        (State.STARTING, "which is starting."),
        (State.RUNNING, "which is running."),
        (State.CONFIRMING, "which waits for a person to confirm."),
        (State.FAILED, "which has failed; retry that one and this one goes on."),
        (State.CANCELLED, "which was cancelled; submit that phase again under a new id and this one goes on."),
    ],
)
def test_a_waiting_phase_names_the_phase_before_it_and_that_phases_state(before: State | None, which: str) -> None:
    sentence = phase_two(before)

    assert sentence.startswith("It waits for phase 1 of ")
    assert sentence.endswith(f"site, {which}")


def test_a_parent_that_is_a_number_is_not_taken_for_the_number_of_phases() -> None:
    assert phase_two(State.RUNNING, parent="107") == "It waits for phase 1 of parent 107, which is running."


def test_the_phase_that_is_waited_for_is_given_as_a_number_too() -> None:
    why = explained(job(State.WAITING, parent="107", phase=5), waits_for=4, waits_for_state=State.QUEUED)

    assert why.waits_for_phase == 4


@pytest.mark.parametrize(
    ("run_at", "when"), [(FIVE_PAST, "12:05 UTC"), (TOMORROW, "00:07 UTC on Thursday, 12 March 2026")]
)
def test_a_phase_whose_turn_has_come_before_its_time_says_until_when_it_waits(run_at: datetime, when: str) -> None:
    sentence = sentence_of(State.WAITING, parent="site", phase=2, run_at=run_at)

    assert sentence == f"The phase before it has succeeded; it waits until {when}."


# --- not waiting at all -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("started_at", "since"),
    [(QUARTER_TO, "11:45 UTC"), (NOW - timedelta(days=1), "12:00 UTC on Tuesday, 10 March 2026")],
)
def test_a_running_job_says_where_and_since_when(started_at: datetime, since: str) -> None:
    sentence = sentence_of(State.RUNNING, worker="worker-1", started_at=started_at)

    assert sentence == f"It has been running since {since} on worker worker-1."


@pytest.mark.parametrize(("seconds", "when"), [(4, "4 s ago"), (40, "40 s ago"), (200, "3 min ago"), (-2, "0 s ago")])
def test_a_job_that_is_held_says_when_its_worker_was_last_heard_of(seconds: int, when: str) -> None:
    heard: dict[str, Any] = {"worker": "worker-1", "heard_at": NOW - timedelta(seconds=seconds)}
    running = explained(job(State.RUNNING, worker="worker-1", started_at=QUARTER_TO), **heard)
    starting = explained(job(State.STARTING, worker="worker-1", started_at=NOW), **heard)

    of_worker = f"worker worker-1, which was last heard of {when}."
    assert running.sentence == f"It has been running since 11:45 UTC on {of_worker}"
    assert starting.sentence == f"It is starting on {of_worker}"
    assert (running.worker, running.worker_heard_at) == ("worker-1", heard["heard_at"])


def test_a_starting_job_says_where() -> None:
    assert sentence_of(State.STARTING, worker="worker-1", started_at=NOW) == "It is starting on worker worker-1."


@pytest.mark.parametrize("state", sorted(ENDED))
def test_an_ended_job_says_how(state: State) -> None:
    assert sentence_of(state) == f"It has ended: {state.value}."


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (None, "It waits for a person to confirm."),
        ("Continue?", 'It waits for a person to confirm "Continue?".'),
        ("Continue for 2 more iterations", 'It waits for a person to confirm "Continue for 2 more iterations".'),
    ],
)
def test_a_confirming_job_says_what_a_person_is_asked(message: str | None, sentence: str) -> None:
    assert sentence_of(State.CONFIRMING, message=message) == sentence


# --- as data ----------------------------------------------------------------------------------------------------


def test_the_facts_behind_the_sentence_are_given_as_data() -> None:
    why = explained(job(), full(slots=held_by("j7", HIDDEN)), ahead=4, has_worker=False)

    assert why == Why(
        job_id="j1",
        state=State.QUEUED,
        sentence=why.sentence,
        ahead=4,
        blocked_by=(Blocked(group="gpu", limit=1, active=1),),
        holders=(
            Holder(group="gpu", slot_id=0, holder="j7", since=NOW - timedelta(minutes=17)),
            Holder(group="gpu", slot_id=1, holder=None, since=NOW - timedelta(minutes=18)),
        ),
        no_worker=True,
    )


def test_a_reader_who_may_see_everything_sees_every_holder() -> None:
    blockers = Blockers(job=job(), groups=(full(slots=held_by("j7", HIDDEN)),))

    assert [holder.holder for holder in explain(blockers, now=NOW).holders] == ["j7", HIDDEN]


def test_a_job_that_is_not_in_line_lacks_no_worker_and_is_not_scheduled_unless_it_is() -> None:
    for state in set(State) - {State.QUEUED, State.SCHEDULED}:
        why = explained(job(state, run_at=FIVE_PAST, worker="worker-1", started_at=NOW), has_worker=False)

        assert not why.no_worker
        assert why.scheduled_until is None


@pytest.mark.parametrize("state", sorted(HELD | ENDED))
def test_a_job_that_runs_or_has_ended_has_no_blockers_though_its_groups_are_full(state: State) -> None:
    why = explained(job(state, worker="worker-1", started_at=NOW), full(slots=held_by("j1")))

    assert why.blocked_by == ()
    assert why.holders == ()
