"""Users and parents: usage, tiers, all jobs of a parent."""

from __future__ import annotations

from typing import Any

from qo.errors import ParentNotFound
from qo.job import Usage
from qo.service.access.refused import Refused
from qo.service.operations import Call, May, Operation
from qo.service.shapes import JobPage, Page, ParentAnswer, SetPriority, SetTier, listed
from qo.values import ParentStatus


async def usage(call: Call) -> Usage:
    if not call.sees_all and call.named["user"] != call.caller.user:
        raise Refused(404, "User not found", f"There is no user {call.named['user']!r} that this key may see.")
    return await call.queue.usage(call.named["user"])


async def set_tier(call: Call) -> Usage:
    wanted = await call.body(SetTier)
    await call.queue.set_tier(call.named["user"], wanted.tier, by=call.by)
    return await call.queue.usage(call.named["user"])


async def parent(call: Call) -> dict[str, Any]:
    found = await _own_parent(call)
    return {
        "parent": found.parent,
        "priority": found.priority,
        "jobs": [listed(job, call.caller) for job in found.jobs],
    }


async def cancel_parent(call: Call) -> Page:
    await _own_parent(call)
    cancelled = await call.queue.cancel(parent=call.named["parent"], by=call.by)
    return Page(items=[listed(job, call.caller) for job in cancelled])


async def set_parent_priority(call: Call) -> Page:
    wanted = await call.body(SetPriority)
    changed = await call.queue.set_priority(parent=call.named["parent"], priority=wanted.priority, by=call.by)
    return Page(items=[listed(job, call.caller) for job in changed])


async def _own_parent(call: Call) -> ParentStatus:
    """To a user, a parent with a job of another user does not exist."""
    found = await call.queue.parent(call.named["parent"])
    if not call.sees_all and any(job.user != call.caller.user for job in found.jobs):
        raise ParentNotFound(call.named["parent"])
    return found


OPERATIONS = (
    Operation("GET", "/api/usage/{user}", May.OWNER, usage, "Get what a user has used today.", answers=Usage),
    Operation(
        "PUT",
        "/api/users/{user}/tier",
        May.ADMIN,
        set_tier,
        "Give a user a tier.",
        SetTier,
        example={"tier": "partner"},
        answers=Usage,
    ),
    Operation("GET", "/api/parents/{parent}", May.OWNER, parent, "Get a parent and its jobs.", answers=ParentAnswer),
    Operation(
        "POST",
        "/api/parents/{parent}/cancel",
        May.OWNER_CHANGES,
        cancel_parent,
        "Cancel all unfinished jobs of a parent.",
        answers=JobPage,
    ),
    Operation(
        "PATCH",
        "/api/parents/{parent}/priority",
        May.ADMIN,
        set_parent_priority,
        "Change the priority of a parent's jobs.",
        SetPriority,
        example={"priority": "urgent"},
        answers=JobPage,
    ),
)
