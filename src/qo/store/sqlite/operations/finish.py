"""finish: end leases with their outcomes.

Writes   jobs, freed slots, closed groups, results, averages; released phases join the line
Answers  for each, what the job became, or that the token is stale
Events   the new state of each job

The precondition is the lease: a job that is not held under this token is not changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from qo.job import State
from qo.policy.lifecycle import GIVES_WAY_TO_CANCEL, PASSES_THROUGH_RUNNING
from qo.store.sqlite.operations.observe import move_averages
from qo.store.sqlite.shared.counted_time import steady_now
from qo.store.sqlite.shared.hand_over import hand_over
from qo.store.sqlite.shared.lease import RELEASE_FIELDS, end_job, end_leases, is_held, note_attempt
from qo.store.sqlite.shared.line import LINE_FIELDS, STATE_FIELDS, come_back, give_up_place, in_joining_order, join_all
from qo.store.sqlite.shared.overdue import note_start_by
from qo.store.sqlite.shared.rows import JobRow, find, save, select, to_json
from qo.store.sqlite.shared.step import Step
from qo.store.sqlite.shared.suspects import clear
from qo.values import Average, Finished, Outcome

ENDED_FIELDS = ("ended_token", "ended_state")
WAIT_FIELDS = ("run_at", "due_at", "steady_at")


class _Ended(msgspec.Struct):
    """What the outcomes leave to be done when all have been looked at."""

    slots: dict[int, dict[str, int]]
    """By token, what the leases held in groups with a limit."""
    observations: list[tuple[Average, float]] = []
    handed_back: list[JobRow] = []
    released: list[JobRow] = []


def finish(step: Step, outcomes: Sequence[Outcome]) -> list[Finished]:
    rows = _rows(step, outcomes)
    ended = _Ended(slots=end_leases(step, _tokens(outcomes, rows)))
    answers = [_finish(step, outcome, rows.get(outcome.job_id), ended) for outcome in outcomes]
    move_averages(step, ended.observations)
    for row in ended.handed_back:
        come_back(step, row, "handed_back")
        save(step.writes, row, *LINE_FIELDS, *ENDED_FIELDS, *RELEASE_FIELDS, "attempts", "started_at", "message")
        note_start_by(step, row)
    join_all(step, in_joining_order(ended.released))
    hand_over(step)
    return answers


def _rows(step: Step, outcomes: Sequence[Outcome]) -> dict[str, JobRow]:
    """The jobs by id. Each is read once, so that a second outcome of the same job finds what the first made of it."""
    wanted = to_json([outcome.job_id for outcome in outcomes])
    return {row.id: row for row in select(step.db, "id IN (SELECT value FROM json_each(?))", (wanted,))}


def _tokens(outcomes: Sequence[Outcome], rows: Mapping[str, JobRow]) -> list[int]:
    """Of those leases that the outcomes end."""
    held = (
        rows[outcome.job_id]
        for outcome in outcomes
        if outcome.job_id in rows and is_held(rows[outcome.job_id], outcome.token)
    )
    return list(dict.fromkeys(row.token for row in held if row.token is not None))


def _finish(step: Step, outcome: Outcome, row: JobRow | None, ended: _Ended) -> Finished:
    if row is None or not is_held(row, outcome.token):
        return _finished_before(row, outcome)
    assert row.token is not None
    for name, closed_ms in outcome.closed.items():
        group = step.groups.get(name)
        group.closed_until = steady_now(step) + closed_ms
        step.groups.store(group)
    state = _state_after(row, outcome)
    if row.state == State.STARTING and state in PASSES_THROUGH_RUNNING:
        step.reach(row, State.RUNNING)
        step.event(row.state, row.id)
    if state is not State.QUEUED:
        note_attempt(step, row, state, ended.slots.get(row.token, {}), error=outcome.error)
    if outcome.message is not None:
        row.message = outcome.message
    row.ended_token = row.token
    row.ended_state = state
    clear(step, row)
    if state is State.QUEUED:
        _hand_back(row)
        ended.handed_back.append(row)
    elif state is State.SCHEDULED:
        _schedule_retry(step, row, outcome)
    elif state is State.CONFIRMING:
        _ask_for_confirmation(step, row, outcome)
    else:
        _end(step, row, state, outcome, ended)
    return Finished(job_id=row.id, token=outcome.token, state=state)


def _finished_before(row: JobRow | None, outcome: Outcome) -> Finished:
    if row is not None and row.ended_state is not None and str(row.ended_token) == outcome.token:
        return Finished(job_id=outcome.job_id, token=outcome.token, state=State(row.ended_state))
    return Finished(job_id=outcome.job_id, token=outcome.token, lost=True)


def _state_after(row: JobRow, outcome: Outcome) -> State:
    if row.cancel_wanted and outcome.state in GIVES_WAY_TO_CANCEL:
        return State.CANCELLED
    if outcome.state is State.SCHEDULED and row.attempts >= (row.max_attempts or 0):
        return State.FAILED
    return outcome.state


def _hand_back(row: JobRow) -> None:
    row.worker = row.token = None
    row.attempts -= 1
    if row.attempts == 0:
        row.started_at = None


def _leave_worker(step: Step, row: JobRow, state: State) -> None:
    give_up_place(step, row)
    step.reach(row, state)
    row.worker = row.token = None


def _schedule_retry(step: Step, row: JobRow, outcome: Outcome) -> None:
    assert row.started_at is not None
    _leave_worker(step, row, State.SCHEDULED)
    assert outcome.retry_after_ms is not None
    row.run_at = step.now + outcome.retry_after_ms
    row.due_at = row.steady_at = steady_now(step) + outcome.retry_after_ms
    row.error = None if outcome.error is None else to_json(outcome.error)
    save(step.writes, row, *STATE_FIELDS, "key", *RELEASE_FIELDS, *ENDED_FIELDS, *WAIT_FIELDS, "error", "message")
    step.figure("ended:scheduled", step.now - row.started_at)
    step.event(row.state, row.id, {"run_at": row.run_at})


def _ask_for_confirmation(step: Step, row: JobRow, outcome: Outcome) -> None:
    _leave_worker(step, row, State.CONFIRMING)
    row.message = outcome.message
    row.confirming_at = step.now
    row.reminded = 0
    waits_for = ("confirming_at", "reminded", "message")
    save(step.writes, row, *STATE_FIELDS, "key", *RELEASE_FIELDS, *ENDED_FIELDS, *waits_for)
    step.event(row.state, row.id, {"message": row.message})


def _end(step: Step, row: JobRow, state: State, outcome: Outcome, ended: _Ended) -> None:
    end_job(step, row, state, error=outcome.error if state is State.FAILED else None)
    if state is not State.SUCCEEDED:
        return
    if outcome.result is not None:
        step.writes.add("content", "UPDATE content SET result = ? WHERE number = ?", (outcome.result, row.number))
    assert row.started_at is not None
    ran = (step.now - row.started_at) / 1000
    ended.observations += ((average, ran) for average in outcome.averages)
    if row.phase is not None:
        following = find(
            step.db, "parent = ? AND phase = ? AND state = 'waiting' AND due_at IS NULL", (row.parent, row.phase + 1)
        )
        if following is not None:
            _release_phase(step, following, ended)


def _release_phase(step: Step, row: JobRow, ended: _Ended) -> None:
    due_at, now = (row.run_at, step.now) if row.steady_at is None else (row.steady_at, steady_now(step))
    if due_at is not None and due_at > now:
        row.due_at = due_at
        save(step.writes, row, "due_at")
    else:
        ended.released.append(row)
