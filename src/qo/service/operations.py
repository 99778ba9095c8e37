"""An operation of the API: its method and path, the callers that may use it, what it takes and what it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from qo.errors import JobNotFound
from qo.job import Job
from qo.policy.actor import Actor
from qo.service.access.caller import Caller, Role
from qo.service.access.refused import Refused
from qo.service.paths import Pattern
from qo.service.reading import convert, read_json, read_query
from qo.service.shapes import listed
from qo.service.shared import Shared

T = TypeVar("T", bound=msgspec.Struct)
IDEMPOTENCY_KEY = "Idempotency-Key"
ANSWERED_WITH = "qo.answered_with"
"""In the scope of a request: headers that every answer has, also a refusal."""
LOOKED_AT_FOR_OWN = 5
"""Of so many newest entries about a thing, one is that of the change just made, unless others hurry very much."""


class May(StrEnum):
    """The callers that may use an operation, beside admins."""

    ANYBODY = "anybody"
    """also without a key"""
    OWNER = "owner"
    """viewers see everything, users what is theirs"""
    OWNER_CHANGES = "owner_changes"
    """users change what is theirs; viewers change nothing"""
    SUBMITTER = "submitter"
    VIEWER = "viewer"
    ADMIN = "admin"


ALLOWED: dict[May, frozenset[Role]] = {
    May.OWNER: frozenset(Role),
    May.OWNER_CHANGES: frozenset({Role.ADMIN, Role.USER}),
    May.SUBMITTER: frozenset({Role.ADMIN, Role.USER}),
    May.VIEWER: frozenset({Role.ADMIN, Role.VIEWER}),
    May.ADMIN: frozenset({Role.ADMIN}),
}


class Answer(msgspec.Struct, frozen=True):
    """An answer that is not simply a 200 with this value as JSON."""

    value: Any
    status: int = 200
    headers: dict[str, str] = {}


class Call:
    """One request to an operation, by a caller that may use it."""

    def __init__(self, shared: Shared, request: Request, caller: Caller, named: Mapping[str, str]) -> None:
        self.shared = shared
        self.queue = shared.queue
        self.request = request
        self.caller = caller
        self.named = named
        """The named parts of the path."""

    @property
    def sees_all(self) -> bool:
        return self.caller.role is not Role.USER

    @cached_property
    def batch(self) -> str:
        """What all entries in the audit trail have in common that this request makes."""
        return self.queue.system.new_id()

    @cached_property
    def idempotency_key(self) -> str | None:
        """The header by which a repeat of a submit is known. Raises a 422 for an empty one, which would be the same for
        all clients of a key."""
        key = self.request.headers.get(IDEMPOTENCY_KEY)
        if key == "":
            detail = f"{IDEMPOTENCY_KEY} is empty; give a text of your own for each request, or leave it out."
            raise Refused(422, "Value not allowed", detail, field=IDEMPOTENCY_KEY)
        return key

    @cached_property
    def by(self) -> str:
        """The caller, as the audit trail keeps it."""
        caller = self.caller
        return Actor(name=caller.by, role=caller.role, address=caller.address, batch=self.batch).text()

    async def audit_id(self, subject: str) -> int | None:
        """The entry that this request has made about a job or a group; None if it has changed nothing."""
        newest = await self.queue.store_here.audit(subject=subject, limit=LOOKED_AT_FOR_OWN)
        return next((entry.id for entry in newest if entry.batch == self.batch), None)

    def query(self, kind: type[T]) -> T:
        return read_query(self.request, kind)

    async def body(self, kind: type[T]) -> T:
        return convert(await read_json(self.request), kind)

    async def own_job_id(self) -> str:
        """The id of the job that the path names. To a user, a job of another user does not exist."""
        job_id = self.named["id"]
        if not self.sees_all:
            self.check_own(await self.queue.store_here.job(job_id))
        return job_id

    async def rows(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        """Jobs as rows of a list, with the reasons why those in line wait."""
        view = self.queue.line_view
        reasons = await view.reasons_of(jobs)
        rows = [listed(job, self.caller, waits_for=each) for job, each in zip(jobs, reasons, strict=True)]
        for row in rows:
            if row["position"] is not None:
                moved = view.movement_at_hand(row["id"])
                row |= {"gained": moved.gained, "placed_ahead": moved.placed_ahead}
                row["sequence"] = view.sequence_at_hand(row["id"], row["key"])
        return rows

    def check_own(self, job: Job) -> None:
        if not self.sees_all and job.user != self.caller.user:
            raise JobNotFound(job.id)


class Operation(msgspec.Struct, frozen=True):
    method: str
    path: str
    may: May
    handle: Callable[[Call], Awaitable[Any]]
    summary: str
    body: Any = None
    """The struct that the body is, where there is one."""
    query: type[msgspec.Struct] | None = None
    answers: Any = None
    """The type of the value of a successful answer, where that is JSON; of a stream, that of each event's data."""
    status: int = 200
    others: Mapping[int, Any] = {}
    """The type of the answer for other statuses of success."""
    needs_body: bool = True
    """Whether `body`, where there is one, has to be sent."""
    errors: Mapping[int, str] = {}
    """Statuses of refusals beside those that follow from method, path and body, with what they mean."""
    example: Any = None
    """A body as a caller may send it."""
    headers: Mapping[str, str] = {}
    """Headers of a request that it heeds, with what they are for."""
    media_types: tuple[str, ...] = ("application/json",)
    """Of a successful answer."""

    @property
    def pattern(self) -> Pattern:
        return Pattern(self.path)


def check_may(operation: Operation, caller: Caller) -> None:
    """Raises a 403 before anything is looked up."""
    if operation.may is May.ANYBODY or caller.role in ALLOWED[operation.may]:
        return
    roles = " or ".join(sorted(role.value for role in ALLOWED[operation.may]))
    detail = f"This key is of the role {caller.role.value}; {operation.method} {operation.path} needs the role {roles}."
    raise Refused(403, "Not allowed", detail)
