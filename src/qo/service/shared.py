"""What the operations of one server share."""

from __future__ import annotations

import asyncio
import logging

from qo.loops.repeating import repeat
from qo.loops.trouble import Trouble
from qo.queue.queue import Queue
from qo.service.access.gate import Gate
from qo.service.access.keys import Keys
from qo.service.access.sessions import Sessions
from qo.service.access.watch_links import WatchLinks
from qo.service.metrics import QueueMetrics, StreamCounts
from qo.service.readiness import Readiness
from qo.service.recording import BackgroundRecorder, reader_of
from qo.service.stream.job import JobStreams
from qo.service.stream.live import LiveStreams
from qo.service.stream.response import times_from
from qo.service.stream.watchers import Watchers

log = logging.getLogger("qo.service")

LOOK_AT_STREAMS_SECONDS = 1.0
"""With the 3 seconds for which keys are cached at most, a stream ends within 5 seconds after its key was revoked."""


class Shared:
    """Made in the event loop that serves."""

    def __init__(self, queue: Queue, *, keys: Keys | None = None) -> None:
        self.queue = queue
        self.keys = Keys(queue.store, system=queue.system) if keys is None else keys
        self.sessions = Sessions(queue.store, system=queue.system)
        self.gate = Gate(self.keys, self.sessions, queue.settings.server, system=queue.system)
        self.watch_links = WatchLinks(queue.store, system=queue.system)
        self.watchers = Watchers()
        self.job_streams = JobStreams(queue)
        self.live_streams = LiveStreams(queue)
        self.stream_times = times_from(queue.settings)
        self.what_ifs_under_way = 0
        self.readiness = Readiness(queue)
        self._looking: asyncio.Task[None] | None = None
        self.metrics = QueueMetrics(queue, streams=self._stream_counts)
        self.history = reader_of(queue)
        """Reads the history where a database keeps it."""
        url = queue.settings.history.url
        self._recorder = None if self.history is None or url is None else BackgroundRecorder(queue, url)

    def _stream_counts(self) -> StreamCounts:
        return StreamCounts(
            open=self.watchers.open,
            dropped={reason.value: count for reason, count in self.watchers.dropped.items()},
        )

    def start(self) -> None:
        self._looking = asyncio.create_task(self._look_at_streams(), name="qo-streams")
        if self._recorder is not None:
            self._recorder.start()

    async def _look_at_streams(self) -> None:
        trouble = Trouble("whether keys of open streams are still valid is not known for now", log)
        await repeat(
            self.watchers.close_refused,
            pause=lambda: LOOK_AT_STREAMS_SECONDS,
            retry_seconds=LOOK_AT_STREAMS_SECONDS,
            trouble=trouble,
        )

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        if self._recorder is not None:
            await self._recorder.close()
        if self.history is not None:
            await self.history.close()
        await self.live_streams.close()
        await self.keys.close()
