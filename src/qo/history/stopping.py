"""A recorder that runs until a signal comes."""

from __future__ import annotations

import asyncio

from qo.history.recorder import Recorder
from qo.worker.signals import heeding_signals


async def run_until_signal(recorder: Recorder) -> None:
    """The first signal lets it end its portion, a second one ends it at once."""
    running = asyncio.create_task(recorder.run(), name="qo-recorder")
    with heeding_signals(_Stopping(recorder, running)):
        try:
            await running
        except asyncio.CancelledError:
            if not running.cancelled():
                raise


class _Stopping:
    def __init__(self, recorder: Recorder, running: asyncio.Task[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._recorder = recorder
        self._running = running

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._recorder.stop)

    def stop_now(self) -> None:
        self._loop.call_soon_threadsafe(self._running.cancel)
