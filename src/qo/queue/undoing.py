"""Undo: put back what a person changed a few seconds ago, unless it was changed again since.

The store decides that in the step that puts it back, so nothing can come in between.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from qo.errors import InvalidTransition, JobNotFound, UndoRefused
from qo.event import AuditEntry
from qo.job import Job, State
from qo.policy.audit import changed_since
from qo.store.contract import Store
from qo.values import Limit, Source, Unlimited

UNDO_WITHIN = timedelta(seconds=10)


async def undo(store: Store, entry: AuditEntry, *, now: datetime, by: str | None) -> None:
    """Raises `UndoRefused` when it is too late, or when there is something newer."""
    if now - entry.at > UNDO_WITHIN:
        raise UndoRefused(
            f"Entry {entry.id} is older than {UNDO_WITHIN.seconds} seconds; make the change by hand instead."
        )
    match entry.action:
        case "priority":
            await store.set_priority(entry.detail["from"], job_id=entry.subject, by=by, undoes=entry.id)
        case "move":
            await _undo_move(store, entry, by)
        case "limit":
            await _undo_limit(store, entry, by)
        case "pause" | "resume":
            await store.set_paused(entry.subject, entry.action == "resume", by=by, undoes=entry.id)
        case _:
            raise UndoRefused(
                f"Entry {entry.id} is a {entry.action}, which cannot be undone; "
                "a priority, a move, a limit, a pause and a resume can."
            )


async def _undo_move(store: Store, entry: AuditEntry, by: str | None) -> None:
    former = entry.detail["from"]
    for side in ("before", "after"):
        if await _is_beside(store, former[side], former["priority"]):
            try:
                await store.move(entry.subject, **{side: former[side]}, by=by, undoes=entry.id)
            except (InvalidTransition, JobNotFound):  # one of the two has left the line since it was looked at
                raise changed_since(entry.subject, entry.id) from None
            return
    # It was the only one of its priority, or its neighbours have gone: the priority alone decides.
    await store.set_priority(former["priority"], job_id=entry.subject, by=by, undoes=entry.id)


async def _is_beside(store: Store, job_id: str | None, priority: int) -> bool:
    """Whether a neighbour of before is still in line and has the priority that the moved job had."""
    if job_id is None:
        return False
    try:
        neighbour: Job = await store.job(job_id)
    except JobNotFound:
        return False
    return neighbour.state is State.QUEUED and neighbour.priority == priority


async def _undo_limit(store: Store, entry: AuditEntry, by: str | None) -> None:
    detail = entry.detail
    wanted: list[Limit | Unlimited] = [Unlimited(group=entry.subject)]
    if detail["from"] is not None:
        wanted.append(Limit(group=entry.subject, slots=detail["from"], source=Source(detail["from_source"])))
    await store.set_limits(wanted, by=by, undoes=entry.id)
