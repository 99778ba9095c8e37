"""Overviews for operators: made every few seconds from the shared reading of the line, beside the frames."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from qo.policy.analytics import MINUTE_MS, analyse
from qo.policy.flow import flow_of
from qo.policy.reasons.line import LineReasons
from qo.queue.queue import Queue
from qo.service.stream.frames import LastHour, Overview
from qo.values import InLine, SeriesPoint

EVERY_SECONDS = 5.0
MINUTES = 60
MINUTES_SHOWN = 12
"""Of so many minutes pages draw the starts."""
SOON_SECONDS = 0.25
"""How soon to look again for an overview that is being made."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """An overview, and the reading that it was made from."""

    overview: Overview
    reasons: LineReasons
    line: Sequence[InLine]


class Overviews:
    """One is made at a time, in a task of its own: no frame waits for it."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._making: asyncio.Task[View] | None = None
        self._due = 0.0

    async def make(self) -> View:
        view, store, clock = self._queue.line_view, self._queue.store_here, self._queue.system.clock
        situation, reasons = (await view.forecast()).situation, await view.reasons()
        since_minute = clock() // MINUTE_MS - MINUTES
        series, counts = await asyncio.gather(store.series(since_minute=since_minute), store.counts())
        overview = Overview(
            waits_for=reasons.overview(counts),
            flow=flow_of(series, now_ms=clock()),
            last_hour=_last_hour(series, now_ms=clock()),
            counts=counts,
        )
        self._due = self._queue.system.monotonic() + EVERY_SECONDS
        return View(overview=overview, reasons=reasons, line=situation.line)

    def seconds_left(self) -> float:
        """When to look for the next one."""
        return SOON_SECONDS if self._making is not None else max(self._due - self._queue.system.monotonic(), 0.0)

    def finished(self) -> View | None:
        """A new one, until `taken` is called; None while there is none. Begins to make the next one when it is due.

        Raises the error of one that could not be made.
        """
        if self._making is None:
            if self._queue.system.monotonic() >= self._due:
                self._making = asyncio.create_task(self.make(), name="qo-overview")
            return None
        if not self._making.done():
            return None
        if self._making.exception() is not None:
            failed, self._making = self._making, None
            self._due = self._queue.system.monotonic() + EVERY_SECONDS
            return failed.result()
        return self._making.result()

    def taken(self) -> None:
        self._making = None

    def stop(self) -> None:
        """Cancel the one that is being made."""
        if self._making is not None:
            self._making.cancel()
            self._making = None


def _last_hour(series: Sequence[SeriesPoint], *, now_ms: int) -> LastHour:
    figures = analyse(waiting=0, workers=(), series=series, minutes=MINUTES, now_ms=now_ms)
    return LastHour(
        started=figures.series.started[-MINUTES_SHOWN:],
        average_wait_seconds={
            priority: round(seconds, 1) for priority, seconds in figures.average_wait_seconds.items()
        },
        ended=figures.ended,
        promise=figures.promise,
    )
