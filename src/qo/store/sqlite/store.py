"""The SQLite store: one file, any number of processes on one machine; `memory://` for one process.

Survives: what was answered is on the disk (WAL, synchronous=FULL), so `kill -9` of any process and power loss
lose nothing that was acknowledged. A memory store lives as long as its process.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

from qo.errors import NoStoreYet
from qo.event import SIGNALS, Feed
from qo.store.away import until_there
from qo.store.check import CHECKS, check_events, check_jobs
from qo.store.contract import Store
from qo.store.outbox import Outbox
from qo.store.sqlite.access import Access, location_of
from qo.store.sqlite.file.trouble import MEMORY, FileTrouble
from qo.store.sqlite.operations import read_feed, read_figures, read_groups, read_jobs
from qo.store.sqlite.operations.acquire import acquire, release
from qo.store.sqlite.operations.advance import advance
from qo.store.sqlite.operations.cancel import cancel
from qo.store.sqlite.operations.catch_up import catch_up
from qo.store.sqlite.operations.claim import claim
from qo.store.sqlite.operations.confirm import confirm
from qo.store.sqlite.operations.finish import finish
from qo.store.sqlite.operations.is_claimable import is_claimable
from qo.store.sqlite.operations.move import move
from qo.store.sqlite.operations.note_promises import note_promises
from qo.store.sqlite.operations.observe import observe
from qo.store.sqlite.operations.positions import positions
from qo.store.sqlite.operations.put_record import put_record
from qo.store.sqlite.operations.register import register
from qo.store.sqlite.operations.renew import renew
from qo.store.sqlite.operations.retry import retry
from qo.store.sqlite.operations.revoke import revoke
from qo.store.sqlite.operations.set_limits import set_limits
from qo.store.sqlite.operations.set_paused import set_paused
from qo.store.sqlite.operations.set_priority import set_priority
from qo.store.sqlite.operations.set_tier import set_tier
from qo.store.sqlite.operations.submit import submit
from qo.store.sqlite.operations.upkeep import upkeep
from qo.store.sqlite.shared.step import Step
from qo.store.sqlite.shared.view import View
from qo.threads import in_thread
from qo.values import Bounds, Claimed, JobsPage, Offer, Retention, Wanted

P = ParamSpec("P")
T = TypeVar("T")
Method = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]

BETWEEN_LOOKS_SECONDS = 0.01
"""Between two looks for events of some kinds: a busy file changes hundreds of times a second."""
SIGNALS_SECONDS = 5.0
"""how long a listener to signals waits at most without hearing anything"""


def _writing(
    contract: Callable[Concatenate[Any, P], Awaitable[T]],
    operation: Callable[Concatenate[Step, P], T],
    *,
    urgent: bool = False,
) -> Method[P, T]:
    """The method that checks its input and takes one step. `urgent`: the step goes ahead of all that wait."""
    check = CHECKS.get(contract.__name__, _accept)

    @wraps(contract)
    async def method(self: Access, /, *args: P.args, **kwargs: P.kwargs) -> T:
        check(*args, **kwargs)
        return await self._write(lambda step: operation(step, *args, **kwargs), urgent=urgent)

    return method


def _reading(
    contract: Callable[Concatenate[Any, P], Awaitable[T]], operation: Callable[Concatenate[View, P], T]
) -> Method[P, T]:
    """The method that checks its input and reads one consistent state."""
    check = CHECKS.get(contract.__name__, _accept)

    @wraps(contract)
    async def method(self: Access, /, *args: P.args, **kwargs: P.kwargs) -> T:
        check(*args, **kwargs)
        return await self._view(lambda view: operation(view, *args, **kwargs))

    return method


def _accept(*args: object, **kwargs: object) -> None:
    """The check of an operation that takes any input."""


class SQLiteStore(Access):
    """`store/contract.py` on one SQLite file. Open with `SQLiteStore.open`."""

    retention = Retention(days=7, audit_entries=1_000_000)
    outbox: Outbox | None = None

    @classmethod
    async def open(
        cls,
        path: str,
        *,
        bounds: Bounds | None = None,
        create: bool = True,
        waits: bool = False,
        busy_seconds: float | None = None,
    ) -> SQLiteStore:
        """`create` False: raises NoStoreYet where there is no file yet. `waits`: until the file can be used, such as
        when another process ends its write; otherwise raises StoreAway when that takes longer than `busy_seconds`."""
        if not create and path != MEMORY and not await in_thread(os.path.exists, path):
            raise NoStoreYet(location_of(path))
        trouble = FileTrouble(path, busy_seconds=busy_seconds)

        async def open_file() -> SQLiteStore:
            if path == MEMORY:
                return cls(path, bounds or Bounds(), trouble)
            return await in_thread(cls, path, bounds or Bounds(), trouble)

        try:
            return await (until_there(open_file) if waits else open_file())
        except asyncio.CancelledError:
            trouble.give_up_soon()  # the thread that opens it would be waited for when the process ends
            raise

    submit = _writing(Store.submit, submit)
    claim = _writing(Store.claim, claim)
    renew = _writing(Store.renew, renew, urgent=True)
    advance = _writing(Store.advance, advance)
    finish = _writing(Store.finish, finish)

    set_priority = _writing(Store.set_priority, set_priority)
    move = _writing(Store.move, move)
    cancel = _writing(Store.cancel, cancel)
    retry = _writing(Store.retry, retry)
    confirm = _writing(Store.confirm, confirm)
    set_tier = _writing(Store.set_tier, set_tier)

    set_limits = _writing(Store.set_limits, set_limits)
    set_paused = _writing(Store.set_paused, set_paused)
    revoke = _writing(Store.revoke, revoke)
    acquire = _writing(Store.acquire, acquire)
    release = _writing(Store.release, release)

    register = _writing(Store.register, register)
    catch_up = _writing(Store.catch_up, catch_up)
    upkeep = _writing(Store.upkeep, upkeep)
    observe = _writing(Store.observe, observe)
    note_promises = _writing(Store.note_promises, note_promises)
    put_record = _writing(Store.put_record, put_record)

    job = _reading(Store.job, read_jobs.job)
    counts = _reading(Store.counts, read_jobs.counts)
    payload = _reading(Store.payload, read_jobs.payload)
    line = _reading(Store.line, read_jobs.line)
    positions = _reading(Store.positions, positions)
    parent = _reading(Store.parent, read_jobs.parent)
    blockers = _reading(Store.blockers, read_groups.blockers)
    leases = _reading(Store.leases, read_groups.leases)
    groups = _reading(Store.groups, read_groups.groups)
    workers = _reading(Store.workers, read_groups.workers)
    usage = _reading(Store.usage, read_groups.usage)
    series = _reading(Store.series, read_figures.series)
    audit = _reading(Store.audit, read_feed.audit)
    observed = _reading(Store.observed, read_figures.observed)
    records = _reading(Store.records, read_figures.records)

    # By hand, because mypy forgets the types of unpacked keywords in a cached signature that was inferred.
    async def jobs(
        self,
        *,
        ids: Sequence[str] | None = None,
        limit: int = 100,
        newest_first: bool = False,
        after: str | None = None,
        **wanted: Unpack[Wanted],
    ) -> JobsPage:
        check_jobs(ids=ids, limit=limit, newest_first=newest_first, after=after, **wanted)
        read = partial(read_jobs.jobs, ids=ids, limit=limit, newest_first=newest_first, after=after, **wanted)
        return await self._view(read)

    # --- waiting ----------------------------------------------------------------------------------------------

    async def events(
        self,
        after: int | None,
        *,
        kinds: Collection[str] | None = None,
        subjects: Collection[str] | None = None,
        limit: int = 1000,
        timeout_seconds: float = 0,
    ) -> Feed:
        check_events(after, limit=limit)
        if after is not None and timeout_seconds > 0:
            await self.wait_for_events(after, kinds=None, timeout_seconds=timeout_seconds)
        return await self.read(partial(read_feed.events, after=after, kinds=kinds, subjects=subjects, limit=limit))

    async def wait_for_events(self, after: int, *, kinds: Collection[str] | None, timeout_seconds: float) -> bool:
        """Wait until there is an event after the cursor, of one of these kinds if given. False: the time is up."""
        looked_at = after

        async def has_events() -> bool:
            nonlocal looked_at
            found, looked_at = await self.look(partial(read_feed.has_events, after=looked_at, kinds=kinds))
            if kinds is not None and not found:
                await asyncio.sleep(BETWEEN_LOOKS_SECONDS)
            return found

        return await self.changes.wait_until(has_events, timeout_seconds=timeout_seconds)

    async def signals(self, worker: str, after: int) -> AsyncGenerator[Feed]:
        while True:
            feed = await self.events(after, kinds=SIGNALS)
            yield feed
            after = feed.cursor
            await self.wait_for_events(after, kinds=SIGNALS, timeout_seconds=SIGNALS_SECONDS)

    async def wait_for_work(
        self,
        *,
        worker: str,
        tasks: Sequence[str],
        timeout_seconds: float,
        offer: Offer | None = None,
        suspects: int | None = None,
    ) -> Claimed:
        async def look() -> bool:
            return await self.look(
                partial(is_claimable, worker=worker, tasks=tasks, suspects=suspects, now=self._now())
            )

        return Claimed(more=await self.changes.wait_until(look, timeout_seconds=timeout_seconds))
