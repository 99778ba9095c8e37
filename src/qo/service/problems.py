"""Errors as answers: problems as RFC 9457 describes them."""

from __future__ import annotations

import logging
import math
import re

import msgspec
from starlette.responses import Response

from qo.errors import QoError, QueueFull
from qo.ids import new_debug_id
from qo.meanings import meaning_of
from qo.service.access.refused import Refused
from qo.service.stream.watchers import StreamRefused

log = logging.getLogger("qo.service")

MEDIA_TYPE = "application/problem+json"
ALWAYS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
SENTENCE = re.compile(r"([a-z_][\w.\[\]]{0,80}) (?:is|has|does|names) .*?; (.+?)\.?\Z", re.DOTALL)
"""How errors about a value read: its field, what is wrong, and after the semicolon what is allowed."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong, for programs and for people. `debug_id` finds the rest in the log of the server."""

    type: str
    title: str
    status: int
    detail: str | None = None
    field: str | None = None
    allowed: str | None = None
    retry_after: int | None = None
    debug_id: str | None = None


def problem_of(error: Exception) -> Problem:
    """The problem to answer with. An error that nobody expected is logged, and only its debug id is answered."""
    match error:
        case Refused():
            problem = make(error.status, error.title, error.detail, field=error.field, allowed=error.allowed)
            problem = msgspec.structs.replace(problem, retry_after=error.retry_after)
        case StreamRefused():
            problem = make(error.status, "Too many streams", str(error))
            problem = msgspec.structs.replace(problem, retry_after=error.retry_after)
        case QoError() if (meaning := meaning_of(error)).status != 500:
            found = SENTENCE.match(str(error)) if meaning.status == 422 else None
            field, allowed = (found[1], found[2]) if found else (None, None)
            problem = make(meaning.status, meaning.title, str(error), field=field, allowed=allowed)
            if isinstance(error, QueueFull):
                seconds = math.ceil(error.retry_after.total_seconds())
                problem = msgspec.structs.replace(problem, retry_after=seconds)
        case _:
            debug_id = new_debug_id()
            log.error("a request failed (%s)", debug_id, exc_info=error)
            problem = msgspec.structs.replace(make(500, "Something went wrong", None), debug_id=debug_id)
    return problem


def make(
    status: int, title: str, detail: str | None, *, field: str | None = None, allowed: str | None = None
) -> Problem:
    return Problem(
        type=f"/problems/{slug_of(title)}", title=title, status=status, detail=detail, field=field, allowed=allowed
    )


def slug_of(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def answer_of(error: Exception) -> Response:
    problem = problem_of(error)
    headers = ALWAYS | (error.headers if isinstance(error, Refused) else {})
    if problem.retry_after is not None:
        headers["Retry-After"] = str(problem.retry_after)
    return Response(msgspec.json.encode(problem), problem.status, headers, MEDIA_TYPE)
