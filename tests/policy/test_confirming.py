"""What a person is asked, worded from what a confirmation would grant now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from qo.job import Job, State
from qo.policy.confirming import granted_after, message_now


def job(state: State = State.CONFIRMING, **fields: Any) -> Job:
    fixed: dict[str, Any] = {"status": str(state), "priority": 50, "groups": (), "attempts": 0}
    fixed["submitted_at"] = datetime.now(UTC)
    return Job(id="j", task="improve", state=state, **{**fixed, **fields})


@pytest.mark.parametrize(
    ("granted", "batch", "most", "after"),
    [(2, 2, 6, 4), (5, 2, 6, 6), (2, 2, None, 4), (10, 2, 6, 6), (None, 2, 6, None), (2, None, None, 2)],
)
def test_a_confirmation_grants_one_more_batch_up_to_the_maximum(
    granted: int | None, batch: int | None, most: int | None, after: int | None
) -> None:
    assert granted_after(granted, batch, most) == after


@pytest.mark.parametrize(
    ("granted", "batch", "most", "asks"),
    [
        (2, 2, 6, "Continue for 2 more iterations"),
        (2, 5, 15, "Continue for 5 more iterations"),
        (5, 2, 6, "Continue for 1 more iteration"),
        (2, 2, None, "Continue for 2 more iterations"),
        (6, 2, 6, "No more iterations can be granted: its tier allows 6 in all, and 6 are used; cancel it"),
        (10, 2, 6, "No more iterations can be granted: its tier allows 6 in all, and 10 are used; cancel it"),
    ],
)
def test_the_question_tells_what_a_confirmation_grants(granted: int, batch: int, most: int | None, asks: str) -> None:
    asked = job(
        iterations=granted,
        iterations_granted=granted,
        iterations_batch=batch,
        iterations_max=most,
        message="Continue for 99 more iterations",
    )

    assert message_now(asked) == asks


def test_a_job_without_a_batch_asks_what_it_was_given_to_ask() -> None:
    assert message_now(job(message="Is this the right logo?")) == "Is this the right logo?"
    assert message_now(job()) is None


@pytest.mark.parametrize("state", [State.QUEUED, State.SCHEDULED, State.STARTING])
def test_a_job_that_has_used_what_it_was_granted_says_that_it_will_ask(state: State) -> None:
    retried = job(state, iterations=2, iterations_granted=2, iterations_batch=2, iterations_max=6)

    assert message_now(retried) == (
        "It asks for confirmation before iteration 3: the 2 iterations that it was granted are used"
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"state": State.QUEUED, "iterations": 1, "iterations_granted": 2, "iterations_max": 6},
        {"state": State.QUEUED, "iterations": 6, "iterations_granted": 6, "iterations_max": 6},
        {"state": State.QUEUED, "iterations": 4, "iterations_granted": None},
        {"state": State.RUNNING, "iterations": 2, "iterations_granted": 2, "iterations_max": 6},
        {"state": State.FAILED, "iterations": 2, "iterations_granted": 2, "iterations_max": 6},
    ],
    ids=["some are left", "none can be granted", "no tier", "it runs", "it has ended"],
)
def test_every_other_job_keeps_its_message(fields: dict[str, Any] | dict[str, State | int]) -> None:
    assert message_now(job(message="writing", **fields)) == "writing"
