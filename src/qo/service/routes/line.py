"""The line: list it, move jobs in it, change their priority, pause and resume groups."""

from __future__ import annotations

from typing import Any

from qo.job import State
from qo.policy.checks import shown
from qo.service.access.refused import Refused
from qo.service.changed import changed_group
from qo.service.operations import Call, May, Operation
from qo.service.shapes import (
    GroupAnswer,
    JobAnswer,
    JobPage,
    LineQuery,
    Move,
    Page,
    PauseGroup,
    SetPriority,
    whole,
)

NEIGHBOURS = 3
"""On each side of a job."""


async def list_line(call: Call) -> Page:
    query = call.query(LineQuery)
    user = None if call.sees_all else call.caller.user
    if query.around is not None:
        return await _around(call, query.around)
    page = await call.queue.jobs_page(status=State.QUEUED, user=user, limit=query.limit, after=query.after)
    return Page(items=await call.rows(page.jobs), next=page.next)


async def _around(call: Call, job_id: str) -> Page:
    job = await call.queue.store_here.job(job_id)
    call.check_own(job)
    if job.state is not State.QUEUED:
        detail = f"Job {shown(job_id)} is {job.state}; only a job in line has neighbours."
        raise Refused(404, "Job not in line", detail)
    line = await call.queue.store_here.line(limit=NEIGHBOURS, around=job_id)
    page = await call.queue.jobs_page(ids=[job.id for job in line.jobs])
    visible = [job for job in page.jobs if call.sees_all or job.user == call.caller.user]
    return Page(items=await call.rows(visible))


async def move(call: Call) -> dict[str, Any]:
    wanted = await call.body(Move)
    moved = await call.queue.move(call.named["id"], before=wanted.before, after=wanted.after, by=call.by)
    return whole(moved, call.caller) | {"audit_id": await call.audit_id(moved.id)}


async def set_priority(call: Call) -> dict[str, Any]:
    wanted = await call.body(SetPriority)
    changed = await call.queue.set_priority(call.named["id"], wanted.priority, by=call.by)
    return whole(changed, call.caller) | {"audit_id": await call.audit_id(changed.id)}


async def pause(call: Call) -> GroupAnswer:
    wanted = await call.body(PauseGroup)
    await call.queue.pause(wanted.group, by=call.by)
    return await changed_group(call, wanted.group)


async def resume(call: Call) -> GroupAnswer:
    wanted = await call.body(PauseGroup)
    await call.queue.resume(wanted.group, by=call.by)
    return await changed_group(call, wanted.group)


OPERATIONS = (
    Operation(
        "GET",
        "/api/queue",
        May.OWNER,
        list_line,
        "List the jobs in line, in their order.",
        query=LineQuery,
        answers=JobPage,
        errors={404: "There is no such job in line that the key may see."},
    ),
    Operation(
        "PATCH",
        "/api/queue/{id}/priority",
        May.ADMIN,
        set_priority,
        "Change the priority of a job that waits.",
        SetPriority,
        example={"priority": "urgent"},
        answers=JobAnswer,
    ),
    Operation(
        "POST",
        "/api/queue/{id}/move",
        May.ADMIN,
        move,
        "Put a job before or after another one.",
        Move,
        example={"before": "order-7"},
        answers=JobAnswer,
    ),
    Operation(
        "POST",
        "/api/queue/pause",
        May.ADMIN,
        pause,
        "Let nothing more start in a group.",
        PauseGroup,
        example={"group": "provider:images"},
        answers=GroupAnswer,
    ),
    Operation(
        "POST",
        "/api/queue/resume",
        May.ADMIN,
        resume,
        "End a pause.",
        PauseGroup,
        example={"group": "provider:images"},
        answers=GroupAnswer,
    ),
)
