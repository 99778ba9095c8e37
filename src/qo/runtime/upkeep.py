"""What every worker does in passing so that nothing depends on an extra process.

Each step is bounded and safe at any time, however many workers do it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from qo import chance
from qo.errors import QoError
from qo.job import JobError
from qo.policy.confirming import message_now
from qo.runtime.cleaned import CleanedSlots
from qo.runtime.notifier import Notice, Notifier
from qo.runtime.queue import Queue
from qo.runtime.trouble import Trouble
from qo.store.values import Portion, Reminder

log = logging.getLogger("qo.upkeep")

EVERY_SECONDS = 30.0
CATCH_UP_EVERY_SECONDS = 1.0
KEEP_EVENTS = 100_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Upkeep:
    """`run` goes on until it is cancelled. `cursor` is that of the feed before the worker's first claim."""

    def __init__(self, queue: Queue, *, notifier: Notifier, cursor: int) -> None:
        self._store = queue.store
        self._settings = queue.settings
        self._notifier = notifier
        self._cleaned = CleanedSlots(queue.store, cursor)

    async def run(self) -> None:
        await asyncio.gather(
            self._repeat(self.catch_up, CATCH_UP_EVERY_SECONDS), self._repeat(self.tend, EVERY_SECONDS)
        )

    async def _repeat(self, step: Callable[[], Awaitable[None]], every_seconds: float) -> None:
        trouble = Trouble("upkeep could not be done")
        while True:
            # Drawn anew each time, so that workers which started together do not come together.
            await asyncio.sleep(every_seconds * chance.between(0.5, 1.5))
            try:
                await step()
                trouble.over()
            except QoError as error:
                trouble.tell(error)
            except Exception:
                # Whatever it was, the next portion may go through.
                log.exception("upkeep failed, trying again")

    async def catch_up(self) -> None:
        """Recover leases that ran out and let due jobs join. A claim does it too, but a full worker claims nothing."""
        await _to_the_end(self._store.catch_up)
        await self._cleaned.tell()

    async def tend(self) -> None:
        """Aging, confirmations, reminders and retention."""
        queue, confirmation = self._settings.queue, self._settings.confirmation
        on_redis = self._store.kind == "redis"
        retention_days = queue.retention_days_redis if on_redis else queue.retention_days_sql
        audit_entries = queue.audit_entries_redis if on_redis else queue.audit_entries_sql
        if queue.aging_period_secs:
            await _to_the_end(lambda: self._store.age(period_ms=round(queue.aging_period_secs * 1000)))
        hours = confirmation.expires_after_hours
        error = JobError(
            message=f"Nobody confirmed within {hours:g} hours, so it was stopped. Retry it to be asked again."
        )
        await _to_the_end(lambda: self._store.fail_unconfirmed(after_ms=round(hours * HOUR_MS), error=error))
        await self.remind()
        await _to_the_end(
            lambda: self._store.forget(
                keep_ms=round(retention_days * DAY_MS),
                keep_jobs=queue.retention_jobs,
                keep_events=KEEP_EVENTS,
                keep_audit=audit_entries,
            )
        )

    async def remind(self) -> None:
        """Send what is due. A reminder is taken before it is sent: rather none than one from every worker."""
        ages = [round(hours * HOUR_MS) for hours in self._settings.confirmation.reminders_after_hours]
        while reminders := await self._store.take_reminders(ages_ms=ages):
            for reminder in reminders:
                await self._notifier.send(await self._notice(reminder))

    async def _notice(self, reminder: Reminder) -> Notice:
        job = await self._store.job(reminder.job_id)
        question = message_now(job) or ""
        hours = self._settings.confirmation.reminders_after_hours[reminder.number - 1]
        return Notice(
            kind="confirmation_reminder",
            job_id=job.id,
            task=job.task,
            user=job.user,
            message=f"{job.task} has waited {hours:g} hours for a confirmation. {question}".strip(),
            at=reminder.confirmation_required_at,
            detail={"number": reminder.number},
        )


async def _to_the_end(step: Callable[[], Awaitable[Portion]]) -> None:
    more = True
    while more:
        more = (await step()).more
