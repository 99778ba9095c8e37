"""The body of a submit as a `New`, and what the key of a user may submit."""

# pyright: reportOperatorIssue=false
# Because unions of annotated types are values here; pyright knows them as types only.
from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from qo.errors import InvalidSubmit
from qo.new_job import New
from qo.policy.checks import MAX_COUNT, shown
from qo.policy.ordering import parse_priority
from qo.queue.queue import Admitted
from qo.service.access.caller import Role
from qo.service.access.refused import Refused
from qo.service.operations import IDEMPOTENCY_KEY, Call
from qo.service.reading import kind_of
from qo.service.shapes import AName, Slots
from qo.settings.sections import Priority

FIELDS = tuple(name for name in New.__struct_fields__ if name != "by")
FIELDS_OF_USERS = ("task", "data", "priority", "delay", "run_at", "start_by", "unique")
MOST_OF_A_LIST = 1000
A_TIME = "a time with its zone, such as 2030-12-31T18:00:00Z"

Moment = Annotated[datetime, Meta(tz=True, description=A_TIME)]
Span = Annotated[float, Meta(ge=0, description="a number of seconds")]
Count = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
_AS_JSON: dict[str, Any] = {
    "task": AName,
    **dict.fromkeys(("id", "user", "project", "tier", "parent", "concurrency_group", "unique"), AName | None),
    "priority": Priority | None,
    "phase": Count | None,
    "groups": list[AName],
    "concurrency_limit": Slots | None,
    "delay": Span | None,
    "run_at": Moment | None,
    "start_by": Span | Moment | None,
    "max_attempts": Count | None,
    "timeout": Annotated[float, Meta(gt=0, description="a number of seconds")] | None,
}
NewJob = msgspec.defstruct(
    "NewJob",
    [
        (field.name, _AS_JSON.get(field.name, field.type), msgspec.field(default=field.default))
        for field in msgspec.structs.fields(New)
        if field.name in FIELDS
    ],
    forbid_unknown_fields=True,
)
"""`New` as JSON has it: spans are seconds. For the document of the API only."""
NewJobs = NewJob | Annotated[list[NewJob], Meta(max_length=MOST_OF_A_LIST)]  # type: ignore[valid-type]


async def tier_of_caller(call: Call) -> str | None:
    """The tier of jobs that the key of a user submits: the one the user was given, else the configured one."""
    if call.caller.role is not Role.USER or call.caller.user is None:
        return None
    known = (await call.queue.store_here.usage(call.caller.user)).tier
    return known or call.queue.settings.server.default_tier


def new_job(body: Any, call: Call, *, tier: str | None, index: int = 0) -> New:
    """`tier` is that of a user who submits, `index` the job's place in the list. Raises `Refused` or `InvalidSubmit`
    for what this caller may not submit."""
    if not isinstance(body, dict):
        detail = f"body is {kind_of(body)}; give a JSON object with a task."
        raise Refused(422, "Value not allowed", detail, field="body")
    is_user = call.caller.role is Role.USER
    allowed = (*FIELDS_OF_USERS, *(["project"] if call.caller.project else [])) if is_user else FIELDS
    for name in body:
        if name not in allowed:
            detail = f"{name} is a field that cannot be given here; use {', '.join(allowed)}."
            raise Refused(422, "Value not allowed", detail, field=name, allowed=", ".join(allowed))
    if "task" not in body:
        raise Refused(422, "Value not allowed", "task is missing; give the name of a task.", field="task")
    values = {**body, "by": call.by}
    for name in ("run_at", "start_by"):
        if isinstance(values.get(name), str):
            values[name] = _moment(name, values[name])
    if is_user:
        limit_user(values, call)
        values |= {"user": call.caller.user, "tier": tier}
    if (repeated := call.idempotency_key) is not None:
        if "id" in values:
            detail = f"id is {shown(values['id'])}; give it or the header {IDEMPOTENCY_KEY}, not both."
            raise Refused(422, "Value not allowed", detail, field="id")
        values["id"] = _id_of_repeated(call, repeated, index)
    return New(**values)


def _id_of_repeated(call: Call, header: str, index: int) -> str:
    """The same for each repeat of a request with this header and key, and no other."""
    told = msgspec.json.encode([call.caller.key_id, header, index])
    return f"idem-{hashlib.sha256(told).hexdigest()[:40]}"


async def check_known(new: New, admitted: Admitted, call: Call) -> None:
    """Raises a 422 where the header of an earlier request comes with another job, and where a user named the unique
    key of a stranger's job: a program may submit any key for anybody."""
    if not admitted.known:
        return
    if not call.sees_all and admitted.job.user != call.caller.user:
        raise Refused(422, "Value not allowed", "unique is a key that cannot be used; use another.", field="unique")
    if call.idempotency_key is None or admitted.job.id != new.id:
        return  # else its unique key is that of another job, which the caller asked for
    payload, _ = await call.queue.store_here.payload(admitted.job.id)
    if admitted.job.task != new.task or _sorted(msgspec.json.decode(payload)) != _sorted(new.data):
        detail = f"{IDEMPOTENCY_KEY} is that of an earlier request with another task or data; use a new one."
        raise Refused(422, "Value not allowed", detail, field=IDEMPOTENCY_KEY)


def _sorted(data: Any) -> bytes:
    """The same bytes for the same JSON, in whatever order its names are. In Python, 1 and true would be equal."""
    return msgspec.json.encode(data, order="sorted")


def _moment(name: str, text: str) -> datetime:
    try:
        at = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        raise InvalidSubmit(f"{name} is {shown(text)}; use {A_TIME}.") from None
    if at.tzinfo is None:
        raise InvalidSubmit(f"{name} is {shown(text)}, which has no zone; use {A_TIME}.")
    return at


def limit_user(values: dict[str, Any], call: Call) -> None:
    """Raises a 403 for a task, priority or project that the key of a user may not use. Fills in the key's project, and
    makes a unique key the user's own."""
    server, caller = call.queue.settings.server, call.caller
    if values["task"] not in server.user_tasks:
        detail = f"task is {shown(values['task'])}; keys of users may submit the tasks in [server] user_tasks only."
        raise Refused(403, "Not allowed", detail, field="task")
    best = parse_priority(server.user_best_priority)
    if values.get("priority") is not None and parse_priority(values["priority"]) < best:
        detail = f"priority is {shown(values['priority'])}; keys of users may use {server.user_best_priority} at best."
        raise Refused(403, "Not allowed", detail, field="priority")
    if caller.project is not None and values.setdefault("project", caller.project) != caller.project:
        detail = f"project is {shown(values['project'])}; this key submits to {caller.project!r} only."
        raise Refused(403, "Not allowed", detail, field="project")
    if isinstance(values.get("unique"), str) and values["unique"] and caller.user is not None:
        # The slash in the name of the user `a/b` must not look like the one behind the user `a`.
        values["unique"] = f"{caller.user.replace('%', '%25').replace('/', '%2F')}/{values['unique']}"
