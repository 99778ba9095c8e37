"""`start_by` through the front door."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import qo
from qo.job import State
from qo.queue.queue import Queue
from tests.worker.clocked import ClockedStore

NOON = 1_900_065_600_000
SECOND_MS = 1000


@pytest.fixture
def clock(queue: qo.Queue) -> ClockedStore:
    return ClockedStore(queue.store, now=NOON)


@pytest.fixture
def clocked(queue: qo.Queue, clock: ClockedStore) -> qo.Queue:
    return Queue(clock, queue.settings)


async def test_a_job_that_has_not_started_in_time_fails(clocked: qo.Queue, clock: ClockedStore) -> None:
    job = await clocked.submit("build", start_by=30)
    clock.now = NOON + 30 * SECOND_MS
    await clock.catch_up()

    failed = await clocked.get(job.id)

    assert (failed.state, failed.attempts) == (State.FAILED, 0)
    assert failed.error is not None
    assert failed.error.message == "Not started within 30 seconds"


async def test_each_of_many_has_its_own(clocked: qo.Queue, clock: ClockedStore) -> None:
    start_by = datetime.fromtimestamp(NOON / 1000, UTC) + timedelta(minutes=1)
    first, second, third = await clocked.submit_many(
        [qo.New("build", id="a", start_by=start_by), qo.New("build", id="b"), qo.New("build", start_by=5, delay=10)]
    )
    clock.now = NOON + 60 * SECOND_MS
    await clock.catch_up()

    assert isinstance(first, qo.Job)
    assert isinstance(second, qo.Job)
    assert isinstance(third, qo.SubmitRefused)
    assert [(await clocked.get(job_id)).state for job_id in "ab"] == [State.FAILED, State.QUEUED]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"start_by": 30, "delay": 30}, "start_by is 30 and delay is 30, so the job could not start in time"),
        ({"start_by": datetime(2001, 1, 1, tzinfo=UTC)}, "start_by is 2001-01-01T00:00:00+00:00, which is over"),
        ({"start_by": 60, "run_at": datetime(2090, 1, 1, tzinfo=UTC)}, "use a start_by after run_at"),
    ],
)
async def test_a_job_that_could_not_start_in_time_is_refused(
    queue: qo.Queue, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(qo.SubmitRefused) as refused:
        await queue.submit("build", id="a", **fields)

    assert said in str(refused.value)
    with pytest.raises(qo.JobNotFound):
        await queue.get("a")


async def test_why_says_until_when_it_has_to_start(clocked: qo.Queue) -> None:
    at = datetime.fromtimestamp(NOON / 1000, UTC) + timedelta(hours=1)
    await clocked.submit("build", id="a", start_by=at)

    why = await clocked.why("a")

    assert why.start_by == at
    assert why.sentence.endswith("It must start by 13:00 UTC on Monday, 18 March 2030, or it fails.")
