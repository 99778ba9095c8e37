"""`qo submit`: put a job in line."""

from __future__ import annotations

import json
import math
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import click

from qo.cli.options import MOMENT, PRIORITY, SPAN, Target, by_option, store_options
from qo.cli.output import say, show_json
from qo.cli.running import on_queue
from qo.cli.telling import data_told, told
from qo.job import Estimate, Job, State
from qo.runtime.queue import Queue

HOW_TO_GIVE_DATA = "Give JSON ('{\"id\": 7}', text in double quotes), @FILE, or - for standard input."


class Data(click.ParamType):
    """JSON as it stands, in a file, or on standard input."""

    name = "data"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        text, source = self._read(value, param, ctx)
        try:
            return json.loads(text, parse_constant=self._refuse_constant, parse_float=self._finite)
        except json.JSONDecodeError as error:
            line = text.splitlines()[error.lineno - 1] if text.strip() else ""
            here = line[max(0, error.colno - 20) : error.colno + 20]
            near = f" near {here!r}" if here else ""
            where = f"line {error.lineno}, column {error.colno}{near}"
            self.fail(f"{source} is not JSON: {error.msg} at {where}. {HOW_TO_GIVE_DATA}", param, ctx)
        except (ValueError, RecursionError) as error:
            self.fail(f"{source} is not JSON that can be kept: {error}. {HOW_TO_GIVE_DATA}", param, ctx)

    def _read(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        try:
            if value == "-":
                return sys.stdin.buffer.read().decode(), "standard input"
            if value.startswith("@"):
                return Path(value[1:]).read_bytes().decode(), value[1:]
        except OSError as error:
            self.fail(f"{value[1:]} cannot be read: {error.strerror}. {HOW_TO_GIVE_DATA}", param, ctx)
        except UnicodeDecodeError as error:
            self.fail(f"{value} is not UTF-8: {error}.", param, ctx)
        return value, "it"

    @staticmethod
    def _refuse_constant(constant: str) -> NoReturn:
        raise ValueError(f"JSON has no {constant}")

    @staticmethod
    def _finite(text: str) -> float:
        number = float(text)
        if math.isinf(number):
            raise ValueError(f"the number {text} is too large")
        return number


@click.command()
@click.argument("task")
@click.argument("data", type=Data(), required=False)
@click.option("--priority", type=PRIORITY, help="0 (soonest) to 99, or urgent, high, normal, low, background.")
@click.option("--user", help="Whose job it is; their tier limits how many run at once.")
@click.option("--project", help="Which project it is for.")
@click.option("--tier", help="The user's tier, such as bootstrapper, partner, cto_scale.")
@click.option("--parent", help="What it is a part of.")
@click.option("--phase", type=click.IntRange(min=1), help="Which part of its parent: 1, 2, 3, …; each waits for the one before.")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="A further group it belongs to; may be repeated.")
@click.option("--concurrency-group", metavar="GROUP", help="The group that --concurrency-limit is for. Default: the task's.")
@click.option("--concurrency-limit", type=click.IntRange(min=0), metavar="N", help="That group's limit, where it has none.")
@click.option("--unique", metavar="KEY", help="While a job with this key is unfinished, that job is the answer.")
@click.option("--delay", type=SPAN, help="Join the line so much later: 90, 10m, 1.5h, 2d.")
@click.option("--run-at", type=MOMENT, help="Join the line at this time: 2030-12-31T18:00:00Z.")
@click.option("--max-attempts", type=click.IntRange(min=1), metavar="N", help="How often it may be tried.")
@click.option("--timeout", type=SPAN, help="How long one attempt may take: 90, 10m.")
@click.option("--id", metavar="ID", help="Its id; submitting a known id again gives that job.")
@click.option("--wait", is_flag=True, help="Wait until it has ended; exit code 1 unless it succeeded.")
@click.option("--wait-timeout", type=SPAN, help="Wait at most so long: 90, 10m. Implies --wait.")
@by_option
@store_options
def submit(
    target: Target, *, task: str, data: Any, wait: bool, wait_timeout: timedelta | None, run_at: datetime | None, **fields: Any
) -> int:
    """Submit a job of TASK, with DATA as its payload: JSON as it stands, @FILE, or - for standard input."""

    async def submitted(queue: Queue) -> tuple[Job, Estimate | None]:
        job = await queue.submit(task, data, run_at=run_at, **fields)
        estimate = await queue.estimate(job.id)
        if wait or wait_timeout is not None:
            if not target.as_json:
                _tell_submitted(job, estimate)
            job = await queue.wait(job.id, None if wait_timeout is None else wait_timeout.total_seconds())
        return job, estimate

    job, estimate = on_queue(target, submitted)
    if target.as_json:
        show_json(job)
    elif not (wait or wait_timeout is not None):
        _tell_submitted(job, estimate)
    else:
        say(told(job))
        if job.result is not None:
            say(f"Result: {data_told(job.result)}")
    return 1 if job.state in (State.FAILED, State.CANCELLED) else 0


def _tell_submitted(job: Job, estimate: Estimate | None) -> None:
    starts = "" if estimate is None else f" It starts in about {estimate.message}."
    say(f"{told(job)}{starts}")
