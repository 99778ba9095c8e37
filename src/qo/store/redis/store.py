"""The Redis store: one server, or one shard of a cluster, for any number of machines.

Survives: what the server's persistence promises; `durability.py` says it in a line when the store is opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Literal

import msgspec

from qo.errors import InvalidTransition, LeaseAlive, MoveRefused, NoStoreYet, SlotNotFound, StoreUnavailable
from qo.event import SIGNALS, Feed
from qo.job import Job, JobError, State
from qo.store import check
from qo.store.away import until_there
from qo.store.check_value import check_by, check_group, check_job_error, check_priority
from qo.store.redis import wire
from qo.store.redis.calling import FIRST_BLOB, check_refusal, refused
from qo.store.redis.client import PATIENCE_SECONDS, Client
from qo.store.redis.connection import ServerRefused
from qo.store.redis.durability import describe
from qo.store.redis.reading import Reading, event_of
from qo.store.redis.rows import decode_lease, stored_token, to_lease
from qo.store.redis.waking import Waking
from qo.store.values import (
    Accepted,
    Advance,
    Average,
    Bounds,
    Claimed,
    Finished,
    Grant,
    Held,
    Limit,
    LimitIgnored,
    Offer,
    Outcome,
    Portion,
    Refusal,
    Registered,
    Registration,
    Reminder,
    Renewal,
    Renewed,
    Source,
    Standing,
    Submission,
    Ticket,
)

SCHEMA = 2
NET_SECONDS = 5.0
"""how long one waits at most without looking again, should a wake-up get lost"""
LOOK_AGAIN = b"look"
"""Tells an idle worker that something comes due sooner than it knows (`lib/wake.lua`)."""


class RedisStore(Reading):
    """`store/base.py` on Redis 7 or Valkey. Open with `RedisStore.open`."""

    kind: Literal["sql", "redis"] = "redis"

    def __init__(self, client: Client, bounds: Bounds) -> None:
        super().__init__(client, bounds)
        self.promise = ""
        self.location = ""
        self._waking = Waking(client)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        namespace: str = "default",
        bounds: Bounds | None = None,
        accept_eviction: bool = False,
        create: bool = True,
        patience_seconds: float = PATIENCE_SECONDS,
        waits: bool = False,
    ) -> RedisStore:
        """`accept_eviction`: use a server that may throw jobs away when its memory is full. `create` False: raises
        NoStoreYet where the namespace has not been used yet. `waits`: until the server is there; otherwise raises
        StoreAway when patience is over."""
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
        await self._waking.close()
        await self.client.close()

    # --- a job's way through ----------------------------------------------------------------------------------

    async def submit(self, submissions: Sequence[Submission], *, now: int | None = None) -> list[Accepted | Refusal]:
        for submission in submissions:
            check.check_submission(submission)
        wanted = [wire.submission(submission, number) for number, submission in enumerate(submissions, FIRST_BLOB)]
        blobs = [submission.payload for submission in submissions]
        reply = await self._run("submit", {"submissions": wanted}, blobs=blobs, now=now)
        answers = reply.answer["answers"]
        return [wire.admitted(reply, item, answer) for item, answer in zip(submissions, answers, strict=True)]

    async def claim(
        self, *, worker: str, tasks: Sequence[str], places: int, lease_ms: int, claim_id: str, now: int | None = None
    ) -> Claimed:
        check.check_claim(worker=worker, tasks=tasks, places=places, lease_ms=lease_ms, claim_id=claim_id)
        wanted = {
            "worker": worker,
            "tasks": list(tasks),
            "places": places,
            "lease_ms": lease_ms,
            "claim_id": claim_id,
        }
        reply = await self._run("claim", wanted, now=now)
        return Claimed(leases=reply.leases(), more=reply.answer["more"])

    async def renew(
        self,
        renewals: Sequence[Renewal],
        *,
        worker: str | None = None,
        instance: str = "",
        tickets: Sequence[str] = (),
        now: int | None = None,
    ) -> Renewed:
        check.check_renewals(renewals, worker=worker, instance=instance, tickets=tickets)
        wanted = {
            "renewals": [wire.renewal(renewal) for renewal in renewals],
            "worker": worker,
            "instance": instance,
            "tickets": list(tickets),
        }
        extends = any(renewal.extend_ms for renewal in renewals)
        reply = await self._run("renew", wanted, now=now, once=extends)
        answers = zip(renewals, reply.answer["answers"], strict=True)
        return Renewed(
            held=tuple(wire.held(renewal.holder, renewal.token, answer) for renewal, answer in answers),
            registration=None if worker is None else wire.held(worker, instance, reply.answer["registration"]),
            now_ms=reply.answer["now"],
        )

    async def advance(self, advances: Sequence[Advance], *, now: int | None = None) -> list[Held]:
        blobs: list[bytes] = []
        wanted = []
        for item in advances:
            check.check_advance(item)
            wanted.append(wire.advance(item, blobs))
        reply = await self._run("advance", {"advances": wanted}, blobs=blobs, now=now)
        answers = zip(advances, reply.answer["answers"], strict=True)
        return [wire.held(item.job_id, item.token, answer) for item, answer in answers]

    async def finish(self, outcomes: Sequence[Outcome], *, now: int | None = None) -> list[Finished]:
        blobs: list[bytes] = []
        wanted = []
        for outcome in outcomes:
            check.check_outcome(outcome)
            wanted.append(wire.outcome(outcome, blobs))
        reply = await self._run("finish", {"outcomes": wanted}, blobs=blobs, now=now)
        answers = zip(outcomes, reply.answer["answers"], strict=True)
        return [wire.finished(outcome, answer) for outcome, answer in answers]

    # --- changes by people ------------------------------------------------------------------------------------

    async def set_priority(
        self,
        priority: int,
        *,
        job_id: str | None = None,
        parent: str | None = None,
        by: str | None = None,
        now: int | None = None,
    ) -> tuple[Job, ...]:
        check_priority(priority)
        check.check_target(job_id=job_id, parent=parent, by=by)
        wanted = {"priority": priority, "job_id": job_id, "parent": parent, "by": by}
        reply = await self._run("set_priority", wanted, now=now, once=True)
        check_refusal(reply, wanted="a job of another priority", parent=parent)
        return reply.jobs()

    async def move(
        self,
        job_id: str,
        *,
        before: str | None = None,
        after: str | None = None,
        by: str | None = None,
        now: int | None = None,
    ) -> Job:
        check.check_move(job_id, before=before, after=after, by=by)
        if job_id in (before, after):
            raise MoveRefused(f"Job {job_id!r} cannot be moved beside itself; name another job in line.")
        wanted = {"job_id": job_id, "before": before, "after": after, "by": by}
        reply = await self._run("move", wanted, now=now, once=True)
        if refused(reply) == "no_place":
            raise MoveRefused(
                f"Job {job_id!r} cannot be moved there: no place is left between its neighbours, even when "
                f"{reply.answer['detail']['at_most']} of them are spread out; move it beside another job."
            )
        check_refusal(reply, wanted="moved in the line, in which it does not stand")
        return reply.jobs()[0]

    async def cancel(
        self,
        *,
        job_id: str | None = None,
        parent: str | None = None,
        message: str | None = None,
        by: str | None = None,
        now: int | None = None,
    ) -> tuple[Job, ...]:
        check.check_cancel(job_id=job_id, parent=parent, message=message, by=by)
        wanted = {"job_id": job_id, "parent": parent, "message": message, "by": by}
        reply = await self._run("cancel", wanted, now=now, once=True)
        check_refusal(reply, wanted=State.CANCELLED, parent=parent)
        return reply.jobs()

    async def retry(self, job_id: str, *, by: str | None = None, now: int | None = None) -> Job:
        check.check_job(job_id, by=by)
        reply = await self._run("retry", {"job_id": job_id, "by": by}, now=now, once=True)
        if refused(reply) == "unique_taken":
            taken = reply.answer["detail"]
            allowed = f"nothing while job {taken['by']!r} with the same unique key {taken['key']!r} is unfinished"
            raise InvalidTransition(f"Job {job_id!r}", taken["state"], "retried", allowed)
        check_refusal(reply, wanted="retried")
        return reply.jobs()[0]

    async def confirm(self, job_id: str, *, by: str | None = None, now: int | None = None) -> Job:
        check.check_job(job_id, by=by)
        reply = await self._run("confirm", {"job_id": job_id, "by": by}, now=now, once=True)
        check_refusal(reply, wanted="confirmed")
        return reply.jobs()[0]

    async def set_tier(
        self, user: str, standing: Standing, *, by: str | None = None, now: int | None = None
    ) -> tuple[LimitIgnored, ...]:
        check.check_tier(user, standing, by=by)
        wanted = {"user": user, "standing": standing, "by": by}
        return wire.ignored(await self._run("set_tier", wanted, now=now, once=True))

    # --- limits -----------------------------------------------------------------------------------------------

    async def set_limits(
        self,
        limits: Sequence[Limit],
        *,
        exactly: Source | None = None,
        by: str | None = None,
        now: int | None = None,
    ) -> tuple[LimitIgnored, ...]:
        check.check_limits(limits, exactly=exactly)
        check_by(by)
        wanted = {"limits": list(limits), "exactly": exactly, "by": by}
        return wire.ignored(await self._run("set_limits", wanted, now=now, once=True))

    async def remove_limit(
        self, group: str, *, only: Source | None = None, by: str | None = None, now: int | None = None
    ) -> None:
        check.check_removal(group, only=only, by=by)
        await self._run("remove_limit", {"group": group, "only": only, "by": by}, now=now, once=True)

    async def set_paused(self, group: str, paused: bool, *, by: str | None = None, now: int | None = None) -> None:
        check_group(group)
        check_by(by)
        await self._run("set_paused", {"group": group, "paused": bool(paused), "by": by}, now=now, once=True)

    async def revoke(
        self, group: str, slot_id: int, *, force: bool = False, by: str | None = None, now: int | None = None
    ) -> str:
        check.check_revoke(group, slot_id, by=by)
        wanted = {"group": group, "slot_id": slot_id, "force": bool(force), "by": by}
        reply = await self._run("revoke", wanted, now=now, once=True)
        if refused(reply) == "no_slot":
            raise SlotNotFound(group, slot_id)
        if refused(reply) == "alive":
            raise LeaseAlive(group, slot_id, reply.answer["detail"]["holder"])
        return str(reply.answer["holder"])

    # --- slots without a job ----------------------------------------------------------------------------------

    async def acquire(self, tickets: Sequence[Ticket], *, now: int | None = None) -> list[Grant]:
        for ticket in tickets:
            check.check_ticket(ticket)
        reply = await self._run("acquire", {"tickets": list(tickets)}, now=now, once=True)
        return [wire.grant(ticket, answer) for ticket, answer in zip(tickets, reply.answer["answers"], strict=True)]

    async def release(self, holders: Sequence[tuple[str, str | None]], *, now: int | None = None) -> list[bool]:
        check.check_release(holders)
        wanted = [
            {"holder": holder, "token": None if token is None else stored_token(token)} for holder, token in holders
        ]
        answers: list[bool] = (await self._run("release", {"holders": wanted}, now=now, once=True)).answer["answers"]
        return answers

    # --- workers ----------------------------------------------------------------------------------------------

    async def register(self, registration: Registration, *, now: int | None = None) -> Registered:
        check.check_registration(registration)
        return wire.registered(await self._run("register", wire.registration(registration), now=now, once=True))

    # --- upkeep -----------------------------------------------------------------------------------------------

    async def catch_up(self, *, now: int | None = None) -> Portion:
        return wire.portion(await self._run("catch_up", {}, now=now, once=True))

    async def age(self, *, period_ms: int, now: int | None = None) -> Portion:
        check.check_upkeep(period_ms=period_ms)
        return wire.portion(await self._run("age", {"period_ms": period_ms}, now=now, once=True))

    async def fail_unconfirmed(self, *, after_ms: int, error: JobError, now: int | None = None) -> Portion:
        check.check_upkeep(after_ms=after_ms)
        check_job_error(error)
        wanted = {"after_ms": after_ms, "error": wire.json_text(error)}
        return wire.portion(await self._run("fail_unconfirmed", wanted, now=now, once=True))

    async def take_reminders(self, *, ages_ms: Sequence[int], now: int | None = None) -> tuple[Reminder, ...]:
        check.check_reminder_ages(ages_ms)
        reply = await self._run("take_reminders", {"ages_ms": sorted(ages_ms)}, now=now, once=True)
        return tuple(wire.reminder(due) for due in reply.answer["reminders"])

    async def forget(
        self, *, keep_ms: int, keep_jobs: int, keep_events: int, keep_audit: int, now: int | None = None
    ) -> Portion:
        wanted = {"keep_ms": keep_ms, "keep_jobs": keep_jobs, "keep_events": keep_events, "keep_audit": keep_audit}
        check.check_upkeep(**wanted)
        return wire.portion(await self._run("forget", wanted, now=now, once=True))

    # --- figures for estimates --------------------------------------------------------------------------------

    async def observe(self, observations: Sequence[tuple[Average, float]]) -> None:
        check.check_observations(observations)
        wanted = [[average, float(value)] for average, value in observations]
        await self._run("observe", {"observations": wanted}, once=True)

    async def record_estimate_errors(self, task: str, ratios: Sequence[float], *, keep: int = 500) -> None:
        check.check_estimate_errors(task, ratios, keep=keep)
        wanted = {"task": task, "ratios": [repr(float(ratio)) for ratio in ratios], "keep": keep}
        await self._run("record_estimate_errors", wanted, once=True)

    # --- following --------------------------------------------------------------------------------------------

    async def wait_for_events(self, after: int, *, timeout_seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        async with self._waking.listen(f"{self.client.prefix}events") as listening:
            while await self.newest_event() <= after:
                left = deadline - loop.time()
                if left <= 0:
                    return False
                await listening.message(min(left, NET_SECONDS))
            return True

    async def signals(self, worker: str, after: int) -> AsyncGenerator[Feed]:
        async with self._waking.listen(f"{self.client.prefix}signals:{worker}") as listening:
            while True:
                newest = await self.newest_event()
                while True:  # in pages
                    feed = await self.events(after, kinds=SIGNALS)
                    yield feed
                    after = feed.cursor
                    if after >= newest:
                        break
                # An empty message, or none for long: something may have been missed, so look.
                while message := await listening.message(NET_SECONDS):
                    newest, told = msgspec.msgpack.decode(message)
                    if newest > after:
                        after = newest
                        yield Feed(events=tuple(event_of(each) for each in told), cursor=newest)

    async def wait_for_work(
        self,
        *,
        worker: str,
        tasks: Sequence[str],
        timeout_seconds: float,
        offer: Offer | None = None,
        filled: Callable[[Claimed], None] | None = None,
    ) -> Claimed:
        claimed = Claimed()

        def find(found: Claimed) -> None:
            nonlocal claimed
            claimed = found
            if found.leases and filled is not None:
                filled(found)

        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        wanted: dict[str, Any] = {"worker": worker, "tasks": list(dict.fromkeys(tasks)), "offer": offer}
        async with self._waking.listen(f"{self.client.prefix}wake:{worker}") as listening:
            while True:
                left = deadline - loop.time()
                wanted["idle_ms"] = int(2000 * NET_SECONDS) if left > 0 else 0
                reply = await self._run("wait_for_work", wanted)
                find(Claimed(leases=reply.leases(), more=reply.answer["claimable"]))
                if claimed.leases or claimed.more or left <= 0:
                    return claimed
                due_in = reply.answer.get("due_in_ms", left * 1000) / 1000
                message = await listening.message(
                    min(left, due_in, NET_SECONDS), at_once=lambda came: find(_claimed_for(offer, came))
                )
                if message is not None and message != LOOK_AGAIN:
                    return claimed

    # --- service data -----------------------------------------------------------------------------------------

    async def put_record(self, name: str, value: Any, *, version: int) -> bool:
        check.check_record(name, value, version=version)
        wanted = {"name": name, "version": version, "value": None if value is None else wire.json_text(value)}
        written: bool = (await self._run("put_record", wanted, once=True)).answer["written"]
        return written


def _claimed_for(offer: Offer | None, message: bytes) -> Claimed:
    """A message only wakes unless it brings what was claimed for this very offer: an older one was answered already."""
    if message and offer is not None:
        try:
            lease = decode_lease(message)
        except msgspec.DecodeError:
            pass  # of another version of qo: what it brings is told again when that is claimed
        else:
            if lease.claim_id == offer.claim_id:
                return Claimed(leases=(to_lease(lease),))
    return Claimed(more=True)
