"""Cron entries: each tick is a job whose id is the entry's name and the tick, so it exists once."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from typing import Any

import msgspec

from qo.errors import InvalidValue, QoError
from qo.policy.json_value import encode_json
from qo.runtime.queue import Queue
from qo.runtime.store_time import StoreTime
from qo.spans import system_now
from qo.store.check_value import MAX_NAME_CHARACTERS, check_name, check_task

log = logging.getLogger("qo.cron")

FIELDS = 5
LONGEST_NAME = MAX_NAME_CHARACTERS - len("cron:@2026-01-01T00:00Z")
"""so that the id of a tick's job is an id"""
SLEEP_AT_MOST_SECONDS = 10.0
"""how late it is noticed that the store's clock was set forward"""


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


def define_entry(expression: str, task: str, data: Any, *, name: str | None) -> CronEntry:
    """Raises `InvalidValue` for an expression that is none, or that never fires."""
    from cronsim import CronSimError

    check_task(task)
    encode_json("data", data)
    entry = CronEntry(name=task if name is None else name, expression=expression, task=task, data=data)
    check_name("name", entry.name, longest=LONGEST_NAME)
    try:
        if not isinstance(expression, str) or len(expression.split()) != FIELDS:
            raise CronSimError  # one field more would be seconds, which nobody looks at
        entry.tick_after(system_now())
    except (CronSimError, StopIteration) as error:
        raise InvalidValue(
            f"The cron expression of {entry.name!r} is {expression!r}; use five fields such as '0 3 * * *' "
            "(minute, hour, day, month, weekday; UTC)."
        ) from error
    return entry


async def fire(entry: CronEntry, queue: Queue, store_time: StoreTime) -> None:
    """Submit the job of every tick, until cancelled. Ticks while nobody ran are left out."""
    seen = store_time.now()
    while True:
        tick = entry.tick_after(seen)
        await _sleep_until(tick, store_time)
        await submit_tick(entry, tick, queue)
        seen = tick


async def _sleep_until(tick: datetime, store_time: StoreTime) -> None:
    while (wait := (tick - store_time.now()).total_seconds()) > 0:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(min(wait, SLEEP_AT_MOST_SECONDS))


async def submit_tick(entry: CronEntry, tick: datetime, queue: Queue) -> None:
    """The tick is the job's time, so that the store's clock decides when it is due, whatever this process believes."""
    try:
        await queue.submit(entry.task, entry.data, id=entry.job_id(tick), run_at=tick, by=f"cron:{entry.name}")
    except QoError as error:
        log.warning("the tick %s of cron entry %s was left out: %s", tick.isoformat(), entry.name, error)
