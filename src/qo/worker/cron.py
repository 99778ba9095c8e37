"""Cron entries: each tick is a job whose id is the entry's name and the tick, so it exists once."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from typing import Any

import msgspec

from qo.clock import Clock
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


class Ticks:
    """The ticks of an entry that its worker has not submitted yet.

    Ticks that pass while no worker runs are left out. On a clock that a test sets they are submitted when the worker
    runs again: there, time passes only between two runs.
    """

    def __init__(self, entry: CronEntry, test_clock: Clock | None = None) -> None:
        self.entry = entry
        self._is_on_test_clock = test_clock is not None
        self._after = None if test_clock is None else test_clock.now()

    def begin(self, now: datetime) -> None:
        """The worker begins to run."""
        if not self._is_on_test_clock:
            self._after = now

    def next(self) -> datetime:
        assert self._after is not None, "the worker does not run"
        return self.entry.tick_after(self._after)

    async def submit(self, tick: datetime, queue: Queue) -> None:
        self._after = tick
        await submit_tick(self.entry, tick, queue)

    async def submit_due(self, queue: Queue, store_time: StoreTime) -> None:
        while (tick := self.next()) <= store_time.now():
            await self.submit(tick, queue)


async def fire(ticks: Ticks, queue: Queue, store_time: StoreTime) -> None:
    """Submit the job of every tick, until cancelled."""

    async def submit_next() -> None:
        tick = ticks.next()
        await sleep_until(tick, store_time)
        await ticks.submit(tick, queue)

    trouble = Trouble(f"cron entry {ticks.entry.name} could not be submitted", log)
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
