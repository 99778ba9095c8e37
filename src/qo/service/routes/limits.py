"""Limits: the groups, their slots and who holds them."""

from __future__ import annotations

from qo.policy.checks import shown
from qo.service.access.refused import Refused
from qo.service.changed import changed_group
from qo.service.operations import Call, May, Operation
from qo.service.shapes import GroupAnswer, Released, ReleaseQuery, SetLimit
from qo.values import GroupStatus


async def list_groups(call: Call) -> list[GroupStatus]:
    return await call.queue.limits()


async def get(call: Call) -> GroupStatus:
    return await call.queue.limit(call.named["group"])


async def put(call: Call) -> GroupAnswer:
    wanted = await call.body(SetLimit)
    await call.queue.set_limit(call.named["group"], wanted.limit, by=call.by)
    return await changed_group(call, call.named["group"])


async def delete(call: Call) -> GroupAnswer:
    await call.queue.remove_limit(call.named["group"], by=call.by)
    return await changed_group(call, call.named["group"])


async def release(call: Call) -> Released:
    query = call.query(ReleaseQuery)
    slot = call.named["slot"]
    if not slot.isascii() or not slot.isdecimal() or len(slot) > 9:
        detail = f"slot is {shown(slot)}; use the number of a slot, 0 or more."
        raise Refused(422, "Value not allowed", detail, field="slot", allowed="the number of a slot, 0 or more")
    group = call.named["group"]
    holder = await call.queue.release_slot(group, int(slot), force=query.force, by=call.by)
    return Released(holder=holder, audit_id=await call.audit_id(group))


OPERATIONS = (
    Operation(
        "GET",
        "/api/concurrency",
        May.VIEWER,
        list_groups,
        "List the groups with a limit, a pause or holders.",
        answers=list[GroupStatus],
    ),
    Operation("GET", "/api/concurrency/{group}", May.VIEWER, get, "Get a group with its slots.", answers=GroupStatus),
    Operation(
        "PUT",
        "/api/concurrency/{group}",
        May.ADMIN,
        put,
        "Limit a group.",
        SetLimit,
        example={"limit": 3},
        answers=GroupAnswer,
    ),
    Operation("DELETE", "/api/concurrency/{group}", May.ADMIN, delete, "Leave a group unlimited.", answers=GroupAnswer),
    Operation(
        "DELETE",
        "/api/concurrency/{group}/slots/{slot}",
        May.ADMIN,
        release,
        "Take a slot from its holder.",
        query=ReleaseQuery,
        answers=Released,
    ),
)
