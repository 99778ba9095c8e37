"""What the tests of semaphores share: a store that acts beside a call, and when somebody waits, listens or holds."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import qo
from qo.limits.semaphore import Semaphore, user_semaphore
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.values import Lease
from tests.worker.clocked import ClockedStore
from tests.worker.running import until

NOW = 1_900_000_000_000
SECOND = 1000
LEASE = 3600 * SECOND
JOBS_LEASE = 300 * SECOND
SETTINGS: dict[str, Any] = {
    "concurrency": {"default_lease_duration_secs": JOBS_LEASE / SECOND},
    "tiers": {"solo": {"per_user": 1, "per_project": 1}},
}
NEWEST = "newest event"
Beside = Callable[..., Awaitable[None]]


def queue_on(store: Any, **sections: Any) -> Queue:
    """Another queue on a store, as another process would have one."""
    return Queue(store, load_settings({**SETTINGS, **sections}, environ={}))


def two_on_one_slot(staged: Staged, queue: Queue) -> tuple[Semaphore, Semaphore]:
    """Two processes that compete for a user's only slot: the calls of the first are staged, those of the other not."""
    return user_semaphore(queue_on(staged), "ada", "solo"), user_semaphore(queue, "ada", "solo")


class Staged:
    """A store that does something of the test's own before or after a call of a name. A call of `events` that only asks
    for the newest cursor has the name `NEWEST`."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.before: dict[str, Beside] = {}
        self.after: dict[str, Beside] = {}
        self.calls: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            called = NEWEST if name == "events" and args == (None,) else name
            self.calls[called] += 1
            if called in self.before:
                await self.before[called](*args)
            answer = await method(*args, **kwargs)
            if called in self.after:
                await self.after[called](*args)
            self.answers[called] += 1
            return answer

        return call


async def waiting(semaphore: Semaphore, amount: int) -> None:
    async def so_many_wait() -> bool:
        return (await semaphore.queue.store_here.groups([semaphore.group]))[0].waiting == amount

    await until(so_many_wait)


def asked_at(staged: Staged, clock: ClockedStore) -> set[tuple[str, int]]:
    """Who has asked and was answered, by the time at which it asked: filled as it happens."""
    began: dict[str, int] = {}
    asked: set[tuple[str, int]] = set()

    async def begin(tickets: Any) -> None:
        began[tickets[0].holder] = clock.now

    async def end(tickets: Any) -> None:
        holder = tickets[0].holder
        asked.add((holder.rpartition(":")[2], began[holder]))

    staged.before["acquire"], staged.after["acquire"] = begin, end
    return asked


async def listening(staged: Staged) -> None:
    """An acquire has asked once, and once more after it began to listen, so that now it waits to be told."""

    async def has_asked_twice() -> bool:
        return staged.answers["acquire"] == 2

    await until(has_asked_twice)


async def is_untouched(semaphore: Semaphore) -> bool:
    """Nobody holds a slot, and nobody stands in line."""
    status = (await semaphore.queue.store_here.groups([semaphore.group]))[0]
    return (status.active, status.waiting) == (0, 0)


async def expiry_of(semaphore: Semaphore, holder: str) -> Any:
    slots = (await semaphore.queue.store_here.groups([semaphore.group]))[0].slots
    return next((slot.expires_at for slot in slots if slot.holder.endswith(f":{holder}")), None)


async def start_job(store: Any, queue: qo.Queue, **options: Any) -> Lease:
    job = await queue.submit("build", **options)
    claimed = await store.claim(worker="w", tasks=["build"], capacity=1, lease_ms=JOBS_LEASE, claim_id=job.id)
    (lease,) = claimed.leases
    assert isinstance(lease, Lease)
    return lease
