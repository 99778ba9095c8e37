"""`qo submit`: put a job in line."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec

from qo.cli.options import Target, by_option, moment, priority, span, span_or_moment, store_options
from qo.cli.output import show_json
from qo.cli.running import on_queue
from qo.cli.terminal import say, say_as_it_is
from qo.cli.wording import job_sentence, json_text
from qo.errors import Timeout
from qo.job import Job, State
from qo.queue.queue import Queue

HOW_TO_GIVE_DATA = "Give JSON ('{\"id\": 7}', text in double quotes), @FILE, or - for standard input."


def data(value: str) -> Any:
    """Parse JSON that is given directly, in a file, or on standard input."""
    text, source = _read(value)
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        line = (text.split("\n") or [""])[error.lineno - 1]
        near = line[max(0, error.colno - 20) : error.colno + 20].strip()
        place = f"line {error.lineno}, column {error.colno}{f', near {near!r}' if near else ''}"
        raise click.BadParameter(
            f"{source} is not JSON: {error.msg.removesuffix(' at')} at {place}. {HOW_TO_GIVE_DATA}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{source} cannot be kept as JSON: {error}. {HOW_TO_GIVE_DATA}") from None


def _read(value: str) -> tuple[str, str]:
    try:
        if value == "-":
            return sys.stdin.buffer.read().decode(), "standard input"
        if value.startswith("@"):
            return Path(value[1:]).read_bytes().decode(), value[1:]
    except OSError as error:
        raise click.BadParameter(f"{value[1:]} cannot be read: {error.strerror}. {HOW_TO_GIVE_DATA}") from None
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{value} is not UTF-8: {error}.") from None
    return value, "it"


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"JSON has no {constant}")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text} is too large")
    return number


@click.command()
@click.argument("task")
@click.argument("payload", type=data, metavar="[DATA]", required=False)
@click.option("--priority", type=priority, help="0 (soonest) to 99, or urgent, high, normal, low, background.")
@click.option("--user", help="Whose job it is; their tier limits how many run at once.")
@click.option("--project", help="Which project it is for.")
@click.option("--tier", help="The user's tier, such as bootstrapper, partner, cto_scale.")
@click.option("--parent", help="The parent that this job is a phase of.")
@click.option(
    "--phase", type=click.IntRange(min=1), help="Which part of its parent: 1, 2, 3, …; each waits for the one before."
)
@click.option(
    "--group", "groups", multiple=True, metavar="GROUP", help="A further group it belongs to; may be repeated."
)
@click.option(
    "--concurrency-group", metavar="GROUP", help="The group that --concurrency-limit is for. Default: the task's."
)
@click.option(
    "--concurrency-limit", type=click.IntRange(min=0), metavar="N", help="That group's limit, where it has none."
)
@click.option("--unique", metavar="KEY", help="While a job with this key is unfinished, that job is the answer.")
@click.option("--delay", type=span, help="Join the line so much later: 90, 10m, 1.5h, 2d.")
@click.option("--run-at", type=moment, help="Join the line at this time: 2030-12-31T18:00:00Z.")
@click.option(
    "--start-by",
    type=span_or_moment,
    metavar="SPAN|TIME",
    help="Fail unless it has started so soon, or by this time: 90, 10m, 2030-12-31T18:00:00Z.",
)
@click.option("--max-attempts", type=click.IntRange(min=1), metavar="N", help="How often it may be tried.")
@click.option("--timeout", type=span, help="How long one attempt may take: 90, 10m.")
@click.option("--contact", metavar="ADDRESS", help="The e-mail address that reminders about this job go to.")
@click.option("--id", metavar="ID", help="Its id; submitting a known id again gives that job.")
@click.option("--wait", is_flag=True, help="Wait until it has ended; exit code 1 unless it succeeded.")
@click.option("--wait-timeout", type=span, help="Wait at most so long: 90, 10m. Implies --wait.")
@by_option
@store_options
def submit(
    target: Target,
    *,
    task: str,
    payload: Any,
    wait: bool,
    wait_timeout: timedelta | None,
    run_at: datetime | None,
    **fields: Any,
) -> int:
    """Submit a job of TASK, with DATA as its payload: JSON as it stands, @FILE, or - for standard input."""

    _check_pairs(run_at=run_at, **fields)
    shows_changes = not target.as_json and sys.stdout.isatty()  # a person would wonder what it does

    async def submitted(queue: Queue) -> Job:
        # A fast worker may have ended it before it is followed.
        before = (await queue.store.events(None)).cursor if shows_changes else None
        job = await queue.submit(task, payload, run_at=run_at, **fields)
        job = msgspec.structs.replace(job, estimate=(await queue.get(job.id)).estimate)
        if wait or wait_timeout is not None:
            if not target.as_json:
                _say_submitted(job)
            seconds = None if wait_timeout is None else wait_timeout.total_seconds()
            job = await (_follow(queue, job.id, seconds, before) if shows_changes else queue.wait(job.id, seconds))
        return job

    job = on_queue(target, submitted, creates=True)
    if target.as_json:
        show_json(job)
    elif not (wait or wait_timeout is not None):
        _say_submitted(job)
    elif not shows_changes:
        say(job_sentence(job))
        if job.result is not None:
            say_as_it_is(f"Result: {json_text(job.result)}")
    return 1 if job.state in (State.FAILED, State.CANCELLED) else 0


def _check_pairs(
    *,
    delay: timedelta | None,
    run_at: datetime | None,
    tier: str | None,
    user: str | None,
    phase: int | None,
    parent: str | None,
    **others: Any,
) -> None:
    """Raise for options that do not go together. The queue would refuse them too, in the words of Python."""
    context = click.get_current_context()
    if delay is not None and run_at is not None:
        raise click.UsageError("--delay and --run-at were both given; give one of the two.", context)
    if tier is not None and user is None:
        raise click.UsageError(f"--tier {tier} was given without --user; name the user whose tier it is.", context)
    if phase is not None and parent is None:
        raise click.UsageError(f"--phase {phase} was given without --parent; name the parent of that phase.", context)


async def _follow(queue: Queue, job_id: str, seconds: float | None, after: int | None) -> Job:
    from qo.cli.job import follow

    try:
        return await asyncio.wait_for(follow(queue, job_id, after=after), seconds)
    except TimeoutError:
        raise Timeout(
            f"Job {job_id!r} has not ended within {seconds:g} seconds; it goes on without you waiting."
        ) from None


def _say_submitted(job: Job) -> None:
    say(job_sentence(job, with_start=True))
