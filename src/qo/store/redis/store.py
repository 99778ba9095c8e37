"""The Redis store: one server, or one shard of a cluster, for any number of machines.

Survives: what the server's persistence promises; `durability.py` says it in a line when the store is opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import Any

import msgspec

from qo.errors import NoStoreYet, StoreUnavailable
from qo.event import SIGNALS, Feed
from qo.store.away import until_there
from qo.store.check import check_events
from qo.store.contract import Store
from qo.store.outbox import Outbox
from qo.store.redis import answers, requests, wire
from qo.store.redis.calling import reading, writing
from qo.store.redis.outbox import RedisOutbox
from qo.store.redis.reading import Reading
from qo.store.redis.rows import decode_lease, to_lease
from qo.store.redis.server.client import PATIENCE_SECONDS, Client
from qo.store.redis.server.connection import ServerRefused
from qo.store.redis.server.constants import LOOK_AGAIN
from qo.store.redis.server.durability import describe
from qo.store.redis.server.waking import Waking
from qo.values import Bounds, Claimed, Offer, Retention

SCHEMA = 5
NET_SECONDS = 5.0
"""how long one waits at most without looking again, should a wake-up get lost"""


class RedisStore(Reading):
    """`store/contract.py` on Redis 7 or Valkey. Open with `RedisStore.open`."""

    retention = Retention(days=1, audit_entries=100_000)  # all of it is in memory

    def __init__(self, client: Client, bounds: Bounds) -> None:
        super().__init__(client, bounds)
        self.promise = ""
        self.location = ""
        self.waking = Waking(client)
        self.outbox: Outbox | None = RedisOutbox(self._run, namespace=client.namespace)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        namespace: str = "default",
        bounds: Bounds | None = None,
        accept_eviction: bool = False,
        create: bool = True,
        patience_seconds: float | None = None,
        waits: bool = False,
    ) -> RedisStore:
        """`accept_eviction`: use a server that may throw jobs away when its memory is full. `create` False: raises
        NoStoreYet where the namespace has not been used yet. `waits`: until the server is there; otherwise raises
        StoreAway when patience is over."""
        patience_seconds = PATIENCE_SECONDS if patience_seconds is None else patience_seconds
        store = cls(Client(url, namespace=namespace, patience_seconds=patience_seconds), bounds or Bounds())

        async def check_server() -> None:
            store.promise = await describe(store.client, accept_eviction=accept_eviction)
            store.location = f"Redis at {store.client.address}, namespace {namespace}"
            await store._check_schema(create=create)

        try:
            await (until_there(check_server) if waits else check_server())
        except BaseException:
            await store.close()
            raise
        return store

    async def _check_schema(self, *, create: bool) -> None:
        written = await self._command("GET", "schema")
        if written is None and not create:
            raise NoStoreYet(self.location)
        if written is None:
            written = await self._begin_namespace()
        found = int(written)
        if found > SCHEMA:
            raise StoreUnavailable(
                f"This namespace was written by a newer qo (schema {found}, this one knows {SCHEMA}); "
                "upgrade qo, or name another namespace."
            )
        if found < SCHEMA:
            raise StoreUnavailable(
                f"This namespace was written by an older qo (schema {found}, this one knows {SCHEMA}); "
                "let that version finish its jobs, or name another namespace."
            )

    async def _begin_namespace(self) -> bytes:
        # Its schema is written only where there is none: a server that is full refuses every write, and workers that
        # start then are what empties it.
        try:
            await self._command("SETNX", "schema", SCHEMA)
        except ServerRefused as refusal:
            raise StoreUnavailable(f"Redis at {self.client.address} takes no new namespace ({refusal}).") from None
        schema: bytes = await self._command("GET", "schema")
        return schema

    async def close(self) -> None:
        """Closing twice is harmless."""
        await self.waking.close()
        await self.client.close()

    submit = writing(Store.submit, answers.submit, requests.submit)
    claim = writing(Store.claim, answers.claim, requests.claim)
    renew = writing(Store.renew, answers.renew, requests.renew)
    advance = writing(Store.advance, answers.advance, requests.advance)
    finish = writing(Store.finish, answers.finish, requests.finish)

    set_priority = writing(Store.set_priority, answers.set_priority)
    move = writing(Store.move, answers.move)
    cancel = writing(Store.cancel, answers.cancel)
    retry = writing(Store.retry, answers.retry)
    confirm = writing(Store.confirm, answers.confirm)
    set_tier = writing(Store.set_tier, answers.ignored)

    set_limits = writing(Store.set_limits, answers.ignored, requests.set_limits)
    set_paused = writing(Store.set_paused, answers.nothing, requests.set_paused)
    revoke = writing(Store.revoke, answers.revoke, requests.revoke)
    acquire = writing(Store.acquire, answers.acquire, requests.acquire)
    release = writing(Store.release, answers.release, requests.release)

    register = writing(Store.register, answers.register, requests.register)
    catch_up = writing(Store.catch_up, answers.catch_up)
    upkeep = writing(Store.upkeep, answers.upkeep, requests.upkeep)
    observe = writing(Store.observe, answers.nothing, requests.observe)
    note_promises = writing(Store.note_promises, answers.nothing, requests.note_promises)
    put_record = writing(Store.put_record, answers.put_record, requests.put_record)

    job = reading(Store.job, answers.job)
    counts = reading(Store.counts, answers.counts)
    payload = reading(Store.payload, answers.payload)
    parent = reading(Store.parent, answers.parent)
    blockers = reading(Store.blockers, answers.blockers)
    leases = reading(Store.leases, answers.leases)
    groups = reading(Store.groups, answers.groups, requests.groups)
    workers = reading(Store.workers, answers.workers)
    usage = reading(Store.usage, answers.usage)
    series = reading(Store.series, answers.series)
    audit = reading(Store.audit, answers.audit)
    observed = reading(Store.observed, answers.observed, requests.observed)
    records = reading(Store.records, answers.records)

    # --- following --------------------------------------------------------------------------------------------

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
        if after is None:
            return Feed(events=(), cursor=await self._newest_event())
        if timeout_seconds > 0:
            await self._wait_for_events(after, timeout_seconds)
        return await self._events(after, kinds, subjects, limit)

    async def _wait_for_events(self, after: int, timeout_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        async with self.waking.listen(f"{self.client.prefix}events") as listening:
            while await self._newest_event() <= after:
                left = deadline - loop.time()
                if left <= 0:
                    return
                await listening.message(min(left, NET_SECONDS))

    async def signals(self, worker: str, after: int) -> AsyncGenerator[Feed]:
        async with self.waking.listen(f"{self.client.prefix}signals:{worker}") as listening:
            while True:
                newest = await self._newest_event()
                while True:  # in pages
                    feed = await self.events(after, kinds=SIGNALS)
                    yield feed
                    after = feed.cursor
                    if after >= newest:
                        break
                # An empty message, or none for long: something may have been missed, so look.
                while message := await listening.message(NET_SECONDS):
                    newest, packed = msgspec.msgpack.decode(message)
                    if newest > after:
                        after = newest
                        yield Feed(events=tuple(wire.event_of(each) for each in packed), cursor=newest)

    async def wait_for_work(
        self,
        *,
        worker: str,
        tasks: Sequence[str],
        timeout_seconds: float,
        offer: Offer | None = None,
        suspects: int | None = None,
    ) -> Claimed:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        asked = {"worker": worker, "tasks": list(dict.fromkeys(tasks)), "suspects": suspects}
        wanted: dict[str, Any] = {**asked, "offer": offer}
        async with self.waking.listen(f"{self.client.prefix}wake:{worker}") as listening:
            while True:
                left = deadline - loop.time()
                wanted["idle_ms"] = int(2000 * NET_SECONDS) if left > 0 else 0
                reply = await self._run("wait_for_work", wanted)
                found = Claimed(leases=reply.leases(), more=reply.answer["claimable"])
                if found.leases or found.more or left <= 0:
                    return found
                due_in = reply.answer.get("due_in_ms", left * 1000) / 1000
                message = await listening.message(min(left, due_in, NET_SECONDS))
                if message is not None and message != LOOK_AGAIN.encode():
                    return _claimed_for(offer, message)


def _claimed_for(offer: Offer | None, message: bytes) -> Claimed:
    """A message only wakes unless it brings what was claimed for this very offer: an older one was answered already."""
    if message and offer is not None:
        try:
            lease = decode_lease(message)
        except msgspec.DecodeError:
            pass  # from another version of qo: the claim returns this lease again
        else:
            if lease.claim_id == offer.claim_id:
                return Claimed(leases=(to_lease(lease),))
    return Claimed(more=True)
