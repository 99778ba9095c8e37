"""The recorder: from a store's outbox into PostgreSQL, each entry once, whatever fails in between.

It reads the oldest entries, writes them in one transaction, and then has them removed. Whichever of these steps it dies
in, the next one reads the same entries again, and those that were written change nothing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

import msgspec

from qo.errors import HistoryAway, SettingsError, StoreUnavailable
from qo.history.records import Record, records_of
from qo.history.slot import LEASE_SECONDS, RecorderSlot
from qo.history.writing import Writer, Written
from qo.loops.trouble import Trouble
from qo.queue.queue import Queue
from qo.settings import HistorySettings
from qo.store.outbox import Outbox, OutboxEntry, OutboxOptions

log = logging.getLogger("qo.history")

ENTRIES_AT_ONCE = 500
BYTES_AT_ONCE = 2 * 1024 * 1024
IDLE_SECONDS = 0.5
"""How long an entry waits at most while the recorder has nothing else to do."""
WAITING_SECONDS = 2.0
"""How often a recorder asks for the slot that another one holds."""
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.5, 30.0
MANY_RECORDS = 100_000
"""With so many records in the outbox, the recorder warns."""


class RecordsPortion(NamedTuple):
    records: list[Record]
    last: OutboxEntry


class RecorderNumbers(msgspec.Struct):
    """What this recorder has done since it began."""

    recorded: int = 0
    renumbered: int = 0
    rejected: int = 0


def outbox_of(queue: Queue) -> Outbox:
    """Raises `SettingsError` where the store keeps its history itself."""
    if queue.store.outbox is None:
        raise SettingsError(
            f"The store ({queue.store.location}) keeps its history itself and needs no recorder; read the views "
            "history_jobs, history_daily and history_audit in its file."
        )
    return queue.store.outbox


def options_from(settings: HistorySettings) -> OutboxOptions:
    return OutboxOptions(most=settings.outbox_max, drops=settings.on_full == "drop", payloads=settings.payloads)


class Recorder:
    """`run` until `stop`. Any number may run; one records, the others wait for its slot."""

    def __init__(
        self, queue: Queue, url: str, *, lease_seconds: float = LEASE_SECONDS, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        settings = queue.settings
        self._outbox = outbox_of(queue)
        self._options = options_from(settings.history)
        self._system = queue.system
        self._slot = RecorderSlot(queue.store, system=queue.system, lease_seconds=lease_seconds)
        self._waiting_seconds = min(WAITING_SECONDS, lease_seconds)
        self._idle_seconds = idle_seconds
        self._writer = Writer(url, namespace=self._outbox.namespace, keep_days=settings.history.keep_days)
        self._ahead: RecordsPortion | None = None
        self._recorded: OutboxEntry | None = None
        self._stopped = asyncio.Event()
        self._warned = False
        self._trouble = Trouble("the history is not recorded for now", log)
        self._retry_seconds = FIRST_RETRY_SECONDS
        self.numbers = RecorderNumbers()

    async def run(self) -> None:
        """Raises `SettingsError` where waiting does not help. PostgreSQL or the store being away is logged and waited
        for."""
        try:
            while not self._stopped.is_set():
                try:
                    self._ahead = None  # it may be another recorder's by now
                    await self.open()
                    await self._record_while_held()
                except (HistoryAway, StoreUnavailable) as error:
                    self._trouble.tell(error)
                    await self._pause(self._system.between(self._retry_seconds / 2, self._retry_seconds))
                    self._retry_seconds = min(self._retry_seconds * 2, LONGEST_RETRY_SECONDS)
        finally:
            await self._slot.give_back()
            await self.close()

    async def open(self) -> None:
        """Switch the outbox on, and migrate the database where that is needed and allowed."""
        await self._outbox.configure(self._options)
        await self._writer.open()

    async def close(self) -> None:
        await self._writer.close()

    def stop(self) -> None:
        """It ends after the portion that it is writing. Has to be called in the event loop of `run`."""
        self._stopped.set()

    async def _record_while_held(self) -> None:
        while not await self._slot.take():
            self._warn_of((await self._outbox.status()).length)
            await self._pause(self._waiting_seconds)
            if self._stopped.is_set():
                return
        log.info("recording the history into %s", self._writer.location)
        while await self._slot.keep():
            wrote = await self.step()
            self._trouble.over()
            self._retry_seconds = FIRST_RETRY_SECONDS
            if self._stopped.is_set():
                await self._read(entries=0)  # so that the last portion is removed, too
                return
            if not wrote:
                await self._pause(self._idle_seconds)
        log.warning("this recorder has lost its slot, and asks for it again")

    async def step(self) -> int:
        """Record one portion, and return how many records it had. 0: the outbox is empty.

        While the database writes, the next portion is read.
        """
        portion, self._ahead = self._ahead or await self._read(), None
        if portion is None:
            return 0
        reading = asyncio.create_task(self._read(after=portion.last))
        try:
            self._count(await self._writer.write(portion.records))
            ahead = await reading
        except BaseException:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            raise
        self._ahead, self._recorded = ahead, portion.last
        return len(portion.records)

    async def _read(self, *, after: OutboxEntry | None = None, entries: int = ENTRIES_AT_ONCE) -> RecordsPortion | None:
        """The oldest entries that were not recorded, or those behind `after`, once those that were recorded are
        removed. None where there are none."""
        recorded, self._recorded = self._recorded, None
        portion = await self._outbox.next(recorded, after=after, entries=entries, bytes_at_most=BYTES_AT_ONCE)
        self._warn_of(portion.length)
        return RecordsPortion(records_of(portion.entries), portion.entries[-1]) if portion.entries else None

    def _count(self, written: Written) -> None:
        numbers = self.numbers
        numbers.recorded += written.recorded
        numbers.renumbered += written.renumbered
        numbers.rejected += written.rejected
        if written.renumbered:
            log.warning(
                "the store had lost its newest data and gave %d entry ids again; these entries have new ids",
                written.renumbered,
            )

    def _warn_of(self, length: int) -> None:
        if length >= MANY_RECORDS and not self._warned:
            log.warning(
                "%d records wait in the outbox for the history's recorder; at %d %s",
                length,
                self._options.most,
                "they are dropped" if self._options.drops else "submits are refused",
            )
        self._warned = length >= MANY_RECORDS

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            pass


async def switch_off(queue: Queue) -> None:
    """Empty the outbox, and add nothing to it from now on."""
    await outbox_of(queue).configure(OutboxOptions(most=0))
