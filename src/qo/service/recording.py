"""The history of a server: a reader of PostgreSQL, and a recorder in a thread of its own, where both are configured."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from qo.loops.background import Background
from qo.loops.timing import within
from qo.loops.trouble import Trouble
from qo.queue.queue import Queue

if TYPE_CHECKING:
    from qo.history.reading import HistoryReader
    from qo.history.recorder import Recorder

log = logging.getLogger("qo.history")

TRY_AGAIN_SECONDS = 30.0
"""After an error that the recorder does not wait for by itself, such as a right that its role lacks."""


def reader_of(queue: Queue) -> HistoryReader | None:
    """None where the store keeps its history itself, or no database is configured."""
    url = queue.settings.history.url
    if url is None or queue.store.outbox is None:
        return None
    from qo.history.reading import HistoryReader

    return HistoryReader(url)


class BackgroundRecorder:
    """A recorder beside the server. It has a thread, because a portion takes longer than a stream should wait."""

    def __init__(self, queue: Queue, url: str) -> None:
        self._queue = queue
        self._url = url
        self._recorder: Recorder | None = None
        self._stopped: asyncio.Event | None = None  # made in its own event loop
        self._is_stopped = False
        self._background: Background | None = None

    def start(self) -> None:
        self._background = self._queue.system.start_background(self._record, "qo-recorder")

    async def close(self) -> None:
        if self._background is not None:
            background, self._background = self._background, None
            background.call_soon(self._stop)
            await background.ended()

    def _stop(self) -> None:
        self._is_stopped = True
        if self._stopped is not None:
            self._stopped.set()
        if self._recorder is not None:
            self._recorder.stop()

    async def _record(self) -> None:
        from qo.history.recorder import Recorder

        self._stopped = asyncio.Event()
        trouble = Trouble("this server does not record the history", log)
        while not self._is_stopped:
            try:
                self._recorder = Recorder(self._queue, self._url)
                await self._recorder.run()
            except Exception as error:  # of whatever class: the server goes on, and so does the next attempt
                trouble.tell(error)
                await within(TRY_AGAIN_SECONDS, self._stopped.wait())
