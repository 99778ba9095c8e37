"""A job's row is described once, and every field of a job that a store fills comes from it."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from qo.job import Job, JobError, JobHistory, Progress, Reached, State
from qo.store.redis.rows import JobRow as RedisRow
from qo.store.row import JobFields, stored_job
from qo.store.sqlite.shared.rows import JobRow as SQLiteRow

FILLED_BY_THE_QUEUE = {"position_message", "upgrade", "usage", "estimate"}
WHOLE = JobFields(
    id="j1",
    task="build",
    state="running",
    priority=20,
    submitted_at=1_000,
    stage="compiling",
    user="ada",
    project="site",
    tier="partner",
    parent="107",
    phase=2,
    unique_key="key",
    joined_at=2_000,
    position_original=3,
    run_at=4_000,
    deferred=True,
    attempts=1,
    max_attempts=5,
    timeout_ms=2_500,
    iterations=6,
    iterations_batch=7,
    iterations_granted=8,
    iterations_max=9,
    worker="worker-1",
    cancel_wanted=True,
    progress='{"done":1,"total":2}',
    error='{"message":"no"}',
    message="soon",
    started_at=5_000,
    confirming_at=6_000,
    finished_at=7_000,
    displaced="moved",
    states="1000 queued",
    trace="00-1-2-01",
)
IN_LINE_ONLY = {"key"}
"""A job that is held keeps its order key to itself."""


def test_a_job_is_read_from_its_row() -> None:
    job = stored_job(
        WHOLE, groups=("global", "build"), token="77", position=4, result=b'{"ok":true}', with_history=True
    )

    assert job == Job(
        id="j1",
        task="build",
        state=State.RUNNING,
        status="compiling",
        priority=20,
        groups=("global", "build"),
        submitted_at=datetime.fromtimestamp(1, UTC),
        attempts=1,
        max_attempts=5,
        stage="compiling",
        tier="partner",
        user="ada",
        project="site",
        parent="107",
        phase=2,
        unique="key",
        position=4,
        position_original=3,
        displaced="moved",
        iterations=6,
        iterations_batch=7,
        iterations_granted=8,
        iterations_max=9,
        progress=Progress(done=1, total=2),
        result={"ok": True},
        error=JobError(message="no"),
        message="soon",
        worker="worker-1",
        token="77",
        timeout_seconds=2.5,
        cancel_wanted=True,
        run_at=datetime.fromtimestamp(4, UTC),
        deferred=True,
        joined_at=datetime.fromtimestamp(2, UTC),
        started_at=datetime.fromtimestamp(5, UTC),
        confirmation_required_at=datetime.fromtimestamp(6, UTC),
        finished_at=datetime.fromtimestamp(7, UTC),
        trace="00-1-2-01",
        history=JobHistory(states=(Reached("queued", datetime.fromtimestamp(1, UTC)),)),
    )


def test_a_store_fills_every_field_of_a_job_that_the_queue_does_not() -> None:
    job = stored_job(WHOLE, groups=("global",), token="77", position=4, result=b"1", with_history=True)
    defaults = {field.name: field.default for field in msgspec.structs.fields(Job)}

    unfilled = {name for name, default in defaults.items() if getattr(job, name) == default}

    assert unfilled == FILLED_BY_THE_QUEUE | IN_LINE_ONLY


def test_a_new_job_has_the_defaults_of_the_description_in_every_store() -> None:
    for row_class in (SQLiteRow, RedisRow):
        row = row_class(id="j1", task="build", state="waiting", priority=50, submitted_at=1)
        described = JobFields(id="j1", task="build", state="waiting", priority=50, submitted_at=1)

        for field in JobFields.__struct_fields__:
            assert getattr(row, field) == getattr(described, field)
