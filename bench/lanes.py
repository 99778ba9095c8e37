"""A start costs the same however many jobs of one user wait: that user's limit and a provider's are full by turns.

python -m bench.lanes
"""

from __future__ import annotations

import asyncio
import statistics
import time
from itertools import count

from qo.job import State
from qo.store.contract import Store
from qo.store.redis import RedisStore
from qo.store.sqlite import SQLiteStore
from qo.values import Lease, Limit, Outcome, Source, Submission
from tests.servers.redis import Server

FEW, MANY = 60, 4000
ROUNDS, STARTS_A_ROUND = 9, 21

_numbers = count()


class Story:
    """`api` has two slots, user u may run one job, and jobs of another user come and go before u's."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def begin(self, *, waiting: int) -> None:
        limits = {"api": 2, "user:u": 1}
        await self._store.set_limits(
            [Limit(group=group, slots=slots, source=Source.OPERATOR) for group, slots in limits.items()]
        )
        for first in range(0, waiting, 500):
            await self._store.submit([self._job("u") for _ in range(first, min(first + 500, waiting))])
        (self._mine,) = await self._claim()
        await self._store.submit([self._job("v")])
        (self._other,) = await self._claim()

    async def start_some(self) -> float:
        """The microseconds a start, with as many jobs in line at the end as at the beginning."""
        began = time.perf_counter()
        for _ in range(STARTS_A_ROUND // 3):
            await self._store.submit([self._job("v"), self._job("u")])
            await self._end(self._mine)  # the user may go, but the other user's job is first
            (following,) = await self._claim()
            await self._end(self._other)  # now the provider has room
            (self._mine,) = await self._claim()
            assert self._mine.job.user == "u"
            await self._end(following)  # the provider has room, and the user is at the limit
            assert not await self._claim()
            await self._store.submit([self._job("v")])
            (self._other,) = await self._claim()
        return (time.perf_counter() - began) / STARTS_A_ROUND * 1_000_000

    def _job(self, user: str) -> Submission:
        priority = 50 if user == "u" else 10
        return Submission(id=f"{user}-{next(_numbers)}", task="work", user=user, groups=("api",), priority=priority)

    async def _claim(self) -> tuple[Lease, ...]:
        """What a worker with capacity to spare gets, which asks again as long as there is more."""
        leases: tuple[Lease, ...] = ()
        while True:
            claim_id = f"claim-{next(_numbers)}"
            claimed = await self._store.claim(
                worker="w", tasks=["work"], capacity=10, lease_ms=300_000, claim_id=claim_id
            )
            leases += claimed.leases
            if not claimed.more:
                return leases

    async def _end(self, lease: Lease) -> None:
        await self._store.finish([Outcome(job_id=lease.job_id, token=lease.token, state=State.SUCCEEDED, result=b"1")])


async def report() -> None:
    print("\nstarts while a user's limit and a provider's are full by turns")
    with Server("valkey") as server:
        pairs = {
            "SQLite": [await SQLiteStore.open(":memory:") for _ in range(2)],
            "Valkey": [await RedisStore.open(server.url, namespace=f"lanes-{n}") for n in range(2)],
        }
        for name, (first, second) in pairs.items():
            few, many = Story(first), Story(second)
            await few.begin(waiting=FEW)
            await many.begin(waiting=MANY)
            figures = [(await few.start_some(), await many.start_some()) for _ in range(ROUNDS)]
            ratio = statistics.median(of_many / of_few for of_few, of_many in figures)
            of_few, of_many = (statistics.median(column) for column in zip(*figures, strict=True))
            print(f"  {name:7} {FEW} waiting {of_few:6.0f} µs, {MANY} waiting {of_many:6.0f} µs", end="")
            print(f" a start; ratio {ratio:.2f} (at most 1.3)")
            await first.close()
            await second.close()


if __name__ == "__main__":
    asyncio.run(report())
