"""Two workers that always offer capacity, while anything happens: after every step all keys fit each other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from qo.errors import InvalidTransition
from qo.job import State
from qo.store.redis import RedisStore
from qo.values import Bounds, Lease, Offer, Outcome, Registration, TaskOptions, Unlimited, UpkeepRules
from tests.conformance.invariants import broken_invariants, over_capacity
from tests.conformance.machine.strategies import (
    LEASE_MS,
    PRIORITIES,
    TASKS,
    USERS,
    batches,
    groups,
    limits,
    phase_submissions,
    standings,
    submissions,
    tickets,
    tiered_submissions,
)
from tests.servers.redis import Kind, shared_server
from tests.store.redis.redis_calls import KINDS, eventually, new_namespace
from tests.store.redis.snapshot import snapshot

OFFERING = ("w1", "w2")
STEPS = 12
LONG_SECONDS = 60.0


class Scene:
    """Steps that anybody takes; those who offer get whatever the steps make claimable."""

    def __init__(self, store: RedisStore, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.store = store
        self.draw = draw
        self.submitted = self.offers = 0
        self.held: list[Lease] = []
        self.waiting: dict[str, asyncio.Task[Any]] = {}

    async def begin(self) -> None:
        for worker in OFFERING:
            tasks = tuple(TaskOptions(name=task) for task in TASKS)
            await self.store.register(Registration(name=worker, tasks=tasks, capacity=8, lifetime_ms=LEASE_MS))
        if wanted := self.draw(st.lists(limits, max_size=3)):
            await self.store.set_limits(wanted)

    async def offer(self) -> None:
        """By everybody who is not waiting any more; also what is there already may be got by that."""
        for worker in OFFERING:
            while worker not in self.waiting:
                self.offers += 1
                offer = Offer(lease_ms=LEASE_MS, claim_id=f"offer-{self.offers}")
                wait = self.store.wait_for_work(worker=worker, tasks=TASKS, timeout_seconds=LONG_SECONDS, offer=offer)
                task = self.waiting[worker] = asyncio.create_task(wait)
                await eventually(partial(self.has_ended_or_is_idle, worker))
                if task.done():
                    del self.waiting[worker]
                    claimed = await self.store.claim(
                        worker=worker, tasks=TASKS, capacity=1, lease_ms=LEASE_MS, claim_id=offer.claim_id
                    )
                    self.held += claimed.leases
                    if not claimed.leases and not claimed.more:
                        return  # what there is cannot be claimed, and so it is until something else happens

    async def has_ended_or_is_idle(self, worker: str) -> bool:
        return self.waiting[worker].done() or await self.is_idle(worker)

    async def is_idle(self, worker: str) -> bool:
        return bool(await self.store.client.command("HEXISTS", f"{self.store.client.prefix}idle_workers", worker))

    async def gather(self) -> None:
        """What was claimed for those who offered; one that was only woken claims."""
        for worker, task in list(self.waiting.items()):
            if not await self.is_idle(worker):
                del self.waiting[worker]
                claimed = await task
                while claimed.more and not claimed.leases:
                    self.offers += 1
                    claimed = await self.store.claim(
                        worker=worker, tasks=TASKS, capacity=1, lease_ms=LEASE_MS, claim_id=f"offer-{self.offers}"
                    )
                self.held += claimed.leases

    async def leave(self) -> None:
        for task in self.waiting.values():
            task.cancel()
        await asyncio.gather(*self.waiting.values(), return_exceptions=True)

    # --- steps ------------------------------------------------------------------------------------------------

    async def take_a_step(self) -> None:
        await self.draw(st.sampled_from([self.submit, self.submit, self.finish, self.finish, *self.others()]))()

    def others(self) -> list[Callable[[], Awaitable[Any]]]:
        draw, store = self.draw, self.store
        return [
            lambda: store.set_limits([draw(limits)]),
            lambda: store.set_limits([Unlimited(group=draw(groups))]),
            lambda: store.set_paused(draw(groups), draw(st.booleans())),
            lambda: store.set_tier(draw(st.sampled_from(USERS)), draw(standings)),
            lambda: store.acquire([draw(tickets())]),
            lambda: store.release([(draw(tickets()).holder, None)]),
            lambda: store.catch_up(),
            lambda: store.upkeep(UpkeepRules(aging_period_ms=1)),
            self.set_priority,
            self.cancel,
        ]

    async def submit(self) -> None:
        kind = self.draw(st.sampled_from([submissions, tiered_submissions, phase_submissions]))
        batch = self.draw(batches(self.submitted, time.time_ns() // 1_000_000, kind))
        self.submitted += len(batch)
        await self.store.submit(batch)

    async def finish(self) -> None:
        count = self.draw(st.integers(0, len(self.held)))
        ending, self.held = self.held[:count], self.held[count:]
        states = st.sampled_from([State.SUCCEEDED, State.FAILED, State.QUEUED])
        await self.store.finish(
            [Outcome(job_id=lease.job.id, token=lease.token, state=self.draw(states)) for lease in ending]
        )

    async def set_priority(self) -> None:
        for job_id in [job.id for job in (await self.store.line(limit=1)).jobs]:
            await self.store.set_priority(self.draw(st.sampled_from(PRIORITIES)), job_id=job_id)

    async def cancel(self) -> None:
        for job_id in [
            *(job.id for job in (await self.store.line(limit=1)).jobs),
            *(lease.job.id for lease in self.held),
        ][:1]:
            try:
                await self.store.cancel(job_id=job_id)
            except InvalidTransition:
                pass  # it has ended, its lease was given away


async def live_through(kind: Kind, bounds: Bounds, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
    store = await RedisStore.open(shared_server(kind).url, namespace=new_namespace(), bounds=bounds)
    scene = Scene(store, draw)
    try:
        await scene.begin()
        for _ in range(STEPS):
            await scene.offer()
            before = await snapshot(store)
            await scene.take_a_step()
            await scene.gather()
            after = await snapshot(store)
            assert not [*broken_invariants(after), *over_capacity(before, after)]
        for worker in scene.waiting:
            missed = await store.claim(
                worker=worker, tasks=TASKS, capacity=1, lease_ms=LEASE_MS, claim_id=f"m-{worker}"
            )
            came_due = [lease for lease in missed.leases if lease.job.joined_at == lease.job.started_at]
            assert missed.leases == (*came_due,), "something was claimable, and one who offered capacity was not told"
    finally:
        await scene.leave()
        await store.close()


@pytest.mark.parametrize("bounds", [Bounds(), Bounds(examine=2, portion=2)], ids=lambda each: f"by{each.examine}")
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, phases=[Phase.reuse, Phase.generate])  # shrinking would take minutes
@given(data=st.data())
def test_whatever_happens_offers_leave_everything_in_order(kind: Kind, bounds: Bounds, data: st.DataObject) -> None:
    asyncio.run(live_through(kind, bounds, data.draw))
