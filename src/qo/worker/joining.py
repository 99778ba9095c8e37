"""A worker joins those of its store before its first claim, and leaves when its last outcome is stored."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from qo.errors import StoreUnavailable
from qo.queue.queue import Queue
from qo.values import Registered, Registration, TaskOptions
from qo.worker.exchange import Exchange
from qo.worker.log import log_changed_limit
from qo.worker.membership import Membership
from qo.worker.places import Places
from qo.worker.store_time import StoreTime

log = logging.getLogger("qo.worker")

LIFETIME_MS = 30_000


@asynccontextmanager
async def registered(
    queue: Queue, places: Places, exchange: Exchange, *, instance: str, waits: bool
) -> AsyncIterator[tuple[Membership, StoreTime]]:
    """Register the worker for the time of the block. `waits`: also for a store that is away."""

    def has_joined(answer: Registered) -> None:
        """The heartbeat's thread calls this, too, when the worker had to register again."""
        places.rename(membership.name)
        queue.warn_of_ignored(answer.ignored)
        for change in answer.changed:
            log_changed_limit(change, membership.name)

    membership = Membership(queue.store, _registration(queue, places, instance), joined=has_joined, system=queue.system)
    store_time = await exchange.before_starting(membership.join, waits=waits)
    log.info("worker %s runs %s", membership.name, ", ".join(sorted(places.tasks)) or "nothing")
    log.info("%s", queue.store.promise)
    try:
        yield membership, store_time
    finally:
        try:
            await exchange.before_leaving(membership.leave())
        except StoreUnavailable as error:
            log.warning("the store was not told that the worker is gone, and will notice in half a minute: %s", error)
        log.info("worker %s is gone", membership.name)


def _registration(queue: Queue, places: Places, instance: str) -> Registration:
    tasks = tuple(
        TaskOptions(
            name=task.name,
            groups=task.groups,
            limit=task.max_concurrent,
            max_attempts=task.max_attempts or queue.settings.retries.max_attempts,
        )
        for task in places.tasks.values()
    )
    return Registration(
        name=places.worker,
        instance=instance,
        tasks=tasks,
        capacity=places.capacity,
        limits=queue.configured_limits(),
        lifetime_ms=LIFETIME_MS,
        lease_ms=places.lease_ms,
        turn_after=queue.settings.queue.turn_after,
        host=socket.gethostname(),
        pid=os.getpid(),
    )
