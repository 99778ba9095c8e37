"""advance: record what handlers report while they run.

Writes   state, stage, progress, iterations, message of jobs; checkpoints
Answers  for each, whether it is lost and whether a cancel is wanted
Events   running; stage; progress
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from qo.event import PROGRESS, STAGE
from qo.job import State, moment
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.counted_time import on_the_clock
from qo.store.sqlite.shared.lease import held_job
from qo.store.sqlite.shared.line import STATE_FIELDS
from qo.store.sqlite.shared.rows import save, to_json
from qo.store.sqlite.shared.step import Step
from qo.values import Advance, Held


def advance(step: Step, advances: Sequence[Advance]) -> list[Held]:
    return [_advance(step, item) for item in advances]


def _advance(step: Step, item: Advance) -> Held:
    row = held_job(step, item.job_id, item.token)
    if row is None:
        return Held(holder=item.job_id, token=item.token, lost=True)
    if row.state == State.STARTING:
        step.reach(row, State.RUNNING)
        step.event(row.state, row.id)
    if item.message is not None:
        row.message = item.message
    if item.stage is not None:
        if item.stage != row.stage:
            step.note_status(row, item.stage)
        row.stage = item.stage
        step.event(STAGE, row.id, {"stage": item.stage, "message": item.message})
    if item.progress is not None:
        row.progress = to_json(item.progress)
        step.event(PROGRESS, row.id, msgspec.structs.asdict(item.progress))
    if item.iteration is not None:
        row.iterations = max(row.iterations, item.iteration)
    save(step.writes, row, *STATE_FIELDS, "message", "stage", "progress", "iterations")
    if item.checkpoint is not None:
        step.db.execute("UPDATE content SET checkpoint = ? WHERE number = ?", (item.checkpoint, row.number))
    expires_at = sql.value(step.db, "SELECT expires_at FROM lease WHERE token = ?", (row.token,))
    return Held(
        holder=item.job_id,
        token=item.token,
        cancel_wanted=bool(row.cancel_wanted),
        expires_at=moment(on_the_clock(step, expires_at)),
    )
