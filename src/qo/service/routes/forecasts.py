"""What may happen: the start of a job not yet submitted, other limits and workers, the slots of a group over time."""

from __future__ import annotations

from typing import Any

import msgspec

from qo.errors import InvalidValue
from qo.job import in_whole_seconds
from qo.policy.checks import shown
from qo.policy.estimates.newcomer import NewEstimate
from qo.policy.estimates.timeline import Timeline
from qo.policy.estimates.what_if import Variant, Waits, WhatIf
from qo.service.access.caller import Role
from qo.service.access.refused import Refused
from qo.service.operations import Call, May, Operation
from qo.service.shapes import EstimateQuery, WhatIfBody, WhatIfVariants
from qo.service.submitting import limit_user, tier_of_caller

MOST_WAITING = 4
"""How many calls of what-if are under way, of which one is worked out at a time. Each takes about a second where five
variants of a line of 10,000 jobs are asked for."""
OF_A_VARIANT = Variant.__struct_fields__
OF_USERS = ("task", "priority", "user")


async def estimate(call: Call) -> dict[str, Any]:
    query = call.query(EstimateQuery)
    values = {name: value for name, value in msgspec.structs.asdict(query).items() if value not in (None, ())}
    if (priority := values.get("priority", "")).isdecimal():
        values["priority"] = int(priority)
    if call.caller.role is Role.USER:
        values = await _of_the_user(values, call)
    found = await call.queue.estimate_new(**values)
    return {"position": found.position, "estimate": in_whole_seconds(msgspec.to_builtins(found.estimate))}


async def _of_the_user(values: dict[str, Any], call: Call) -> dict[str, Any]:
    """The values for the caller's own job. The key of a user may ask only about what it may submit."""
    caller = call.caller
    allowed = (*OF_USERS, *(["project"] if caller.project else []))
    for name, value in values.items():
        if name not in allowed:
            use = ", ".join(allowed)
            detail = f"{name} is a field that cannot be given here; use {use}."
            raise Refused(422, "Value not allowed", detail, field=name, allowed=use)
        if name == "user" and value != caller.user:
            detail = f"user is {shown(value)}; keys of users may ask for their own user only."
            raise Refused(403, "Not allowed", detail, field="user")
    limit_user(values, call)
    return values | {"user": caller.user, "tier": await tier_of_caller(call)}


async def what_if(call: Call) -> WhatIf:
    body = await call.body(WhatIfVariants)
    variants = [_variant(number, each) for number, each in enumerate(body.variants)]
    if call.shared.what_ifs_under_way >= MOST_WAITING:
        detail = f"{MOST_WAITING} calls of what-if are under way, and one is answered at a time; try again in a second."
        raise Refused(503, "Busy", detail, retry_after=1)
    call.shared.what_ifs_under_way += 1
    try:
        found = await call.queue.what_if(variants)
    finally:
        call.shared.what_ifs_under_way -= 1
    return msgspec.structs.replace(
        found, before=_whole(found.before), variants=[_whole(waits) for waits in found.variants]
    )


def _variant(number: int, given: dict[str, Any]) -> Variant:
    """What is in its fields is checked by the queue."""
    for name in given:
        if name not in OF_A_VARIANT:
            raise InvalidValue(f"variants[{number}] has the field {shown(name)}; use {' and '.join(OF_A_VARIANT)}.")
    return Variant(**given)


def _whole(waits: Waits) -> Waits:
    median, last = waits.median_seconds, waits.last_seconds
    return msgspec.structs.replace(
        waits,
        median_seconds=None if median is None else round(median),
        last_seconds=None if last is None else round(last),
    )


async def timeline(call: Call) -> Timeline:
    return await call.queue.timeline(call.named["group"])


OPERATIONS = (
    Operation(
        "GET",
        "/api/estimate",
        May.OWNER,
        estimate,
        "Estimate when a job would start that is not submitted yet.",
        query=EstimateQuery,
        answers=NewEstimate,
    ),
    Operation(
        "POST",
        "/api/queue/what-if",
        May.VIEWER,
        what_if,
        "Say how long the jobs in line would wait with other limits and workers; nothing is changed.",
        WhatIfBody,
        example={"variants": [{"limits": {"provider:images": 8}}]},
        answers=WhatIf,
    ),
    Operation(
        "GET",
        "/api/concurrency/{group}/timeline",
        May.VIEWER,
        timeline,
        "Get what ran in a group's slots, what holds them, and what will probably run in them.",
        answers=Timeline,
    ),
)
