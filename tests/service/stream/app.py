"""The smallest application with streams: that of a job, and that of operators."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import qo
from qo.errors import InvalidValue
from qo.loops.system import System
from qo.service.stream.job import JobStreams, cursor_from
from qo.service.stream.live import LiveStreams
from qo.service.stream.response import StreamResponse, Times, times_from
from qo.service.stream.watchers import OPERATOR, Owner, StreamRefused, Watchers
from tests.service.serving import Served, serving

LIVE = "/stream"
IN_THE_MIDDLE = System(draw=lambda: 0.5)
"""Chance of which the test knows what it draws."""


class StreamApp:
    """Streams of jobs at `/jobs/ID/stream` and of the line at `/stream`, for one caller."""

    def __init__(self, queue: qo.Queue, *, times: Times | None = None, caller: Owner = OPERATOR) -> None:
        self.watchers = Watchers()
        self.streams = JobStreams(queue)
        self.live = LiveStreams(queue)
        self.times = times or times_from(queue.settings)
        self.caller = caller
        self.asgi = Starlette(
            routes=[Route("/jobs/{job_id}/stream", self._stream_job), Route(LIVE, self._stream_line)],
            exception_handlers={
                StreamRefused: _refused,
                InvalidValue: _problem(422),
                qo.JobNotFound: _problem(404),
            },
        )

    async def _stream_job(self, request: Request) -> StreamResponse:
        return self._response(self.streams.stream(request.path_params["job_id"], after=_cursor(request)))

    async def _stream_line(self, request: Request) -> StreamResponse:
        return self._response(self.live.stream(after=_cursor(request)))

    def _response(self, source: AsyncGenerator[bytes]) -> StreamResponse:
        return StreamResponse(
            source, watchers=self.watchers, caller=self.caller, system=IN_THE_MIDDLE, times=self.times
        )

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Served]:
        try:
            async with serving(self.asgi, stopping=self.watchers.close_all) as served:
                yield served
        finally:
            await self.live.close()


def _cursor(request: Request) -> int | None:
    return cursor_from(last_event_id=request.headers.get("last-event-id"), after=request.query_params.get("after"))


def path_of(job_id: str) -> str:
    return f"/jobs/{job_id}/stream"


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, StreamRefused)
    headers = {"Retry-After": str(error.retry_after)}
    return JSONResponse({"detail": str(error)}, status_code=error.status, headers=headers)


def _problem(status: int) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        return JSONResponse({"detail": str(error)}, status_code=status)

    return answer
