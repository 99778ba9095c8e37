"""What goes on beside a worker's jobs while it runs: its heartbeat, upkeep and cron entries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from qo.notify.notifier import Notifier
from qo.queue.queue import Queue
from qo.worker.cron import Ticks, fire
from qo.worker.heartbeat import Heartbeat
from qo.worker.membership import Membership
from qo.worker.places import Places
from qo.worker.store_time import StoreTime
from qo.worker.upkeep import Upkeep


@asynccontextmanager
async def heartbeat(queue: Queue, places: Places, membership: Membership, *, cursor: int) -> AsyncIterator[None]:
    """Renew the worker's leases. `cursor` is that of the feed before its first claim."""
    places.heartbeat = Heartbeat(
        queue.store,
        membership,
        lease_ms=places.lease_ms,
        renewals_per_lease=queue.settings.concurrency.renewals_per_lease,
        cursor=cursor,
        shared=places.shared,
        system=queue.system,
    )
    places.heartbeat.start()
    try:
        yield
    finally:
        await places.heartbeat.stop()


@asynccontextmanager
async def upkeep_and_cron(
    queue: Queue, entries: Sequence[Ticks], store_time: StoreTime, *, cursor: int, at_once: bool
) -> AsyncIterator[None]:
    """Do upkeep and submit the jobs of cron entries. `cursor` is that of the feed before the worker's first claim.
    `at_once`: what is due is done before the block begins, because the worker may soon be idle and end."""
    upkeep = Upkeep(queue, notifier=Notifier(queue.settings.notify, clock=queue.system.now), cursor=cursor)
    for ticks in entries:
        ticks.begin(store_time.now())
    if at_once:
        for ticks in entries:
            await ticks.submit_due(queue, store_time)
        await upkeep.tend()
    tasks = [asyncio.create_task(upkeep.run(), name="qo-upkeep")]
    tasks += [asyncio.create_task(fire(ticks, queue, store_time)) for ticks in entries]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
