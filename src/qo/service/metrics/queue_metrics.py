"""QueueMetrics: the metrics of a queue, as a server reports them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from qo.queue.queue import Queue
from qo.service.metrics.exposition import queue_text
from qo.service.metrics.figure_sums import FigureSums
from qo.service.metrics.group_labels import GroupLabels
from qo.service.metrics.numbers import QueueNumbers, Slots, StreamCounts
from qo.store.outbox import OutboxStatus
from qo.values import GroupStatus


class QueueMetrics:
    """One for each queue of a process.

    Counters are of the store and not of this process, so every server reports the same totals; only the streams are
    those of this server. No counter goes down while the process lives. Where the totals of two servers differ is in
    `figure_sums.py` and `group_labels.py`.
    """

    def __init__(self, queue: Queue, *, streams: Callable[[], StreamCounts] = StreamCounts) -> None:
        """`streams` returns the present numbers of this server's event streams."""
        self._queue = queue
        self._streams = streams
        self._labels = GroupLabels()
        self._figures = FigureSums(queue.store, self._labels, system=queue.system)
        self._scrape: asyncio.Task[bytes] | None = None

    async def text(self) -> bytes:
        """The metrics in Prometheus' text format, of the type `CONTENT_TYPE`. Calls at the same time share one reading.

        Raises `StoreUnavailable`.
        """
        self._queue.check_loop()
        if self._scrape is None or self._scrape.done():
            self._scrape = asyncio.create_task(self._read(), name="qo-metrics")
        return await asyncio.shield(self._scrape)  # a cancelled caller must not cancel it for the others

    async def _read(self) -> bytes:
        store = self._queue.store
        await self._figures.refresh()
        line, workers, groups = await asyncio.gather(store.line(limit=0), store.workers(), store.groups())
        numbers = QueueNumbers(
            queued=line.queued,
            running=sum(worker.running for worker in workers),
            figures=self._figures.sums,
            slots=self._slots(groups),
            streams=self._streams(),
            outbox=await self._outbox(),
        )
        # In a thread, because 200 groups are thousands of lines.
        return await self._queue.system.call_in_thread(queue_text, numbers)

    async def _outbox(self) -> OutboxStatus | None:
        outbox = self._queue.store.outbox
        status = None if outbox is None else await outbox.status()
        return None if status is None or status.options.most == 0 else status

    def _slots(self, groups: Sequence[GroupStatus]) -> dict[str, Slots]:
        """By label. Only groups that have a limit: a holder of another group needs no slot to hold it."""
        self._labels.meet(each.group for each in groups if each.limit is not None)
        slots: dict[str, Slots] = {}
        for each in groups:
            if each.limit is not None:
                label = self._labels.of(each.group)
                summed = slots.get(label, Slots())
                slots[label] = Slots(active=summed.active + each.active, limit=summed.limit + each.limit)
        return slots
