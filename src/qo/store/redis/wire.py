"""Values on their way into functions, and out of their answers.

A function reads a missing field as None. Payloads, checkpoints and results go beside the arguments, which name them by
their number, so that nobody has to look into them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from qo.event import Event
from qo.job import State, moment
from qo.store.redis.calling import FIRST_BLOB
from qo.store.redis.rows import Reply, plain_token, stored_token
from qo.values import (
    Accepted,
    Advance,
    Finished,
    Grant,
    GroupStatus,
    Held,
    InLine,
    LimitChange,
    LimitIgnored,
    LinePage,
    Outcome,
    Refusal,
    RefusalReason,
    Registered,
    Registration,
    Reminder,
    Renewal,
    SlotInfo,
    Source,
    Submission,
    Suspicion,
    TaskOptions,
    Ticket,
    UpkeepRules,
    WorkerInfo,
)

_to_json = msgspec.json.Encoder().encode
from_json = msgspec.json.Decoder().decode


def json_text(value: Any) -> str:
    return _to_json(value).decode()


# --- in ---------------------------------------------------------------------------------------------------------


def submission(item: Submission, payload: int) -> Submission:
    """What is as by default, as most of it is, is not even sent."""
    return msgspec.structs.replace(item, payload=payload)


def renewal(item: Renewal) -> dict[str, Any]:
    return {
        "holder": item.holder,
        "token": stored_token(item.token),
        "lease_ms": item.lease_ms,
        "extend_ms": item.extend_ms,
    }


def advance(item: Advance, blobs: list[bytes]) -> dict[str, Any]:
    """Its checkpoint is added to `blobs`."""
    return {
        "job_id": item.job_id,
        "token": stored_token(item.token),
        "stage": item.stage,
        "progress": None if item.progress is None else json_text(item.progress),
        "checkpoint": _blob(blobs, item.checkpoint),
        "iteration": item.iteration,
        "message": item.message,
    }


def outcome(item: Outcome, blobs: list[bytes]) -> dict[str, Any]:
    """Its result is added to `blobs`."""
    return {
        "job_id": item.job_id,
        "token": stored_token(item.token),
        "state": item.state,
        "result": _blob(blobs, item.result),
        "error": None if item.error is None else json_text(item.error),
        "message": item.message,
        "retry_after_ms": item.retry_after_ms,
        "closed": item.closed or None,
        "averages": item.averages or None,
    }


def registration(item: Registration) -> dict[str, Any]:
    return {
        "name": item.name,
        "instance": item.instance,
        "replaces": item.replaces,
        "tasks": [_task(task) for task in item.tasks] or None,
        "capacity": item.capacity,
        "limits": list(item.limits) or None,
        "lifetime_ms": item.lifetime_ms,
        "lease_ms": item.lease_ms,
        "turn_after": item.turn_after,
        "host": item.host,
        "pid": item.pid,
    }


def upkeep_rules(item: UpkeepRules) -> dict[str, Any]:
    return {
        "aging_period_ms": item.aging_period_ms,
        "unconfirmed_after_ms": item.unconfirmed_after_ms,
        "unconfirmed_error": None if item.unconfirmed_error is None else json_text(item.unconfirmed_error),
        "reminder_ages_ms": item.reminder_ages_ms or None,
        "keep": item.keep,
    }


def _task(item: TaskOptions) -> dict[str, Any]:
    return {
        "name": item.name,
        "groups": list(item.groups) or None,
        "limit": item.limit,
        "max_attempts": item.max_attempts,
    }


def _blob(blobs: list[bytes], content: bytes | None) -> int | None:
    if content is None:
        return None
    blobs.append(content)
    return FIRST_BLOB + len(blobs) - 1


# --- out --------------------------------------------------------------------------------------------------------


def admitted(reply: Reply, item: Submission, answer: Mapping[str, Any]) -> Accepted | Refusal:
    if "reason" in answer:
        return Refusal(
            id=item.id,
            reason=RefusalReason(answer["reason"]),
            waiting=answer.get("waiting", 0),
            cap=answer.get("cap", 0),
            taken_by=answer.get("taken_by"),
        )
    return Accepted(
        job=reply.job(answer["job"]),
        known=answer.get("known", False),
        ignored=limits_ignored(answer.get("ignored") or ()),
        used_today=answer.get("used_today"),
        daily_quota=answer.get("daily_quota"),
        today=reply.answer["today"],
    )


def held(holder: str, token: str, answer: Mapping[str, Any]) -> Held:
    expires_at = answer.get("expires_at")
    return Held(
        holder=holder,
        token=token,
        lost=answer.get("lost", False),
        cancel_wanted=answer.get("cancel_wanted", False),
        expires_at=None if expires_at is None else moment(expires_at),
    )


def finished(item: Outcome, answer: Mapping[str, Any]) -> Finished:
    return Finished(
        job_id=item.job_id,
        token=item.token,
        lost=answer.get("lost", False),
        state=State(answer["state"]) if "state" in answer else None,
    )


def grant(item: Ticket, answer: Mapping[str, Any]) -> Grant:
    token, expires_at = answer.get("token"), answer.get("expires_at")
    return Grant(
        holder=item.holder,
        token=None if token is None else plain_token(token),
        slots=answer.get("slots") or {},
        expires_at=None if expires_at is None else moment(expires_at),
        waiting=answer.get("waiting", False),
    )


def reminder(answer: Mapping[str, Any]) -> Reminder:
    return Reminder(
        job_id=answer["job_id"],
        number=answer["number"],
        confirmation_required_at=moment(answer["since"]),
        contact=answer.get("contact"),
    )


def worker(answer: Mapping[str, Any]) -> WorkerInfo:
    return WorkerInfo(
        name=answer["name"],
        instance=answer["instance"],
        tasks=tuple(answer["tasks"]),
        capacity=answer["capacity"],
        running=answer["running"],
        registered_at=moment(answer["registered_at"]),
        heard_at=moment(answer["heard_at"]),
        expires_at=moment(answer["expires_at"]),
        host=answer.get("host"),
        pid=answer.get("pid"),
    )


def registered(reply: Reply) -> Registered:
    namesake = reply.answer.get("namesake")
    return Registered(
        namesake=None if namesake is None else worker(namesake),
        changed=msgspec.convert(reply.answer.get("changed") or (), tuple[LimitChange, ...]),
        ignored=limits_ignored(reply.answer.get("ignored") or ()),
        now_ms=reply.answer["now"],
    )


def limits_ignored(found: Sequence[Any]) -> tuple[LimitIgnored, ...]:
    return msgspec.convert(found, tuple[LimitIgnored, ...]) if found else ()


def event_of(found: Sequence[Any]) -> Event:
    id_, at, kind, subject, detail = found
    return Event(id=id_, at=moment(at), kind=kind, subject=subject, detail=from_json(detail))


def in_line(found: Mapping[str, Any]) -> InLine:
    return InLine(
        id=found["id"],
        task=found["task"],
        key=found["key"],
        undisturbed_key=found.get("undisturbed_key"),
        tier=found.get("tier"),
        groups=tuple(found["groups"]),
        passed=found.get("passed", 0),
        turn=found.get("turn", False),
        suspicion=Suspicion(found.get("suspicion", 0)),
    )


def line_page(answer: Mapping[str, Any], jobs: Sequence[InLine], *, following: str | None) -> LinePage:
    return LinePage(
        jobs=tuple(jobs),
        queued=answer["queued"],
        next_sequence=answer["next_sequence"],
        task_groups={task: tuple(groups) for task, groups in answer["task_groups"]},
        next=following,
    )


def group_status(found: Mapping[str, Any]) -> GroupStatus:
    source, closed_until = found.get("source"), found.get("closed_until")
    return GroupStatus(
        group=found["group"],
        limit=found.get("limit"),
        source=None if source is None else Source(source),
        paused=found.get("paused", False),
        closed_until=None if closed_until is None else moment(closed_until),
        active=found["active"],
        waiting=found["waiting"],
        kept=found.get("kept"),
        slots=tuple(
            SlotInfo(
                slot_id=slot["slot_id"],
                holder=slot["holder"],
                worker_id=slot.get("worker"),
                expires_at=moment(slot["expires_at"]),
                token=plain_token(slot["token"]),
            )
            for slot in found.get("slots") or ()
        ),
    )
