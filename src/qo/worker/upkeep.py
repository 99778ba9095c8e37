"""Upkeep of the store, done by every worker so that no extra process is needed.

Each step is bounded, and safe at any time, however many workers do it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from qo.job import JobError
from qo.loops.repeating import repeat
from qo.loops.trouble import Trouble
from qo.notify.notice import Notice
from qo.notify.notifier import Notifier
from qo.policy.confirming import message_now
from qo.queue.queue import Queue
from qo.spans import whole_ms
from qo.values import Keep, Reminder, UpkeepRules
from qo.worker.cleaned import CleanedSlots

EVERY_SECONDS = 30.0
CATCH_UP_EVERY_SECONDS = 1.0
KEEP_EVENTS = 100_000
HOUR_SECONDS = 3600
DAY_SECONDS = 24 * HOUR_SECONDS


class Upkeep:
    """`run` goes on until it is cancelled. `cursor` is the feed's cursor before the worker's first claim."""

    def __init__(self, queue: Queue, *, notifier: Notifier, cursor: int) -> None:
        self._store = queue.store
        self._settings = queue.settings
        self._system = queue.system
        self._notifier = notifier
        self._cleaned = CleanedSlots(queue.store, cursor)

    async def run(self) -> None:
        await asyncio.gather(
            self._repeat(self.catch_up, CATCH_UP_EVERY_SECONDS), self._repeat(self.tend, EVERY_SECONDS)
        )

    async def _repeat(self, step: Callable[[], Awaitable[None]], every_seconds: float) -> None:
        def pause() -> float:
            # Drawn anew each time, so that workers that started together do not do this together.
            return every_seconds * self._system.between(0.5, 1.5)

        await repeat(step, pause=pause, trouble=Trouble("upkeep could not be done"))

    async def catch_up(self) -> None:
        """Recover leases that ran out and let due jobs join the line. A claim does so too, but a full worker makes no
        claims."""
        while (await self._store.catch_up()).more:
            pass
        await self._cleaned.log_new()

    async def tend(self) -> None:
        """Aging, confirmations, reminders and retention."""
        rules, more = self._rules(), True
        while more:
            done = await self._store.upkeep(rules)
            more = done.more
            # Each reminder is taken from the store before it is sent: one may get lost, but none is sent twice.
            for reminder in done.reminders:
                await self._notifier.send(await self._notice(reminder), contact=reminder.contact)

    def _rules(self) -> UpkeepRules:
        queue, confirmation = self._settings.queue, self._settings.confirmation
        retention = self._store.retention
        retention_days = retention.days if queue.retention_days is None else queue.retention_days
        hours = confirmation.expires_after_hours
        return UpkeepRules(
            aging_period_ms=whole_ms(queue.aging_period_secs) or None,
            unconfirmed_after_ms=whole_ms(hours * HOUR_SECONDS),
            unconfirmed_error=JobError(
                message=f"Nobody confirmed within {hours:g} hours, so it was stopped. Retry it to be asked again."
            ),
            reminder_ages_ms=tuple(whole_ms(each * HOUR_SECONDS) for each in confirmation.reminders_after_hours),
            keep=Keep(
                ms=whole_ms(retention_days * DAY_SECONDS),
                jobs=queue.retention_jobs,
                events=KEEP_EVENTS,
                audit=retention.audit_entries if queue.audit_entries is None else queue.audit_entries,
            ),
        )

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
