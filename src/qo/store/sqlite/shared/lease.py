"""Leases: take one with a slot in every group that records its holders, and end it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from qo.event import LEASE_LOST
from qo.job import HELD, LOST, REVOKED, JobError, State
from qo.policy.figures import PROMISE_KEPT, PROMISE_MISSED, wait_bucket
from qo.policy.groups import is_always_counted, kind_of
from qo.policy.job_history import is_kept, made_at, with_attempt
from qo.store.sqlite.shared.counted_time import counted_now
from qo.store.sqlite.shared.line import LINE_FIELDS, STATE_FIELDS, come_back, give_up_place, leave
from qo.store.sqlite.shared.rows import JobRow, by_number, find, save, to_json
from qo.store.sqlite.shared.sql import Insert
from qo.store.sqlite.shared.step import Step
from qo.store.sqlite.shared.suspects import clear, keep_in_mind, suspect

RELEASE_FIELDS = ("worker", "token", "cancel_wanted", "past_attempts")
CLAIM_FIELDS = (
    *STATE_FIELDS,
    "lane",
    "aged_at",
    "attempts",
    "max_attempts",
    "started_at",
    "token",
    "worker",
    "stage",
    "progress",
    "message",
)
INSERT_LEASE = Insert("lease", columns=8)
RAN_OUT = "expired"
"""The reason of a lease that was not revoked."""
FIRST_FIELDS = ("first", "parked")
END_FIELDS = (
    *STATE_FIELDS,
    "past_attempts",
    "key",
    "finished_at",
    "cancel_wanted",
    "error",
    "message",
    "ended_token",
    "ended_state",
)
WAITING_FIELDS = ("lane", "first", "parked", "aged_at", "due_at", "confirming_at", "deferred")
"""Fields that are set only while a job waits. Each has an index, which the end of a run need not touch."""


def take_slots(step: Step, groups: Iterable[str], token: int, *, task: str | None, waited_ms: int) -> dict[str, int]:
    """Take one slot in each of these groups, which must have room. Returns the numbers in groups with a limit."""
    taken = {}
    for name in groups:
        limited = step.groups.get(name).limit is not None
        if limited or task is None or is_always_counted(name, task):
            number = step.groups.take(name, token)
            if limited:
                taken[name] = number
                step.figure(f"acquired:{kind_of(name)}:{wait_bucket(waited_ms)}", waited_ms)
    return taken


def claim_job(
    step: Step, row: JobRow, groups: tuple[str, ...], *, worker: str, claim_id: str, lease_ms: int
) -> dict[str, int]:
    """Take a job that can start out of the line, with a lease and all its slots."""
    token = step.draw_token()
    assert row.joined_at is not None
    waited_ms = step.now - row.joined_at
    slots = take_slots(step, groups, token, task=row.task, waited_ms=waited_ms)
    # Named only where they were set: most jobs of a lane are not its first one when the claim reads them.
    indexed = FIRST_FIELDS if row.first else ()
    leave(step, row)
    step.reach(row, State.STARTING)
    if row.promise is not None and row.started_at is None:
        _count_promise(step, row.promise)
    row.attempts += 1
    row.max_attempts = row.max_attempts or step.max_attempts_of(row.task)
    row.started_at = step.now
    row.token = token
    row.worker = worker
    row.stage = row.progress = row.message = None
    save(step.writes, row, *CLAIM_FIELDS, *indexed)
    step.writes.add(
        "lease",
        INSERT_LEASE,
        (token, row.id, row.number, row.task, row.priority, worker, claim_id, counted_now(step) + lease_ms),
    )
    step.figure(f"wait:{row.priority}", waited_ms)
    step.event(row.state, row.id, {"worker": worker, "attempt": row.attempts})
    return slots


def held_job(step: Step, job_id: str, token: str) -> JobRow | None:
    """The job, if this token holds it; otherwise None. A job is held exactly as long as its lease exists."""
    row = find(step.db, "id = ?", (job_id,))
    return row if row is not None and is_held(row, token) else None


def is_held(row: JobRow, token: str) -> bool:
    return row.state in HELD and str(row.token) == token


def end_leases(step: Step, tokens: Sequence[int]) -> dict[int, dict[str, int]]:
    """Free the slots and delete the leases. Returns the slots of each in groups with a limit. The jobs stay as they
    are; the caller changes them."""
    if not tokens:
        return {}
    freed = step.groups.free(tokens)
    step.db.execute("DELETE FROM lease WHERE token IN (SELECT value FROM json_each(?))", (to_json(tokens),))
    return freed


def note_attempt(
    step: Step, row: JobRow, outcome: str, slots: Mapping[str, int], *, error: JobError | None = None
) -> None:
    """Note that the run of a job is over. The caller saves the row."""
    assert row.worker is not None
    assert row.started_at is not None
    row.past_attempts = with_attempt(
        row.past_attempts,
        number=row.attempts,
        worker=row.worker,
        slots=slots,
        started_ms=row.started_at,
        ended_ms=step.now,
        outcome=outcome,
        debug_id=None if error is None else error.debug_id,
    )


def _count_promise(step: Step, promise: str) -> None:
    after_ms = step.now - made_at(promise)
    step.figure(PROMISE_KEPT if is_kept(promise, step.now) else PROMISE_MISSED, after_ms)


def lose_leases(step: Step, leases: Sequence[tuple[int, str, int | None]], reason: str) -> list[str]:
    """End leases (token, holder, job number) that ran out or were revoked, and return the ids of their jobs.

    All slots are freed before the first job joins the line again, so that no job is parked because of another one.
    """
    coming_back = []
    ids = []
    ran_out = reason == RAN_OUT
    tokens = [token for token, _, _ in leases]
    slots = end_leases(step, tokens)
    for token, holder, number in leases:
        freed = {"groups": sorted(slots[token])} if token in slots else {}
        step.event(LEASE_LOST, holder, {"token": str(token), "reason": reason, **freed})
        if number is not None:
            row = by_number(step.db, number)
            ids.append(row.id)
            note_attempt(step, row, LOST if ran_out else REVOKED, slots.get(token, {}))
            if row.cancel_wanted:
                end_job(step, row, State.CANCELLED)
            elif row.attempts >= (row.max_attempts or 0):
                message = f"The worker stopped responding, and all {row.max_attempts} attempts are used."
                end_job(step, row, State.FAILED, error=JobError(message=message))
                if ran_out:
                    keep_in_mind(step, row)
            else:
                coming_back.append(row)
    for row in coming_back:
        row.worker = row.token = None
        if ran_out:
            suspect(step, row)
        else:
            clear(step, row)
        come_back(step, row, reason)
        save(step.writes, row, *LINE_FIELDS, *RELEASE_FIELDS)
    return ids


def end_job(step: Step, row: JobRow, state: State, *, error: JobError | None = None) -> None:
    """End a job as succeeded, failed or cancelled, from any state. Its lease must have ended before."""
    was_held = row.state in HELD
    if row.state == State.QUEUED:
        leave(step, row)
    give_up_place(step, row)
    clear(step, row)
    step.reach(row, state)
    row.finished_at = step.now
    row.due_at = row.confirming_at = None
    row.deferred = row.cancel_wanted = False
    if state is not State.CANCELLED:
        row.error = None if error is None else to_json(error)
    if row.has_contact:
        step.writes.add("content", "UPDATE content SET contact = NULL WHERE number = ?", (row.number,))
        row.has_contact = False
        save(step.writes, row, "has_contact")
    save(step.writes, row, *END_FIELDS, *(() if was_held else WAITING_FIELDS))
    ran_ms = step.now - row.started_at if was_held and row.started_at is not None else 0
    step.figure(f"ended:{state}", ran_ms)
    if state is State.FAILED:
        step.event(state, row.id, {"message": None if error is None else error.message})
    elif state is State.CANCELLED:
        step.event(state, row.id, {"message": row.message})
    else:
        step.event(state, row.id)
