"""`qo job`: one job's present state, or with --watch all its changes."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any, NamedTuple

import click
import msgspec

from qo.cli.job_ids import whole_id
from qo.cli.options import Target, store_options
from qo.cli.output import show_fields, show_json
from qo.cli.running import reading
from qo.cli.terminal import say, say_as_it_is
from qo.cli.wording import (
    attempts_text,
    job_sentence,
    json_text,
    priority_text,
    start_sentence,
    start_text,
    time_text,
    where,
)
from qo.event import POSITION, Event
from qo.job import ENDED, HELD, Estimate, Job, State
from qo.policy.why import Why
from qo.queue.queue import Queue


@click.command()
@click.argument("job_id", metavar="ID")
@click.option("--watch", is_flag=True, help="Follow it until it has ended; exit code 1 if it failed or was cancelled.")
@store_options
def job(target: Target, *, job_id: str, watch: bool) -> int:
    """Show the job ID with its payload, or with --watch its changes (with --json one line for each event).

    ID may be the beginning of an id. With --json, everything that is known: the payload, the states and attempts that
    it went through, the slots it holds, and why it is not running.
    """
    if watch:
        ended = reading(target, lambda queue: follow(queue, job_id, as_json=target.as_json))
        return 1 if ended.state in (State.FAILED, State.CANCELLED) else 0
    read = reading(target, lambda queue: _read(queue, job_id))
    if target.as_json:
        show_json(read.as_json())
    else:
        show_job(read.job, data=read.data)
    return 0


class _Read(NamedTuple):
    """All that is known about a job."""

    job: Job
    data: Any
    checkpoint: Any
    why: Why | None
    slots: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        more = {"data": self.data, "checkpoint": self.checkpoint, "slots": self.slots, "why": self.why}
        return self.job.to_dict() | more


async def _read(queue: Queue, given: str) -> _Read:
    job_id = await whole_id(queue, given)
    job = await queue.get(job_id)
    payload, checkpoint = await queue.store_here.payload(job_id)
    leases = await queue.store_here.leases(worker=job.worker) if job.state in HELD else ()
    return _Read(
        job=job,
        data=msgspec.json.decode(payload),
        checkpoint=None if checkpoint is None else msgspec.json.decode(checkpoint),
        why=None if job.state in ENDED else await queue.why(job_id),
        slots=next((lease.slots for lease in leases if lease.job_id == job_id), {}),
    )


def show_job(found: Job, *, data: Any) -> None:
    say(job_sentence(found))
    error, progress = found.error, found.progress
    show_fields(
        [
            ("status", found.status),
            ("place", found.position_message),
            ("starts in", start_text(found.estimate)),
            ("priority", priority_text(found.priority)),
            ("user", found.user),
            ("project", found.project),
            ("tier", found.tier),
            ("parent", found.parent),
            ("phase", found.phase),
            ("unique", found.unique),
            ("groups", ", ".join(found.groups)),
            ("attempts", attempts_text(found.attempts, found)),
            ("iterations", _iterations(found)),
            ("progress", None if progress is None else _progress(progress.done, progress.total, progress.text)),
            ("message", found.message),
            ("worker", found.worker),
            ("run at", time_text(found.run_at)),
            ("submitted", time_text(found.submitted_at)),
            ("joined", time_text(found.joined_at)),
            ("started", time_text(found.started_at)),
            ("asked", time_text(found.confirmation_required_at)),
            ("finished", time_text(found.finished_at)),
            ("data", json_text(data)),
            ("result", json_text(found.result)),
            ("error", None if error is None else error.message),
            ("detail", None if error is None else error.detail),
            ("debug id", None if error is None else error.debug_id),
        ],
        as_they_are=("data", "result"),
    )


def _iterations(found: Job) -> str | None:
    if not found.iterations:
        return None
    granted = "" if found.iterations_granted is None else f", {found.iterations_granted} granted"
    return f"{found.iterations}{granted}{'' if found.iterations_max is None else f', at most {found.iterations_max}'}"


def _progress(done: float, total: float | None, text: str | None) -> str:
    return f"{done:g}{'' if total is None else f' of {total:g}'}{f' {text}' if text else ''}"


async def follow(queue: Queue, given: str, *, as_json: bool = False, after: int | None = None) -> Job:
    """Print what happens to a job, until it has ended: what happened after a cursor of the feed, or its present state
    and what happens from now on."""
    job_id = await whole_id(queue, given)
    now = await queue.get(job_id)
    async with aclosing(queue.watch(job_id, after=after)) as events:
        async for event in events:
            if as_json:
                show_json(event)
            elif event.kind not in ENDED:  # its end is printed below, with the reason
                if event.kind != POSITION:  # a position event contains everything that is printed
                    now = await queue.get(job_id)
                say(f"{event.at.astimezone():%H:%M:%S} {now.task} {now.id} {_event_text(event, now)}")
    ended = await queue.get(job_id)
    if not as_json:
        say(job_sentence(ended))
        if ended.result is not None:
            say_as_it_is(f"Result: {json_text(ended.result)}")
        if ended.error is not None and ended.error.detail is not None:
            say(f"{ended.error.detail}\nMore is in the worker's log under {ended.error.debug_id}.")
    return ended


def _event_text(event: Event, now: Job) -> str:
    """The event in words. Details that the event lacks come from the job, if it is still in that state."""
    detail = event.detail
    match event.kind:
        case "stage":
            return f"is at stage {detail['stage']}{_after_colon(detail.get('message'))}"
        case "progress":
            return f"has done {_progress(detail['done'], detail.get('total'), detail.get('text'))}"
        case "starting" if "worker" in detail:
            return f"starts on {detail['worker']}, attempt {attempts_text(detail['attempt'], now)}"
        case "position":
            return _position_text(**detail)
        case "priority" | "aged":
            return f"has priority {priority_text(detail['priority'])}"
        case "moved":
            return f"was moved and {where(now)}"
        case "cancel_wanted":
            return "was told to stop"
        case "lease_lost":
            return f"was lost by its worker{_after_colon(detail.get('reason'))}"
        case kind if kind == now.state.value:
            return where(now)
        case kind:
            return f"was {kind}"


def _position_text(
    *, position: int, position_original: int, position_message: str, estimate: dict[str, Any] | None
) -> str:
    starts = "" if estimate is None else f", {start_sentence(Estimate(**estimate))}"
    return f"is #{position} in line{starts}{f'. {position_message}' if position > position_original else ''}"


def _after_colon(text: str | None) -> str:
    return f": {text}" if text else ""
