"""Actions on many jobs at once: first a dry run that counts, then the same with that count confirmed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from qo.errors import InvalidTransition, JobNotFound
from qo.job import ENDED, HELD, Job, State
from qo.policy.ordering import parse_priority
from qo.service.access.refused import Refused
from qo.service.operations import Call, May, Operation
from qo.service.shapes import AName, Cursor, Filter, Taken
from qo.settings.sections import Priority

MOST_AT_ONCE = 500
"""Jobs that one call acts on; `next` goes on behind them."""
MOST_COUNTED = 10_000

Ids = Annotated[
    tuple[AName, ...], Meta(min_length=1, max_length=MOST_AT_ONCE, description=f"a list of 1 to {MOST_AT_ONCE} ids")
]


class Actions(Taken, frozen=True, kw_only=True):
    action: Annotated[Literal["cancel", "retry", "priority"], Meta(description="cancel, retry or priority")]
    ids: Ids | None = None
    filter: Filter | None = None
    priority: Priority | None = None
    confirm: Annotated[int, Meta(ge=0, description="the count of the dry run, 0 or more")] | None = None
    as_of: Annotated[datetime | None, Meta(description="the as_of of the dry run")] = None
    after: Cursor | None = None


class Skipped(msgspec.Struct, frozen=True):
    id: str
    reason: str


class ActionsDone(msgspec.Struct, frozen=True, kw_only=True):
    """`count` jobs can be acted on, or were. The ids of at most 500 others come with the reason. `batch` is the same in
    all answers to one action, and in its entries of the audit trail."""

    count: int
    is_dry_run: bool
    as_of: datetime
    skipped: tuple[Skipped, ...] = ()
    next: str | None = None
    batch: str | None = None


async def act(call: Call) -> ActionsDone:
    wanted = await call.body(Actions)
    _check(wanted)
    if wanted.confirm is None:
        return await _dry_run(call, wanted, wanted.as_of or call.queue.system.now(), most=MOST_COUNTED)
    assert wanted.as_of is not None
    if wanted.after is None:
        # Counted beyond what a dry run counts: nobody has confirmed more than that.
        found = await _dry_run(call, wanted, wanted.as_of, most=wanted.confirm + 1)
        if found.count > wanted.confirm:
            detail = (
                f"confirm is {wanted.confirm}, but at least {found.count} jobs match now; make a dry run again, with a "
                "narrower filter if they are too many, or confirm a greater number."
            )
            raise Refused(409, "More jobs match now", detail, field="confirm")
    return await _act_on_a_portion(call, wanted, wanted.as_of)


def _check(wanted: Actions) -> None:
    if (wanted.ids is None) == (wanted.filter is None):
        raise _wrong("ids", "give ids or a filter, one of the two")
    if (wanted.priority is None) == (wanted.action == "priority"):
        raise _wrong("priority", "give it with the action priority, and with no other")
    if wanted.confirm is not None and wanted.as_of is None:
        raise _wrong("as_of", "give the as_of of the dry run together with confirm")
    if wanted.as_of is not None and wanted.as_of.tzinfo is None:
        raise _wrong("as_of", "use a time with its zone")


def _wrong(field: str, use: str) -> Refused:
    return Refused(422, "Value not allowed", f"{field} is not as it has to be; {use}.", field=field, allowed=use)


async def _dry_run(call: Call, wanted: Actions, as_of: datetime, *, most: int) -> ActionsDone:
    count, after = 0, None
    skipped: list[Skipped] = []
    while count < most:
        portion = await _portion(call, wanted, as_of, after=after)
        count += len(portion.jobs)
        skipped += portion.skipped
        after = portion.next
        if after is None:
            break
    return ActionsDone(count=count, is_dry_run=True, as_of=as_of, skipped=tuple(skipped[:MOST_AT_ONCE]))


async def _act_on_a_portion(call: Call, wanted: Actions, as_of: datetime) -> ActionsDone:
    call.batch = f"actions-{as_of.timestamp():.6f}-{call.caller.by}"
    # All of the portion is read before the first job is changed: a changed job stands elsewhere in the list.
    portion = await _portion(call, wanted, as_of, after=wanted.after, goes_on=wanted.after is not None)
    count = 0
    for job in portion.jobs:
        try:
            await _change(call, wanted, job.id)
            count += 1
        except (InvalidTransition, JobNotFound) as error:
            portion.skipped.append(Skipped(job.id, str(error)))
    return ActionsDone(
        count=count,
        is_dry_run=False,
        as_of=as_of,
        skipped=tuple(portion.skipped),
        next=portion.next,
        batch=call.batch,
    )


class _Portion(NamedTuple):
    jobs: list[Job]
    """Those that can be acted on."""
    skipped: list[Skipped]
    next: str | None


async def _portion(
    call: Call, wanted: Actions, as_of: datetime, *, after: str | None, goes_on: bool = False
) -> _Portion:
    """Jobs that match. Those that were submitted or that ended after `as_of` are left out. `goes_on`: earlier portions
    were acted on."""
    skipped: list[Skipped] = []
    if wanted.ids is not None:
        found, following = await _named(call, wanted.ids, skipped), None
    else:
        fields = (wanted.filter or Filter()).wanted()
        page = await call.queue.store_here.jobs(limit=MOST_AT_ONCE, after=after, **fields)
        found, following = list(page.jobs), page.next
    wanted_priority = None if wanted.priority is None else parse_priority(wanted.priority)
    jobs = []
    for job in found:
        if job.submitted_at > as_of or (job.finished_at is not None and job.finished_at > as_of):
            continue
        if goes_on and job.priority == wanted_priority:
            continue  # perhaps an earlier portion has changed it, and so it stands further back now
        reason = _reason_against(wanted, job)
        if reason is None and job.priority == wanted_priority:
            reason = f"its priority is {job.priority} already"
        if reason is None:
            jobs.append(job)
        else:
            skipped.append(Skipped(job.id, reason))
    return _Portion(jobs, skipped, following)


async def _named(call: Call, ids: Sequence[str], skipped: list[Skipped]) -> list[Job]:
    found = (await call.queue.store_here.jobs(ids=ids)).jobs
    missing = dict.fromkeys(ids).keys() - {job.id for job in found}
    skipped += [Skipped(job_id, str(JobNotFound(job_id))) for job_id in ids if job_id in missing]
    return list(found)


def _reason_against(wanted: Actions, job: Job) -> str | None:
    if wanted.action == "retry":
        return None if job.state is State.FAILED else f"it is {job.state}; only failed jobs are retried"
    if job.state in ENDED:
        return f"it has ended ({job.state})"
    if wanted.action == "priority" and job.state in HELD:
        return f"it is {job.state}; only waiting jobs get another priority"
    return None


async def _change(call: Call, wanted: Actions, job_id: str) -> None:
    by = call.by
    if wanted.action == "cancel":
        await call.queue.store_here.cancel(job_id=job_id, by=by)
    elif wanted.action == "retry":
        await call.queue.retry(job_id, by=by)
    else:
        assert wanted.priority is not None
        await call.queue.set_priority(job_id, wanted.priority, by=by)


OPERATIONS = (
    Operation(
        "POST",
        "/api/jobs/actions",
        May.ADMIN,
        act,
        "Cancel, retry or re-prioritise many jobs; without confirm only count them.",
        Actions,
        example={"action": "cancel", "filter": {"task": "render", "user": "ann"}},
        answers=ActionsDone,
    ),
)
