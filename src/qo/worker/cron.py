"""Cron entries: each tick is a job whose id is the entry's name and the tick, so it exists once."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from typing import Any

import msgspec

from qo.errors import InvalidValue, QoError
from qo.loops.repeating import repeat
from qo.loops.trouble import Trouble
from qo.policy.checks import MAX_NAME_CHARACTERS, check_name, check_task
from qo.policy.json_value import encode_json
from qo.queue.queue import Queue
from qo.worker.store_time import StoreTime

log = logging.getLogger("qo.cron")

FIELDS = 5
LONGEST_NAME = MAX_NAME_CHARACTERS - len("cron:@2026-01-01T00:00Z")
"""The id of a tick's job has to be a valid id."""
SLEEP_AT_MOST_SECONDS = 10.0
"""How late a jump of the store's clock is noticed at most."""


class CronEntry(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    expression: str
    task: str
    data: Any = None

    def tick_after(self, moment: datetime) -> datetime:
        from cronsim import CronSim

        tick: datetime = next(CronSim(self.expression, moment))
        return tick

    def job_id(self, tick: datetime) -> str:
        return f"cron:{self.name}@{tick:%Y-%m-%dT%H:%MZ}"


def define_entry(expression: str, task: str, data: Any, *, name: str | None, now: datetime) -> CronEntry:
    """Raises `InvalidValue` for an expression that cannot be read or never fires."""
    from cronsim import CronSimError

    check_task(task)
    encode_json("data", data)
    entry = CronEntry(name=task if name is None else name, expression=expression, task=task, data=data)
    check_name("name", entry.name, longest=LONGEST_NAME)
    try:
        if not isinstance(expression, str) or len(expression.split()) != FIELDS:
            raise CronSimError  # a sixth field would be seconds, which qo does not support
        entry.tick_after(now)
    except (CronSimError, StopIteration) as error:
        raise InvalidValue(
            f"The cron expression of {entry.name!r} is {expression!r}; use five fields such as '0 3 * * *' "
            "(minute, hour, day, month, weekday; UTC)."
        ) from error
    return entry


async def fire(entry: CronEntry, queue: Queue, store_time: StoreTime) -> None:
    """Submit the job of every tick, until cancelled. Ticks that pass while no worker runs are left out."""
    seen = store_time.now()

    async def submit_next() -> None:
        nonlocal seen
        tick = entry.tick_after(seen)
        await sleep_until(tick, store_time)
        seen = tick
        await submit_tick(entry, tick, queue)

    trouble = Trouble(f"cron entry {entry.name} could not be submitted", log)
    await repeat(submit_next, pause=lambda: 0.0, trouble=trouble, retry_seconds=SLEEP_AT_MOST_SECONDS)


async def sleep_until(tick: datetime, store_time: StoreTime) -> None:
    while (wait := (tick - store_time.now()).total_seconds()) > 0:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(min(wait, SLEEP_AT_MOST_SECONDS))


async def submit_tick(entry: CronEntry, tick: datetime, queue: Queue) -> None:
    """Submit a job for this tick. The tick is its `run_at`, so the store's clock decides when it is due."""
    try:
        await queue.submit(entry.task, entry.data, id=entry.job_id(tick), run_at=tick, by=f"cron:{entry.name}")
    except QoError as error:
        log.warning("the tick %s of cron entry %s was left out: %s", tick.isoformat(), entry.name, error)
