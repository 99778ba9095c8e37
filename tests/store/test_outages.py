"""A store that is away, and whose clock jumps, again and again: no live holder loses its lease, the dead lose theirs.

Time is simulated: a holder renews every third of a lease, and every second after a failure, as a worker's heartbeat
does. What is promised holds as long as one renewal gets through between two gaps, and as long as a small jump does not
come between the same two renewals as an outage (docs/guarantees.md).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from qo.store.contract import Store
from qo.values import Bounds, Lease, Renewal
from tests.conformance.suite.harness import LEASE, NOW, SECOND, at, claim, fresh_id, submit
from tests.stores import STORES, StoreUnderTest

EVERY = LEASE // 3
AFTER_A_FAILURE = SECOND
SEQUENCES = 1000
SEQUENCES_NIGHTLY = 10_000
CALM = 3 * LEASE
"""after which every dead holder's lease is over: one lease, and at most one more for a small fall of the clock"""


@dataclass
class Holder:
    lease: Lease
    renews_at: int
    is_alive: bool = True
    has_renewed: bool = False
    """since the last thing that happened to the store or its clock"""


@dataclass
class Simulation:
    store: Store
    rng: random.Random
    time: int = NOW
    """as it really is"""
    jumped: int = 0
    """by how much the store's clock is ahead of it"""
    is_there: bool = True
    looks_at: int = NOW
    holders: list[Holder] = field(default_factory=list)
    story: list[str] = field(default_factory=list)

    @property
    def now(self) -> int:
        return self.time + self.jumped

    def tell(self, what: str) -> None:
        self.story.append(f"{(self.time - NOW) / 1000:9.1f} s: {what}")

    def living(self) -> list[Holder]:
        return [holder for holder in self.holders if holder.is_alive]

    # --- time passes ----------------------------------------------------------------------------------------------

    async def pass_time(self, span: int) -> None:
        """Holders renew when their time has come, and workers look every few seconds while the store is there."""
        end = self.time + span
        while True:
            upcoming = [holder.renews_at for holder in self.living()] + [self.looks_at]
            self.time = max(self.time, min(upcoming))
            if self.time >= end:
                self.time = end
                return
            if self.looks_at <= self.time:
                await self.look()
            for holder in self.living():
                if holder.renews_at <= self.time:
                    await self.renew(holder)

    async def look(self) -> None:
        self.looks_at = self.time + self.rng.choice((5, 20, 60)) * SECOND
        if self.is_there:
            while (await at(self.store, self.now).catch_up()).more:
                pass

    async def renew(self, holder: Holder) -> None:
        if not self.is_there:
            holder.renews_at = self.time + AFTER_A_FAILURE
            return
        holder.renews_at = self.time + EVERY
        holder.has_renewed = True
        renewal = Renewal(holder=holder.lease.job_id, token=holder.lease.token, lease_ms=LEASE)
        (held,) = (await at(self.store, self.now).renew([renewal])).held
        assert not held.lost, "\n".join([f"a live holder has lost {holder.lease.job_id}:", *self.story])

    async def until_all_have_renewed(self) -> None:
        for holder in self.holders:
            holder.has_renewed = False
        while not all(holder.has_renewed for holder in self.living()):
            await self.pass_time(10 * SECOND)

    # --- what happens ---------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Another job starts."""
        job_id = fresh_id("job")
        await submit(self.store, job_id, task=job_id, max_attempts=99, now=self.now)
        (lease,) = await claim(self.store, tasks=[job_id], now=self.now)
        self.holders.append(Holder(lease, renews_at=self.time + EVERY))
        self.tell(f"{job_id} starts")

    async def die(self) -> None:
        if len(self.living()) > 1:
            dies = self.rng.choice(self.living())
            dies.is_alive = False
            self.tell(f"the holder of {dies.lease.job_id} dies")

    async def go_away(self) -> None:
        seconds = self.rng.choice((1, 60, 149, 151, 240, 340, 1000))
        self.tell(f"the store is away for {seconds} s")
        self.is_there = False
        await self.pass_time(seconds * SECOND)
        self.is_there = True
        back = self.rng.choice((2, 20, 120))
        self.tell(f"it is back for {back} s")
        await self.pass_time(back * SECOND)

    async def jump_far(self) -> None:
        seconds = self.rng.choice((151, 300, 900, 86_400, -301, -3600))
        self.tell(f"the clock jumps by {seconds} s")
        self.jumped += seconds * SECOND
        await self.until_all_have_renewed()

    async def jump_a_little(self) -> None:
        await self.until_all_have_renewed()
        seconds = self.rng.choice((1, 60, 150, -1, -60, -299))
        self.tell(f"the clock jumps by {seconds} s")
        self.jumped += seconds * SECOND
        await self.until_all_have_renewed()

    async def work(self) -> None:
        await self.pass_time(self.rng.choice((1, 30, 100, 250)) * SECOND)

    async def run(self, events: int) -> None:
        happenings = [self.begin, self.die, self.work, *(self.go_away,) * 3, self.jump_far, self.jump_a_little]
        await self.begin()
        await self.begin()
        for _ in range(events):
            await self.rng.choice(happenings)()
        self.tell("calm")
        await self.pass_time(CALM)

    async def check_the_dead_have_lost_theirs(self) -> None:
        held = {lease.token for lease in await self.store.leases()}
        expected = {holder.lease.token for holder in self.living()}
        assert held == expected, "\n".join([f"held are {held}, alive {expected}:", *self.story])


def cases() -> list[object]:
    found: list[object] = []
    for real in STORES:
        if not real.is_twin:
            found.append(pytest.param(real, SEQUENCES, id=real.name))
            found.append(pytest.param(real, SEQUENCES_NIGHTLY, id=f"{real.name}-nightly", marks=pytest.mark.nightly))
    return found


@pytest.mark.timeout(600)  # a thousand sequences on a server take a minute, and several beside other programs
@pytest.mark.parametrize(("real", "sequences"), cases())
async def test_reclaim_takes_from_the_dead_only_through_any_outages_and_jumps(
    real: StoreUnderTest, sequences: int
) -> None:
    lived = died = 0
    for seed in range(sequences):
        store = await real.open(Bounds())
        try:
            simulation = Simulation(store, random.Random(seed))
            simulation.tell(f"seed {seed}")
            await simulation.run(events=6)
            await simulation.check_the_dead_have_lost_theirs()
        finally:
            await real.close(store)
        living = len(simulation.living())
        lived, died = lived + living, died + len(simulation.holders) - living
    assert lived > 2 * sequences
    assert died > sequences / 4
