"""What the API takes and answers beside the structs that Python uses: bodies, queries, pages, and a job as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from qo.event import AuditEntry
from qo.job import Job
from qo.policy.audit import old_and_new
from qo.policy.checks import MAX_NAME_CHARACTERS
from qo.policy.estimates.what_if import MOST_VARIANTS
from qo.policy.ordering import parse_priority
from qo.policy.reasons.reason import Reasons
from qo.policy.redact.by_name import redact_by_name
from qo.service.access.caller import Caller, Role
from qo.settings.sections import Priority
from qo.values import GroupStatus, Wanted

MOST_OF_A_PAGE = 500
REFERENCE = "#/components/schemas/{name}"
"""How the document of the API refers to a type."""

Limit = Annotated[int, Meta(ge=1, le=MOST_OF_A_PAGE, description=f"a whole number from 1 to {MOST_OF_A_PAGE}")]
Slots = Annotated[int, Meta(ge=0, le=2**31 - 1, description="a whole number of slots, 0 or more")]
Minutes = Annotated[int, Meta(ge=1, le=10_080, description="a whole number of minutes from 1 to 10080")]
Starts = Annotated[
    int, Meta(ge=0, le=MOST_OF_A_PAGE, description=f"how many ended jobs to look at for starts, 0 to {MOST_OF_A_PAGE}")
]
Cursor = Annotated[str, Meta(description="the `next` of the page before")]
Flag = Annotated[bool, Meta(description="true or false")]
AName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_NAME_CHARACTERS,
        pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z",
        description=f"1 to {MAX_NAME_CHARACTERS} characters, none of them a control character",
    ),
]


class Taken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request brings. A field that nobody knows is refused: it would be a mistake of the caller."""


class Filter(Taken, frozen=True, kw_only=True):
    """Which jobs: those that fit all that is given."""

    status: Annotated[AName, Meta(description="a state, a stage or `ready`")] | None = None
    user: AName | None = None
    task: AName | None = None
    parent: AName | None = None
    project: AName | None = None
    tier: AName | None = None
    priority: Priority | None = None
    id: Annotated[AName, Meta(description="how the id begins")] | None = None

    def wanted(self) -> Wanted:
        return Wanted(
            status=self.status,
            user=self.user,
            task=self.task,
            parent=self.parent,
            project=self.project,
            tier=self.tier,
            priority=None if self.priority is None else parse_priority(self.priority),
            id_prefix=self.id,
        )


class JobsQuery(Filter, frozen=True, kw_only=True):
    after: Cursor | None = None
    limit: Limit = 100


class LineQuery(Taken, frozen=True, kw_only=True):
    around: AName | None = None
    """A job's id: answers the job with three neighbours on each side."""
    after: Cursor | None = None
    limit: Limit = 100


class AuditQuery(Taken, frozen=True, kw_only=True):
    target: AName | None = None
    after: Annotated[str, Meta(pattern=r"^[0-9]{1,15}\Z", description="the `next` of the page before")] | None = None
    limit: Limit = 100


class AnalyticsQuery(Taken, frozen=True, kw_only=True):
    minutes: Minutes = 60
    group: AName | None = None
    starts: Starts = 0


class ReleaseQuery(Taken, frozen=True, kw_only=True):
    force: Flag = False


class StreamQuery(Taken, frozen=True, kw_only=True):
    after: Annotated[str, Meta(description="the id of the last event that was seen")] | None = None


class EstimateQuery(Taken, frozen=True, kw_only=True):
    task: AName
    user: AName | None = None
    project: AName | None = None
    tier: AName | None = None
    priority: Annotated[str, Meta(description="a number from 0 (soonest) to 99, or a name such as high")] | None = None
    groups: Annotated[tuple[AName, ...], Meta(description="names of groups, each as a `groups=` of its own")] = ()


class NoQuery(Taken, frozen=True, kw_only=True):
    pass


class SetPriority(Taken, frozen=True, kw_only=True):
    priority: Priority


class Move(Taken, frozen=True, kw_only=True):
    before: AName | None = None
    after: AName | None = None


class PauseGroup(Taken, frozen=True, kw_only=True):
    group: AName


class SetLimit(Taken, frozen=True, kw_only=True):
    limit: Slots


class SetTier(Taken, frozen=True, kw_only=True):
    tier: AName


class WhatIfVariants(Taken, frozen=True, kw_only=True):
    """The body of what-if as it is read. What is in a variant is checked one by one, so that an error can name it."""

    variants: Annotated[list[dict[str, Any]], Meta(description="a list of objects with limits and capacity")]


class WhatIfVariant(Taken, frozen=True, kw_only=True):
    limits: Annotated[dict[AName, Slots], Meta(description="slots by group")] = {}
    capacity: Annotated[dict[AName, Slots], Meta(description="capacity by the name of a live worker")] = {}


class WhatIfBody(Taken, frozen=True, kw_only=True):
    """For the document of the API only."""

    variants: Annotated[list[WhatIfVariant], Meta(max_length=MOST_VARIANTS)]


class Cancel(Taken, frozen=True, kw_only=True):
    message: Annotated[str | None, Meta(description="text that the job's owner sees")] = None


class SignIn(Taken, frozen=True, kw_only=True):
    key: Annotated[
        str, Meta(description="the text of an API key", extra={"secret": True})
    ]  # a refusal does not show it
    next: Annotated[str | None, Meta(description="the path to open afterwards")] = None


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    role: Role
    user: str | None = None
    expires_at: datetime | None = None
    next: str = "/"


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a list. `next` goes back as `after`; null at the end."""

    items: list[dict[str, Any]]
    next: str | None = None


class JobAnswer(Job, frozen=True, kw_only=True):
    """A job as the API answers it: `Job.to_dict()`, and what some operations add. For the document of the API only."""

    upgrade_url: str | None = None
    data: Any = None
    watch_url: str | None = None
    audit_id: int | None = None
    waits_for: Reasons = ()
    gained: int = 0
    """In a list, of a job in line: the places that it gained by a move, a priority or aging since it joined."""
    placed_ahead: int = 0
    """In a list, of a job in line: how many jobs ahead of it joined later, when the line was last read."""
    sequence: int | None = None
    """In a list, of a job in line: jobs that joined later have greater numbers. Null of a job that was moved and then
    not read since, which is a few seconds."""


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of jobs, for the document of the API only."""

    items: list[JobAnswer]
    next: str | None = None


class ParentAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A `ParentStatus` as the API answers it. For the document of the API only."""

    parent: str
    priority: int
    jobs: list[JobAnswer]


class Released(msgspec.Struct, frozen=True, kw_only=True):
    holder: str
    audit_id: int | None = None


class GroupAnswer(GroupStatus, frozen=True, kw_only=True):
    """A group after a change. `audit_id` is the change's entry in the audit trail; null if it changed nothing."""

    audit_id: int | None = None


class AuditItem(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the audit trail: who did what to which job, group or user, and what was before and after."""

    id: int
    at: datetime
    action: str
    target: str
    by: str | None
    role: str | None
    address: str | None
    old: Any
    new: Any
    batch: str | None
    """What the entries of one request, or of an action and its undo, have in common."""

    @classmethod
    def of(cls, entry: AuditEntry) -> Self:
        old, new = old_and_new(entry)
        return cls(
            id=entry.id,
            at=entry.at,
            action=entry.action,
            target=entry.subject,
            by=entry.by,
            role=entry.role,
            address=entry.address,
            old=old,
            new=new,
            batch=entry.batch,
        )


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the audit trail, newest first. `next` goes back as `after`; null at the end."""

    items: list[AuditItem]
    next: str | None = None


class Undone(msgspec.Struct, frozen=True, kw_only=True):
    undone: int
    """The entry that was undone."""
    audit_id: int | None
    """The entry of the undo."""


def listed(job: Job, caller: Caller, *, waits_for: Reasons | None = None) -> dict[str, Any]:
    """A job in a list: without its result and the detail of its error, with the reasons why it waits if they are
    given."""
    return _for(caller, row_of(job, waits_for))


def row_of(job: Job, waits_for: Reasons | None) -> dict[str, Any]:
    shown = job.to_dict()
    shown.pop("result")
    if shown["error"] is not None:
        shown["error"]["detail"] = None
    if waits_for is not None:
        shown["waits_for"] = waits_for
    return shown


def submitted(job: Job, caller: Caller, *, watch_url: str, in_list: bool = False) -> dict[str, Any]:
    """A job that was just submitted, with its place in words, as JSON will show it. A list has a thousand of them, so
    what `Job.to_dict` would make of the values inside is left to the encoder. A submit tells no estimate.

    In a list, a job that was known and has ended comes without its result and the detail of its error."""
    shown = msgspec.structs.asdict(job)
    if in_list:
        del shown["result"]
        shown["error"] = None if job.error is None else msgspec.structs.replace(job.error, detail=None)
    shown["upgrade_url"] = None if job.upgrade is None else job.upgrade.url
    shown["watch_url"] = watch_url
    if job.position is not None:
        shown["message"] = f"Queued at position {job.position}"
    return _for(caller, shown)


def whole(job: Job, caller: Caller, *, data: Any = None, with_data: bool = False) -> dict[str, Any]:
    """One job, with its data where it was read. Viewers see no value that has the name of a secret."""
    shown = job.to_dict()
    if with_data:
        shown["data"] = data
    if caller.role is Role.VIEWER:
        for name in ("data", "result"):
            if name in shown:
                shown[name] = redact_by_name(shown[name])
    return _for(caller, shown)


def _for(caller: Caller, shown: dict[str, Any]) -> dict[str, Any]:
    if caller.role is not Role.ADMIN:
        shown.pop("token")
    return shown
