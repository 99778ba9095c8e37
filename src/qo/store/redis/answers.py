"""What each operation returns: the value that a function's reply stands for, or the error that a refusal stands for."""

from __future__ import annotations

from collections.abc import Mapping

from qo.errors import JobNotFound, LeaseAlive, MoveRefused, ParentNotFound, SlotNotFound
from qo.event import AuditEntry
from qo.job import Job, State, moment
from qo.policy.audit import audit_entry
from qo.policy.lifecycle import Change, key_is_free, phase_succeeded, refused_retry
from qo.store.redis import wire
from qo.store.redis.calling import Given, check_refusal, refused
from qo.store.redis.rows import Reply
from qo.values import (
    Accepted,
    Blockers,
    Claimed,
    Finished,
    Grant,
    GroupStatus,
    Held,
    Lease,
    LimitIgnored,
    Mean,
    Observed,
    ParentStatus,
    Portion,
    Record,
    Refusal,
    Registered,
    Renewed,
    SeriesPoint,
    Suspicion,
    UpkeepDone,
    UserUsage,
    WorkerInfo,
)


def nothing(reply: Reply, given: Given) -> None:
    """The answer of an operation that returns nothing."""
    check_refusal(reply)


# --- a job's way through ----------------------------------------------------------------------------------------


def submit(reply: Reply, given: Given) -> list[Accepted | Refusal]:
    answers = zip(given["submissions"], reply.answer["answers"], strict=True)
    return [wire.admitted(reply, item, answer) for item, answer in answers]


def claim(reply: Reply, given: Given) -> Claimed:
    return Claimed(leases=reply.leases(), more=reply.answer["more"])


def renew(reply: Reply, given: Given) -> Renewed:
    answers = zip(given["renewals"], reply.answer["answers"], strict=True)
    worker = given["worker"]
    return Renewed(
        held=tuple(wire.held(renewal.holder, renewal.token, answer) for renewal, answer in answers),
        registration=None if worker is None else wire.held(worker, given["instance"], reply.answer["registration"]),
        now_ms=reply.answer["now"],
    )


def advance(reply: Reply, given: Given) -> list[Held]:
    answers = zip(given["advances"], reply.answer["answers"], strict=True)
    return [wire.held(item.job_id, item.token, answer) for item, answer in answers]


def finish(reply: Reply, given: Given) -> list[Finished]:
    answers = zip(given["outcomes"], reply.answer["answers"], strict=True)
    return [wire.finished(item, answer) for item, answer in answers]


# --- changes by people ------------------------------------------------------------------------------------------


def set_priority(reply: Reply, given: Given) -> tuple[Job, ...]:
    check_refusal(reply, wanted=Change.PRIORITY, parent=given["parent"])
    return reply.jobs()


def move(reply: Reply, given: Given) -> Job:
    if refused(reply) == "no_place":
        raise MoveRefused(
            f"Job {given['job_id']!r} cannot be moved there: no place is left between its neighbours, even when "
            f"{reply.answer['detail']['at_most']} of them are spread out; move it beside another job."
        )
    check_refusal(reply, wanted=Change.MOVE)
    return reply.jobs()[0]


def cancel(reply: Reply, given: Given) -> tuple[Job, ...]:
    check_refusal(reply, wanted=Change.CANCEL, parent=given["parent"])
    return reply.jobs()


def retry(reply: Reply, given: Given) -> Job:
    if refused(reply) == "unique_taken":
        taken = reply.answer["detail"]
        raise refused_retry(given["job_id"], taken["state"], until=key_is_free(taken["by"], taken["key"]))
    if refused(reply) == "phase_waits":
        waits = reply.answer["detail"]
        raise refused_retry(given["job_id"], waits["state"], until=phase_succeeded(waits["phase"], waits["parent"]))
    check_refusal(reply, wanted=Change.RETRY)
    return reply.jobs()[0]


def confirm(reply: Reply, given: Given) -> Job:
    check_refusal(reply, wanted=Change.CONFIRM)
    return reply.jobs()[0]


def ignored(reply: Reply, given: Given) -> tuple[LimitIgnored, ...]:
    check_refusal(reply)
    return wire.limits_ignored(reply.answer["ignored"])


def revoke(reply: Reply, given: Given) -> str:
    match refused(reply):
        case "no_slot":
            raise SlotNotFound(given["group"], given["slot_id"])
        case "alive":
            raise LeaseAlive(given["group"], given["slot_id"], reply.answer["detail"]["holder"])
    return str(reply.answer["holder"])


# --- callers, workers, upkeep -----------------------------------------------------------------------------------


def acquire(reply: Reply, given: Given) -> list[Grant]:
    return [wire.grant(item, answer) for item, answer in zip(given["tickets"], reply.answer["answers"], strict=True)]


def release(reply: Reply, given: Given) -> list[bool]:
    answers: list[bool] = reply.answer["answers"]
    return answers


def register(reply: Reply, given: Given) -> Registered:
    return wire.registered(reply)


def catch_up(reply: Reply, given: Given) -> Portion:
    return Portion(ids=tuple(reply.answer["ids"]), more=reply.answer["more"])


def upkeep(reply: Reply, given: Given) -> UpkeepDone:
    done = reply.answer
    return UpkeepDone(
        aged=tuple(done.get("aged") or ()),
        failed=tuple(done.get("failed") or ()),
        reminders=tuple(wire.reminder(due) for due in done.get("reminders") or ()),
        forgotten=tuple(done.get("forgotten") or ()),
        more=done["more"],
    )


def put_record(reply: Reply, given: Given) -> bool:
    written: bool = reply.answer["written"]
    return written


# --- reading ----------------------------------------------------------------------------------------------------


def job(reply: Reply, given: Given) -> Job:
    if refused(reply) is not None:
        raise JobNotFound(given["job_id"])
    return reply.jobs(with_history=True)[0]


def counts(reply: Reply, given: Given) -> dict[State, int]:
    return {State(state): count for state, count in (reply.answer["counts"] or {}).items()}


def payload(reply: Reply, given: Given) -> tuple[bytes, bytes | None]:
    if refused(reply) is not None:
        raise JobNotFound(given["job_id"])
    checkpoint = reply.answer.get("checkpoint")
    return reply.blob(reply.answer["payload"]), None if checkpoint is None else reply.blob(checkpoint)


def parent(reply: Reply, given: Given) -> ParentStatus:
    if refused(reply) is not None:
        raise ParentNotFound(given["parent"])
    phases = sorted((job for job in reply.jobs() if job.phase is not None), key=lambda job: job.phase or 0)
    others = [job for job in reply.jobs() if job.phase is None]
    return ParentStatus(parent=given["parent"], priority=reply.answer["priority"], jobs=(*phases, *others))


def blockers(reply: Reply, given: Given) -> Blockers:
    if refused(reply) is not None:
        raise JobNotFound(given["job_id"])
    (found,) = reply.jobs()
    state, heard_at = reply.answer.get("waits_for_state"), reply.answer.get("heard_at")
    start_by = reply.answer.get("start_by")
    return Blockers(
        job=found,
        ahead=None if found.position is None else found.position - 1,
        groups=groups(reply, given),
        kept_for={name: tuple(lacks) for name, lacks in reply.answer["kept_for"]},
        turn=tuple(reply.answer["turn"]),
        waits_for=reply.answer.get("waits_for"),
        waits_for_state=None if state is None else State(state),
        has_worker=reply.answer["has_worker"],
        worker=reply.answer.get("worker"),
        heard_at=None if heard_at is None else moment(heard_at),
        start_by=None if start_by is None else moment(start_by),
        suspicion=Suspicion(reply.answer.get("suspicion", 0)),
    )


def leases(reply: Reply, given: Given) -> tuple[Lease, ...]:
    return reply.leases()


def groups(reply: Reply, given: Given) -> tuple[GroupStatus, ...]:
    return tuple(wire.group_status(group) for group in reply.answer["groups"])


def workers(reply: Reply, given: Given) -> tuple[WorkerInfo, ...]:
    return tuple(map(wire.worker, reply.answer["workers"]))


def usage(reply: Reply, given: Given) -> UserUsage:
    return UserUsage(user=given["user"], **reply.answer)


def series(reply: Reply, given: Given) -> tuple[SeriesPoint, ...]:
    points = (SeriesPoint(**point) for point in reply.answer["points"])
    return tuple(sorted(points, key=lambda point: (point.name, point.minute)))


def audit(reply: Reply, given: Given) -> tuple[AuditEntry, ...]:
    return tuple(
        audit_entry(id_, moment(at), by or None, action, of, wire.from_json(detail))
        for id_, at, by, action, of, detail in reply.answer["entries"]
    )


def observed(reply: Reply, given: Given) -> Observed:
    means = zip(given["names"], reply.answer["averages"], strict=True)
    errors = zip(given["tasks"], reply.answer["errors"], strict=True)
    return Observed(
        averages={
            name: Mean(value=float(mean[0]), square=float(mean[1]), count=mean[2]) for name, mean in means if mean
        },
        errors={task: tuple(float(ratio) for ratio in ratios) for task, ratios in errors},
    )


def records(reply: Reply, given: Given) -> Mapping[str, Record]:
    found = reply.answer["records"]
    return {name: Record(version=version, value=wire.from_json(value)) for name, version, value in found}
