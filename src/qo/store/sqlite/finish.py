"""finish: end leases with their outcomes.

Writes   jobs, freed slots, closed groups, results, averages; released phases join the line
Answers  for each, what the job became, or that the token is stale
Events   the new state of each job

The precondition is the lease: a job that is not held under this token is not changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from qo.job import State
from qo.store.sqlite import sql
from qo.store.sqlite.hand_over import hand_over
from qo.store.sqlite.lease import RELEASE_FIELDS, end_job, end_lease, held_job
from qo.store.sqlite.line import LINE_FIELDS, come_back, give_up_place, join_in_order
from qo.store.sqlite.observe import move_average
from qo.store.sqlite.rows import JobRow, find, save, to_json
from qo.store.sqlite.step import Step
from qo.store.values import Finished, Outcome

ENDED_FIELDS = ("ended_token", "ended_state")
_PASSES_THROUGH_RUNNING = (State.SUCCEEDED, State.CONFIRMING)
_GIVES_WAY_TO_CANCEL = (State.SCHEDULED, State.QUEUED, State.CONFIRMING)


def finish(step: Step, outcomes: Sequence[Outcome]) -> list[Finished]:
    handed_back: list[JobRow] = []
    released: list[JobRow] = []
    answers = [_finish(step, outcome, handed_back, released) for outcome in outcomes]
    for row in handed_back:
        come_back(step, row, "handed_back")
        save(step.db, row, *LINE_FIELDS, "attempts", "started_at", "message")
    join_in_order(step, released, due_at=step.now)
    hand_over(step)
    return answers


def _finish(step: Step, outcome: Outcome, handed_back: list[JobRow], released: list[JobRow]) -> Finished:
    row = held_job(step, outcome.job_id, outcome.token)
    if row is None:
        return _finished_before(step, outcome)
    assert row.token is not None
    end_lease(step, row.token)
    for name, until in outcome.closed.items():
        group = step.groups.get(name)
        group.closed_until = until
        step.groups.store(group)
    state = _state_after(row, outcome)
    if row.state == State.STARTING and state in _PASSES_THROUGH_RUNNING:
        row.state = State.RUNNING
        step.event(row.state, row.id)
    if outcome.message is not None:
        row.message = outcome.message
    row.ended_token = row.token
    row.ended_state = state
    if state is State.QUEUED:
        _hand_back(row)
        # At once, because the same call may finish with this token again.
        save(step.db, row, *ENDED_FIELDS, *RELEASE_FIELDS)
        handed_back.append(row)
    elif state is State.SCHEDULED:
        _schedule_retry(step, row, outcome)
    elif state is State.CONFIRMING:
        _ask_for_confirmation(step, row, outcome)
    else:
        _end(step, row, state, outcome, released)
    return Finished(job_id=row.id, token=outcome.token, state=state)


def _finished_before(step: Step, outcome: Outcome) -> Finished:
    ended = sql.row(step.db, "SELECT ended_token, ended_state FROM job WHERE id = ?", (outcome.job_id,))
    if ended is not None and ended[0] is not None and str(ended[0]) == outcome.token:
        return Finished(job_id=outcome.job_id, token=outcome.token, state=State(ended[1]))
    return Finished(job_id=outcome.job_id, token=outcome.token, lost=True)


def _state_after(row: JobRow, outcome: Outcome) -> State:
    if row.cancel_wanted and outcome.state in _GIVES_WAY_TO_CANCEL:
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
    row.state = state
    row.worker = row.token = None


def _schedule_retry(step: Step, row: JobRow, outcome: Outcome) -> None:
    assert row.started_at is not None
    _leave_worker(step, row, State.SCHEDULED)
    row.run_at = row.due_at = outcome.retry_at_ms
    row.error = None if outcome.error is None else to_json(outcome.error)
    save(step.db, row, "state", "key", *RELEASE_FIELDS, *ENDED_FIELDS, "run_at", "due_at", "error", "message")
    step.figure("ended:scheduled", step.now - row.started_at)
    step.event(row.state, row.id, {"run_at": row.run_at})


def _ask_for_confirmation(step: Step, row: JobRow, outcome: Outcome) -> None:
    _leave_worker(step, row, State.CONFIRMING)
    row.message = outcome.message
    row.confirming_at = step.now
    row.reminded = 0
    save(step.db, row, "state", "key", *RELEASE_FIELDS, *ENDED_FIELDS, "confirming_at", "reminded", "message")
    step.event(row.state, row.id, {"message": row.message})


def _end(step: Step, row: JobRow, state: State, outcome: Outcome, released: list[JobRow]) -> None:
    end_job(step, row, state, error=outcome.error if state is State.FAILED else None)
    if state is not State.SUCCEEDED:
        return
    if outcome.result is not None:
        step.db.execute("UPDATE content SET result = ? WHERE number = ?", (outcome.result, row.number))
    assert row.started_at is not None
    for average in outcome.averages:
        move_average(step, average, (step.now - row.started_at) / 1000)
    if row.phase is not None:
        following = find(
            step.db, "parent = ? AND phase = ? AND state = 'waiting' AND due_at IS NULL", (row.parent, row.phase + 1)
        )
        if following is not None:
            _release_phase(step, following, released)


def _release_phase(step: Step, row: JobRow, released: list[JobRow]) -> None:
    if row.run_at is not None and row.run_at > step.now:
        row.due_at = row.run_at
        save(step.db, row, "due_at")
    else:
        released.append(row)
