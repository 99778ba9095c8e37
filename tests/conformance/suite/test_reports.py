"""What a worker reports of a job that it holds: stage, progress, checkpoint, result, failure, or handing it back."""

from __future__ import annotations

import pytest

from qo.job import JobError, Progress, State, moment
from qo.store.contract import Store
from qo.values import Advance
from tests.conformance.suite.harness import (
    BROKEN,
    LEASE,
    NOW,
    at,
    claim,
    events_of,
    fail,
    hand_back,
    kinds_of,
    retry_later,
    run,
    start,
    state,
    submit,
    succeed,
)

pytestmark = pytest.mark.small_bounds


# --- what handlers report ---------------------------------------------------------------------------------------


async def test_the_first_report_makes_a_starting_job_running(store: Store) -> None:
    lease = await start(store, "a")

    await run(store, lease)
    await run(store, lease)

    assert await state(store, "a") is State.RUNNING
    assert await kinds_of(store, "a") == ["queued", "starting", "running"]


async def test_stage_progress_message_iteration_and_checkpoint_are_kept(store: Store) -> None:
    lease = await start(store, "a")

    await run(store, lease, stage="code", message="writing", iteration=2, checkpoint=b'{"at":2}')
    await run(store, lease, progress=Progress(3, 10, "files"))

    job = await store.job("a")
    assert (job.status, job.stage, job.message, job.iterations) == ("code", "code", "writing", 2)
    assert job.progress == Progress(3, 10, "files")
    assert await store.payload("a") == (b"null", b'{"at":2}')
    assert (await events_of(store, "a"))[2:] == [
        ("running", {}),
        ("stage", {"stage": "code", "message": "writing"}),
        ("progress", {"done": 3, "total": 10, "text": "files"}),
    ]


async def test_a_report_leaves_alone_what_it_does_not_name(store: Store) -> None:
    lease = await start(store, "a")
    await run(store, lease, stage="code", message="m", iteration=3, checkpoint=b"1", progress=Progress(1))

    await run(store, lease)

    job = await store.job("a")
    assert (job.stage, job.message, job.iterations, job.progress) == ("code", "m", 3, Progress(1))
    assert (await store.payload("a"))[1] == b"1"


async def test_a_smaller_iteration_changes_nothing(store: Store) -> None:
    lease = await start(store, "a")
    await run(store, lease, iteration=4)

    await run(store, lease, iteration=2)

    assert (await store.job("a")).iterations == 4


async def test_a_report_is_answered_with_whether_a_cancel_is_wanted(store: Store) -> None:
    lease = await start(store, "a")
    advance = Advance(job_id="a", token=lease.token)

    (before,) = await at(store, NOW).advance([advance])
    await at(store, NOW).cancel(job_id="a")
    (after,) = await at(store, NOW).advance([advance])

    assert (before.cancel_wanted, after.cancel_wanted) == (False, True)
    assert (after.lost, after.holder, after.expires_at) == (False, "a", moment(NOW + LEASE))


async def test_a_new_attempt_resumes_from_the_checkpoint_with_stage_and_progress_cleared(store: Store) -> None:
    await submit(store, "a")
    (lease,) = await claim(store)
    await run(store, lease, stage="code", message="m", iteration=1, checkpoint=b"[7]", progress=Progress(1))
    await hand_back(store, lease)

    (again,) = await claim(store)

    assert again.checkpoint == b"[7]"
    assert (again.job.stage, again.job.progress, again.job.message) == (None, None, None)
    assert (again.job.iterations, again.job.attempts) == (1, 1)


# --- ending -----------------------------------------------------------------------------------------------------


async def test_a_result_is_kept_and_an_earlier_error_goes(store: Store) -> None:
    await submit(store, "a")
    (first,) = await claim(store)
    await retry_later(store, first, at=NOW + 1)
    in_between = (await store.job("a")).error
    (second,) = await claim(store, now=NOW + 1)

    await succeed(store, second, now=NOW + 5)

    job = await store.job("a")
    assert in_between == BROKEN
    assert (job.state, job.result, job.error, job.finished_at) == (State.SUCCEEDED, 1, None, moment(NOW + 5))
    assert (job.worker, job.token) == ("w1", second.token)


async def test_a_failure_keeps_its_error_in_full(store: Store) -> None:
    lease = await start(store, "a")
    error = JobError(message="The API refused.", detail="429 at …", debug_id="d-1")

    await fail(store, lease, error=error)

    assert (await store.job("a")).error == error


async def test_being_handed_back_costs_no_attempt(store: Store) -> None:
    await submit(store, "a", max_attempts=1)
    for _ in range(5):
        (lease,) = await claim(store)
        assert (await hand_back(store, lease)).state is State.QUEUED

    job = await store.job("a")
    assert (job.attempts, job.started_at, job.state) == (0, None, State.QUEUED)


async def test_a_job_handed_back_after_an_earlier_attempt_has_still_started_once(store: Store) -> None:
    await submit(store, "a")
    (first,) = await claim(store)
    await retry_later(store, first, at=NOW + 1)
    (second,) = await claim(store, now=NOW + 1)

    await hand_back(store, second, now=NOW + 2)

    job = await store.job("a")
    assert (job.attempts, job.started_at) == (1, moment(NOW + 1))
