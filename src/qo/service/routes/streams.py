"""Streams of events, and the numbers for Prometheus."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial

import msgspec
from starlette.responses import Response

from qo.service.access.caller import Role
from qo.service.metrics import CONTENT_TYPE
from qo.service.operations import Call, May, Operation
from qo.service.shapes import StreamQuery
from qo.service.stream.frames import Frame
from qo.service.stream.job import LAST_EVENT_ID, cursor_from
from qo.service.stream.response import EVENT_STREAM, StreamResponse
from qo.service.stream.watchers import OPERATOR, user_key


async def stream_job(call: Call) -> StreamResponse:
    after = _cursor(call)
    job_id = await call.own_job_id()
    return _response(call, call.shared.job_streams.stream(job_id, after=after))


async def stream_line(call: Call) -> StreamResponse:
    return _response(call, call.shared.live_streams.stream(after=_cursor(call)))


def _cursor(call: Call) -> int | None:
    query = call.query(StreamQuery)
    return cursor_from(last_event_id=call.request.headers.get(LAST_EVENT_ID), after=query.after)


def _response(call: Call, source: AsyncGenerator[bytes]) -> StreamResponse:
    caller = call.caller
    owner = user_key(caller.key_id) if caller.role is Role.USER and caller.key_id is not None else OPERATOR
    return StreamResponse(
        source,
        watchers=call.shared.watchers,
        caller=msgspec.structs.replace(owner, session=caller.session),
        system=call.queue.system,
        times=call.shared.stream_times,
        is_allowed=partial(call.shared.gate.is_still_allowed, caller),
    )


async def metrics(call: Call) -> Response:
    return Response(await call.shared.metrics.text(), media_type=CONTENT_TYPE)


RESUMED_BY = {LAST_EVENT_ID: "The id of the last event that was seen; it comes before the query's."}

OPERATIONS = (
    Operation(
        "GET",
        "/api/jobs/{id}/stream",
        May.OWNER,
        stream_job,
        "Follow a job as server-sent events.",
        query=StreamQuery,
        headers=RESUMED_BY,
        media_types=(EVENT_STREAM,),
    ),
    Operation(
        "GET", "/metrics", May.VIEWER, metrics, "The numbers of the queue for Prometheus.", media_types=(CONTENT_TYPE,)
    ),
    Operation(
        "GET",
        "/api/stream",
        May.VIEWER,
        stream_line,
        "Follow the line, the groups and the workers as server-sent events.",
        query=StreamQuery,
        answers=Frame,
        headers=RESUMED_BY,
        media_types=(EVENT_STREAM,),
    ),
)
