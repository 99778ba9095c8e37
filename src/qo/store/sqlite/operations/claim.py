"""claim: take the first jobs in line whose every group has a free slot.

Writes   slots, leases and jobs taken; lanes found blocked are put aside; overdue jobs fail
Answers  the leases, and whether a bound was reached
Events   starting; failed; those of catch_up

No scan: what is known to be blocked is not among the candidates, so the cost is that of the jobs taken
and of the lanes found blocked for the first time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from qo.policy.groups import GATES
from qo.store.row import stored_lease
from qo.store.sqlite.operations.catch_up import catch_up
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.counted_time import on_the_clock
from qo.store.sqlite.shared.hand_over import hand_over, park_lane_of
from qo.store.sqlite.shared.lease import claim_job
from qo.store.sqlite.shared.overdue import fail_overdue, give_quota_back, is_overdue
from qo.store.sqlite.shared.rows import JobRow, by_number, to_job, to_json
from qo.store.sqlite.shared.step import Step
from qo.store.sqlite.shared.suspects import Taker
from qo.store.sqlite.shared.turns import Passing
from qo.store.sqlite.shared.walk import Walk
from qo.values import Claimed, Lease, looks

_Taken = tuple[JobRow, tuple[str, ...], dict[str, int], int]
"""a job, its groups, its slots in those with a limit, and the end of its lease"""


def claim(
    step: Step,
    *,
    worker: str,
    tasks: Sequence[str],
    capacity: int,
    lease_ms: int,
    claim_id: str,
    suspects: int | None = None,
) -> Claimed:
    if known := _leases_of_claim(step, claim_id):
        return Claimed(leases=known)
    behind = catch_up(step).more
    taken: list[_Taken] = []
    overdue: list[JobRow] = []
    examined = taken_bytes = 0
    bounded = False
    taker = Taker(step, worker, suspects)
    walk = Walk(step, taker.sources(tasks), expected=capacity, passes=taker.passes)
    passing = Passing(step)
    sizes = _Sizes(step, walk)
    for candidate in walk:
        assert isinstance(candidate, JobRow)
        groups = step.groups_of(candidate)
        examined += looks(len(groups))
        assert candidate.key is not None
        if is_overdue(step, candidate):
            fail_overdue(step, candidate)
            overdue.append(candidate)
        elif (blocked_by := step.groups.first_without_room_for(groups[GATES:], candidate.key)) is not None:
            park_lane_of(step, candidate, blocked_by)
            passing.put_aside(candidate)
            walk.put_lane_aside()
        elif not taker.may_take(candidate.suspicion):
            break
        else:
            slots = claim_job(step, candidate, groups, worker=worker, claim_id=claim_id, lease_ms=lease_ms)
            taken.append((candidate, groups, slots, step.now + lease_ms))
            taken_bytes += sizes.of(candidate)
            passing.started(candidate.key, slots)
            if taker.note(candidate.suspicion):
                break
        if len(taken) == capacity:
            break
        if examined >= step.bounds.examine or taken_bytes >= step.bounds.claim_bytes:
            bounded = walk.has_more()
            break
    passing.count()
    gave_back = give_quota_back(step, overdue)
    hand_over(step)
    return Claimed(leases=_leases(step, taken), more=behind or bounded or gave_back)


class _Sizes:
    """What leases bring with them, in bytes; read for a job and those that probably follow it at once."""

    def __init__(self, step: Step, walk: Walk) -> None:
        self._step = step
        self._walk = walk
        self._known: dict[int, int] = {}

    def of(self, row: JobRow) -> int:
        if row.number not in self._known:
            wanted = to_json([row.number, *self._walk.fetched()])
            statement = (
                "SELECT number, length(payload) + ifnull(length(checkpoint), 0) FROM json_each(?) AS wanted"
                " CROSS JOIN content ON number = wanted.value"
            )
            # A claim changes no content, so none waits to be written.
            self._known.update(sql.rows(self._step.writes.connection, statement, (wanted,)))
        return self._known[row.number]


def _leases(step: Step, taken: Sequence[_Taken]) -> tuple[Lease, ...]:
    """With what is needed to run the jobs, read for all of them at once."""
    if not taken:
        return ()
    statement = (
        "SELECT number, payload, checkpoint FROM json_each(?) AS wanted CROSS JOIN content ON number = wanted.value"
    )
    found = sql.rows(step.db, statement, (to_json([row.number for row, *_ in taken]),))
    contents = {number: (payload, checkpoint) for number, payload, checkpoint in found}
    return tuple(
        stored_lease(
            row,
            read_job=partial(to_job, row, groups=groups),
            token=str(row.token),
            expires_at_ms=expires_at,
            slots=slots,
            payload=contents[row.number][0],
            checkpoint=contents[row.number][1],
            groups=len(groups),
        )
        for row, groups, slots, expires_at in taken
    )


def _leases_of_claim(step: Step, claim_id: str) -> tuple[Lease, ...]:
    rows = sql.rows(step.db, "SELECT token, job, expires_at FROM lease WHERE claim = ? ORDER BY token", (claim_id,))
    taken = []
    for token, number, expires_at in rows:
        row = by_number(step.db, number)
        taken.append((row, step.groups_of(row), step.groups.held_by(token), on_the_clock(step, expires_at)))
    return _leases(step, taken)
