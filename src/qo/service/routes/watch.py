"""Watch links: whoever has one sees one job, and changes nothing. As events, as JSON, or as a plain page."""

from __future__ import annotations

import html
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
from starlette.responses import Response

from qo.errors import JobNotFound
from qo.job import Job
from qo.policy.presenting import NUDGE
from qo.service.access.refused import Refused
from qo.service.access.watch_links import WatchedJob
from qo.service.operations import ANSWERED_WITH, Call, May, Operation
from qo.service.routes.widget import cors_of_widget
from qo.service.shapes import StreamQuery
from qo.service.stream.job import LAST_EVENT_ID, cursor_from
from qo.service.stream.response import EVENT_STREAM, StreamResponse
from qo.service.stream.watchers import watch_token

FIELDS = (
    *("status", "state", "position", "position_message", "estimate", "stage", "progress", "message", "upgrade_url"),
    *("submitted_at", "started_at", "finished_at", "confirmation_required_at"),
)
"""What of a job a link shows. The friendly part of an error comes besides."""
ALWAYS = {
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Vary": "Accept, Origin",
}
OF_THE_PAGE = {"Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'"}
RELOAD_SECONDS = 5
DIGITS = 15
"""As many as a number in JSON keeps."""


async def watch_urls(call: Call, jobs: Sequence[Job]) -> list[str]:
    """For each job the address of a link to it, which is signed and expires."""
    server = call.queue.settings.server
    expires_at = call.queue.system.now() + timedelta(days=server.watch_link_days)
    tokens = await call.shared.watch_links.make_all([(job.id, job.submitted_at) for job in jobs], expires_at)
    base = server.public_url or _own_address(call)
    return [f"{base.rstrip('/')}/watch/{token}" for token in tokens]


def _own_address(call: Call) -> str:
    """Where this server listens. Not the Host header's name, which the caller chooses."""
    scope = call.request.scope
    host, port = scope["server"]
    return f"{scope['scheme']}://{f'[{host}]' if ':' in host else host}:{port}{scope['root_path']}"


async def watch(call: Call) -> Response | StreamResponse:
    # Every refusal has them too, so that the element on another page learns whether asking again is of use.
    headers = call.request.scope[ANSWERED_WITH] = ALWAYS | cors_of_widget(call)
    query = call.query(StreamQuery)
    job = await _watched(call)
    accepted = call.request.headers.get("accept", "")
    if "text/event-stream" in accepted:
        after = cursor_from(last_event_id=call.request.headers.get("last-event-id"), after=query.after)
        return StreamResponse(
            call.shared.job_streams.stream(job.id, after=after),
            watchers=call.shared.watchers,
            caller=watch_token(call.named["token"], address=call.caller.address),
            system=call.queue.system,
            times=call.shared.stream_times,
            headers=headers,
            is_allowed=partial(_is_valid, call),
        )
    shown = _shown(await call.queue.get(job.id))
    if "application/json" in accepted:
        return Response(msgspec.json.encode(shown), 200, headers, "application/json")
    return Response(_page(shown), 200, headers | OF_THE_PAGE, "text/html; charset=utf-8")


async def _link(call: Call) -> WatchedJob | None:
    return await call.shared.watch_links.read(call.named["token"], call.queue.system.now())


async def _is_valid(call: Call) -> bool:
    return await _link(call) is not None


async def _watched(call: Call) -> Job:
    """The job of the link. Whatever is wrong with the link, the answer is the same."""
    link = await _link(call)
    if link is not None:
        try:
            job = await call.queue.store_here.job(link.job_id)
        except JobNotFound:
            link = None
        else:
            if job.submitted_at == link.submitted_at:
                return job
    detail = "There is nothing at this link: it has expired, or it is not complete."
    raise Refused(404, "Link not found", detail)


def _shown(job: Job) -> dict[str, Any]:
    values = job.to_dict()
    error = None if job.error is None else {"message": job.error.message, "debug_id": job.error.debug_id}
    return {name: values[name] for name in FIELDS} | {"error": error}


def _page(shown: dict[str, Any]) -> str:
    """It works without a script, and loads itself again until the job has ended."""
    lines = [shown["status"], shown["position_message"], shown["message"]]
    if shown["estimate"] is not None:
        lines.append(shown["estimate"]["message"])
    if shown["progress"] is not None:
        lines.append(_in_words(**shown["progress"]))
    if shown["error"] is not None:
        lines.append(shown["error"]["message"])
    said = "".join(f"<p>{html.escape(line)}" for line in dict.fromkeys(lines) if line)
    if (url := shown["upgrade_url"]) is not None:
        said += f'<p><a href="{html.escape(url)}">{NUDGE}</a>'
    again = "" if shown["finished_at"] else f'<meta http-equiv=refresh content="{RELOAD_SECONDS}">'
    return f"<!doctype html><html lang=en><meta charset=utf-8>{again}<title>Your job</title>{said}"


def _in_words(*, done: float, total: float | None, text: str | None) -> str:
    numbers = f"{done:.{DIGITS}g} done" if total is None else f"{done:.{DIGITS}g} of {total:.{DIGITS}g}"
    return numbers if text is None else f"{numbers}: {text}"


OPERATIONS = (
    Operation(
        "GET",
        "/watch/{token}",
        May.ANYBODY,
        watch,
        "See one job by its link.",
        query=StreamQuery,
        headers={LAST_EVENT_ID: "The id of the last event that was seen; it comes before the query's."},
        answers=dict[str, Any],
        media_types=("text/html", "application/json", EVENT_STREAM),
    ),
)
