"""Jobs in the words of the commands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from qo.cli.telling import told
from qo.job import Job, State


def job(state: State, **fields: object) -> Job:
    values = {"status": str(state), "priority": 50, "groups": (), "submitted_at": datetime.now(UTC), "attempts": 0}
    return Job(id="j1", task="build", state=state, **{**values, **fields})


def test_a_job_in_line_tells_its_place() -> None:
    assert told(job(State.QUEUED, position=3)) == "build j1 is #3 in line."


def test_a_retried_job_whose_iterations_are_used_says_that_it_asks_for_confirmation() -> None:
    retried = job(State.QUEUED, position=1, iterations=2, iterations_granted=2, iterations_max=6)

    assert told(retried) == (
        "build j1 is #1 in line. It asks for confirmation before iteration 3: "
        "the 2 iterations that it was granted are used."
    )


def test_a_deferred_job_names_the_quota_and_a_delayed_one_does_not() -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)

    assert told(job(State.SCHEDULED, run_at=tomorrow, deferred=True)).endswith(
        ", because the daily quota is used up until then."
    )
    assert "quota" not in told(job(State.SCHEDULED, run_at=tomorrow))
