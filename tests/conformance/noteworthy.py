"""What a step of the state machine was about, for Hypothesis's statistics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from model_state import ModelState

from qo.event import GRANTED, LEASE_LOST, RESCHEDULED
from qo.job import State


def noteworthy(before: ModelState, model: Any) -> Iterable[str]:
    """What happened in a step that a history should have had to be worth anything."""
    after: ModelState = model.state
    new = after.events[-(after.last_event - before.last_event) :] if after.last_event > before.last_event else []
    kinds = {one.kind for one in new}
    changed = [(before.jobs.get(job.id), job) for job in after.jobs.values()]
    yield from (f"event {kind}" for kind in sorted(kinds & {GRANTED, LEASE_LOST, RESCHEDULED}))
    if any(one.state is State.STARTING and (old is None or old.token != one.token) for old, one in changed):
        yield "a job started"
    if any(one.parked and (old is None or old.parked != one.parked) for old, one in changed):
        yield "a job was parked"
    if model.open_groups():
        yield "a group was open"
    if any(job.deferred for job in after.jobs.values()):
        yield "a job was deferred"
    if any(old and old.deferred and one.state is State.QUEUED and not one.deferred for old, one in changed):
        yield "a deferred job joined"
    if "moved" in kinds and sum(old.key != one.key for old, one in changed if old is not None) > 1:
        yield "a move spread others out"
    if any(not lease.is_job and token not in before.leases for token, lease in after.leases.items()):
        yield "a caller got slots"
    if len(before.tickets) > len(after.tickets) and not kinds & {GRANTED}:
        yield "a ticket was dropped or given back"
    if any(old and old.state is State.WAITING and one.state is State.QUEUED for old, one in changed):
        yield "a phase was released"
    if before.jobs.keys() - after.jobs.keys():
        yield "a job was forgotten"
    if any(row.limit is not None and len(model.holders(name)) > row.limit for name, row in after.groups.items()):
        yield "a group was over a lowered limit"
