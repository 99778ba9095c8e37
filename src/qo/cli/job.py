"""`qo job`: one job as it is, or as it goes on."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import click

from qo.cli.options import Target, store_options
from qo.cli.output import say, show_fields, show_json
from qo.cli.running import reading
from qo.cli.telling import attempts_told, data_told, priority_told, start_sentence, starts_told, time_told, told, where
from qo.event import POSITION, Event
from qo.job import ENDED, Estimate, Job, State
from qo.runtime.queue import Queue


@click.command()
@click.argument("job_id", metavar="ID")
@click.option("--watch", is_flag=True, help="Follow it until it has ended; exit code 1 if it failed or was cancelled.")
@store_options
def job(target: Target, *, job_id: str, watch: bool) -> int:
    """Show the job ID, or with --watch what happens to it (with --json a line for each event)."""
    if watch:
        ended = reading(target, lambda queue: _watch(queue, job_id, as_json=target.as_json))
        return 1 if ended.state in (State.FAILED, State.CANCELLED) else 0
    found = reading(target, lambda queue: queue.get(job_id))
    if target.as_json:
        show_json(found)
    else:
        show_job(found)
    return 0


def show_job(found: Job) -> None:
    say(told(found))
    error, progress = found.error, found.progress
    show_fields(
        [
            ("status", found.status),
            ("place", found.position_message),
            ("starts in", starts_told(found.estimate)),
            ("priority", priority_told(found.priority)),
            ("user", found.user),
            ("project", found.project),
            ("tier", found.tier),
            ("parent", found.parent),
            ("phase", found.phase),
            ("unique", found.unique),
            ("groups", ", ".join(found.groups)),
            ("attempts", attempts_told(found.attempts, found)),
            ("iterations", _iterations(found)),
            ("progress", None if progress is None else _progress(progress.done, progress.total, progress.text)),
            ("message", found.message),
            ("worker", found.worker),
            ("run at", time_told(found.run_at)),
            ("submitted", time_told(found.submitted_at)),
            ("joined", time_told(found.joined_at)),
            ("started", time_told(found.started_at)),
            ("asked", time_told(found.confirmation_required_at)),
            ("finished", time_told(found.finished_at)),
            ("result", data_told(found.result)),
            ("error", None if error is None else error.message),
            ("detail", None if error is None else error.detail),
            ("debug id", None if error is None else error.debug_id),
        ]
    )


def _iterations(found: Job) -> str | None:
    if not found.iterations:
        return None
    granted = "" if found.iterations_granted is None else f", {found.iterations_granted} granted"
    return f"{found.iterations}{granted}{'' if found.iterations_max is None else f', at most {found.iterations_max}'}"


def _progress(done: float, total: float | None, text: str | None) -> str:
    return f"{done:g}{'' if total is None else f' of {total:g}'}{f' {text}' if text else ''}"


async def _watch(queue: Queue, job_id: str, *, as_json: bool) -> Job:
    now = await queue.get(job_id)
    async with aclosing(queue.watch(job_id)) as events:
        async for event in events:
            if as_json:
                show_json(event)
            elif event.kind not in ENDED:  # how it ended is told below, with its reason
                if event.kind != POSITION:  # which brings everything that is told of it
                    now = await queue.get(job_id)
                say(f"{event.at.astimezone():%H:%M:%S} {now.task} {now.id} {_event_told(event, now)}")
    ended = await queue.get(job_id)
    if not as_json:
        say(told(ended))
        if ended.result is not None:
            say(f"Result: {data_told(ended.result)}")
        if ended.error is not None and ended.error.detail is not None:
            say(f"{ended.error.detail}\nMore is in the worker's log under {ended.error.debug_id}.")
    return ended


def _event_told(event: Event, now: Job) -> str:
    """What happened. Where an event tells only the new state, the job says the rest if it still is in it."""
    detail = event.detail
    match event.kind:
        case "stage":
            return f"is at stage {detail['stage']}{_after_colon(detail.get('message'))}"
        case "progress":
            return f"has done {_progress(detail['done'], detail.get('total'), detail.get('text'))}"
        case "starting" if "worker" in detail:
            return f"starts on {detail['worker']}, attempt {attempts_told(detail['attempt'], now)}"
        case "position":
            return _position_told(**detail)
        case "priority" | "aged":
            return f"has priority {priority_told(detail['priority'])}"
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


def _position_told(
    *, position: int, position_original: int, position_message: str, estimate: dict[str, Any] | None
) -> str:
    starts = "" if estimate is None else f", {start_sentence(Estimate(**estimate))}"
    return f"is #{position} in line{starts}{f'. {position_message}' if position > position_original else ''}"


def _after_colon(text: str | None) -> str:
    return f": {text}" if text else ""
