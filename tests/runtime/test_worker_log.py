"""What a worker says in its log of the jobs it runs."""

from __future__ import annotations

import logging

import pytest

from qo.job import Job, State, moment
from qo.runtime.worker_log import log_start, told
from qo.store.values import Lease, Outcome

NOON_MS = 1_728_043_200_000


def lease(*, slots: dict[str, int]) -> Lease:
    job = Job(
        id="01J",
        task="build",
        state=State.STARTING,
        status="starting",
        priority=20,
        groups=("global", "build", "priority:20"),
        submitted_at=moment(NOON_MS),
        joined_at=moment(NOON_MS),
        started_at=moment(NOON_MS + 192_000),
        position_original=4,
        attempts=1,
    )
    return Lease.of(job, token="7", expires_at_ms=NOON_MS + 300_000, slots=slots)


@pytest.mark.parametrize(
    ("slots", "ending"),
    [({"user:u1": 0, "global": 3}, ", slots user:u1#0 global#3)"), ({}, ")")],
    ids=["with slots", "without"],
)
def test_a_start_is_one_line(caplog: pytest.LogCaptureFixture, slots: dict[str, int], ending: str) -> None:
    with caplog.at_level(logging.INFO, logger="qo.worker"):
        log_start(lease(slots=slots))

    assert caplog.messages == [f"starting build 01J (priority 20, joined as #4, waited 3m 12s{ending}"]


@pytest.mark.parametrize(
    ("state", "words"),
    [(State.SUCCEEDED, "succeeded"), (State.CANCELLED, "cancelled"), (State.QUEUED, "handed back to its place")],
)
def test_an_end_is_told_in_the_words_of_its_state(state: State, words: str) -> None:
    assert told(Outcome(job_id="01J", token="7", state=state)) == words


def test_a_failure_that_is_tried_again_says_when() -> None:
    outcome = Outcome(job_id="01J", token="7", state=State.SCHEDULED, retry_after_ms=60_000)

    assert told(outcome) == "failed, to be tried again in 1m 0s"
