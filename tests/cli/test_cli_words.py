"""Jobs in the words of the commands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from qo.cli.wording import job_sentence
from qo.job import Job, State


def job(state: State, **fields: Any) -> Job:
    values: dict[str, Any] = {
        "status": str(state),
        "priority": 50,
        "groups": (),
        "submitted_at": datetime.now(UTC),
        "attempts": 0,
    }
    return Job(id="j1", task="build", state=state, **{**values, **fields})


def test_the_sentence_of_a_job_in_line_names_its_position() -> None:
    assert job_sentence(job(State.QUEUED, position=3)) == "build j1 is #3 in line."


def test_a_retried_job_whose_iterations_are_used_says_that_it_asks_for_confirmation() -> None:
    retried = job(State.QUEUED, position=1, iterations=2, iterations_granted=2, iterations_max=6)

    assert job_sentence(retried) == (
        "build j1 is #1 in line. It asks for confirmation before iteration 3: "
        "the 2 iterations that it was granted are used."
    )


def test_a_deferred_job_names_the_quota_and_a_delayed_one_does_not() -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)

    assert job_sentence(job(State.SCHEDULED, run_at=tomorrow, deferred=True)).endswith(
        ", because the daily quota is used up until then."
    )
    assert "quota" not in job_sentence(job(State.SCHEDULED, run_at=tomorrow))
