"""What a worker says in its log of the jobs it runs."""

from __future__ import annotations

import logging
import re

import pytest

import qo
from qo.job import Job, State, moment
from qo.values import Finished, Lease, Outcome
from qo.worker.log import log_end, log_start
from tests.worker.running import run_one, running, state_is

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
    ("proposed", "decided", "words"),
    [
        (State.SUCCEEDED, State.SUCCEEDED, "succeeded"),
        (State.FAILED, State.FAILED, "failed"),
        (State.CONFIRMING, State.CONFIRMING, "confirming"),
        (State.CANCELLED, State.CANCELLED, "cancelled"),
        (State.QUEUED, State.QUEUED, "handed back to its place"),
        (State.SCHEDULED, State.FAILED, "failed, all its attempts are used"),
        (State.SCHEDULED, State.CANCELLED, "cancelled"),
        (State.QUEUED, State.CANCELLED, "cancelled"),
    ],
)
def test_an_end_is_logged_as_the_store_decided_it(
    caplog: pytest.LogCaptureFixture, proposed: State, decided: State, words: str
) -> None:
    outcome = Outcome(job_id="01J", token="7", state=proposed, retry_after_ms=0)
    with caplog.at_level(logging.INFO, logger="qo.worker"):
        log_end("build", outcome, Finished(job_id="01J", token="7", state=decided))

    assert caplog.messages == [f"build 01J: {words}"]


def test_a_failure_that_is_tried_again_says_when(caplog: pytest.LogCaptureFixture) -> None:
    outcome = Outcome(job_id="01J", token="7", state=State.SCHEDULED, retry_after_ms=60_000)

    with caplog.at_level(logging.INFO, logger="qo.worker"):
        log_end("build", outcome, Finished(job_id="01J", token="7", state=State.SCHEDULED))

    assert caplog.messages == ["build 01J: failed, to be tried again in 1m 0s"]


def test_an_outcome_that_came_too_late_is_logged_as_refused(caplog: pytest.LogCaptureFixture) -> None:
    outcome = Outcome(job_id="01J", token="7", state=State.SUCCEEDED)

    log_end("build", outcome, Finished(job_id="01J", token="7", lost=True))

    assert caplog.messages == ["the result of build 01J was refused: its lease 7 was given away"]


# --- on a store -------------------------------------------------------------------------------------------------


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="qo")
    return caplog


async def test_a_job_that_failed_for_good_is_not_said_to_be_tried_again(
    queue: qo.Queue, worker: qo.Worker, logged: pytest.LogCaptureFixture
) -> None:
    @worker.task("build", max_attempts=2)
    def build() -> None:
        raise ValueError("broken")

    job = await run_one(queue, worker, "build")
    async with running(worker):
        await state_is(queue, job.id, State.FAILED)

    ends = [text for text in logged.messages if text.startswith(f"build {job.id}: ")]
    assert ends == [
        f"build {job.id}: failed, to be tried again in 0.0s",
        f"build {job.id}: failed, all its attempts are used",
    ]


@pytest.mark.parametrize(
    ("error", "level", "line"),
    [
        (qo.Retry("The API is busy.", after=60), "INFO", "asked to be tried again (debug_id {id}): The API is busy."),
        (qo.Fail("No such page."), "WARNING", "failed (debug_id {id}): No such page."),
        (qo.Fail("Two\nlines."), "WARNING", "failed (debug_id {id}): Two lines."),
    ],
    ids=["retry", "fail", "two lines"],
)
async def test_what_the_handler_asked_for_is_a_line_and_no_traceback(
    queue: qo.Queue,
    worker: qo.Worker,
    logged: pytest.LogCaptureFixture,
    error: Exception,
    level: str,
    line: str,
) -> None:
    @worker.task("build")
    def build() -> None:
        raise error

    job = await run_one(queue, worker, "build")

    assert job.error is not None
    lines = [record for record in logged.records if str(job.error.debug_id) in record.getMessage()]
    expected = f"build {job.id} {line.format(id=job.error.debug_id)}"
    assert [(record.levelname, record.getMessage()) for record in lines] == [(level, expected)]
    assert "Traceback" not in logged.text


async def test_the_iteration_cap_is_a_line_and_no_traceback(
    queue: qo.Queue, worker: qo.Worker, logged: pytest.LogCaptureFixture
) -> None:
    @worker.task("improve")
    async def improve(data: object, ctx: qo.Context) -> None:
        async for _ in ctx.iterations():
            pass

    job = await run_one(queue, worker, "improve", user="ada", tier="bootstrapper")
    for _ in range(2):
        await queue.confirm(job.id)
        await worker.run_until_idle()
    ended = await queue.get(job.id)

    assert ended.error is not None
    line = f"improve {job.id} failed (debug_id {ended.error.debug_id}): All 6 iterations are used up."
    assert [record.levelname for record in logged.records if record.getMessage() == line] == ["WARNING"]
    assert "Traceback" not in logged.text


async def test_what_led_to_a_request_is_in_its_line(
    queue: qo.Queue, worker: qo.Worker, logged: pytest.LogCaptureFixture
) -> None:
    @worker.task("build")
    def build() -> None:
        try:
            raise ConnectionError("reset by peer")
        except ConnectionError as error:
            raise qo.Retry("The API is away.") from error

    job = await run_one(queue, worker, "build")

    line = r"asked to be tried again .*: The API is away. \(because of ConnectionError: reset by peer\)$"
    assert [text for text in logged.messages if re.search(line, text)], (job.id, logged.messages)


async def test_every_other_error_keeps_its_traceback(
    queue: qo.Queue, worker: qo.Worker, logged: pytest.LogCaptureFixture
) -> None:
    @worker.task("build", max_attempts=1)
    def build() -> None:
        raise ValueError("broken")

    await run_one(queue, worker, "build")

    assert "Traceback" in logged.text
