"""A page that applies frames to its window has the order of the line, whatever happens to it."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

import qo
from qo.errors import InvalidTransition
from qo.policy.ordering import STEPS_PER_CELL
from qo.values import Outcome, UpkeepRules
from tests.by_hand import LEASE_MS
from tests.service.stream.app import LIVE, StreamApp
from tests.service.stream.client import connected
from tests.service.stream.window import Window

ROUNDS = 5
"""Each round ends when its last frame has arrived, so there are as many frames at least on the slowest machine."""
OPERATIONS_A_ROUND = 80
USERS = ("u1", "u2", "u3")
PRIORITIES = (10, 20, 50, 70, 90)


class Storm:
    """Random acts of users, operators and workers, one after the other."""

    def __init__(self, queue: qo.Queue, seed: int) -> None:
        self._queue = queue
        self._random = Random(seed)
        self._held: dict[str, str] = {}
        """The tokens of the jobs that run, by job."""
        self._submitted = 0
        self.happened: set[str] = set()

    async def blow(self, times: int, *, last_job: str) -> None:
        """Does so many random acts, and submits `last_job` behind them."""
        acts = [self.submit, self.submit, self.submit_several, self.move, self.move, self.prioritise, self.claim]
        acts += [self.end, self.cancel, self.pause, self.tier, self.age]
        for _ in range(times):
            act = self._random.choice(acts)
            try:
                await act()
            except InvalidTransition:  # it has started or ended since it was chosen
                continue
            self.happened.add(act.__name__)
        await self._queue.submit("build", id=last_job)

    async def submit(self) -> None:
        self._submitted += 1
        user, priority = self._random.choice(USERS), self._random.choice(PRIORITIES)
        await self._queue.submit("build", id=f"j{self._submitted}", user=user, priority=priority)

    async def submit_several(self) -> None:
        for _ in range(5):
            await self.submit()

    async def move(self) -> None:
        waiting = await self._in_line()
        if len(waiting) > 1:
            moved, other = self._random.sample(waiting, 2)
            # Often to the same place, where soon there is no room.
            other = waiting[len(waiting) // 2] if self._random.random() < 0.5 else other
            if moved != other:
                before = self._random.random() < 0.5
                await self._queue.move(moved, before=other if before else None, after=None if before else other)

    async def prioritise(self) -> None:
        if waiting := await self._in_line():
            await self._queue.set_priority(self._random.choice(waiting), self._random.choice(PRIORITIES))

    async def claim(self) -> None:
        capacity = self._random.randint(1, 4)
        claimed = await self._queue.store.claim(
            worker="w1", tasks=["build"], capacity=capacity, lease_ms=LEASE_MS, claim_id=self._queue.system.new_id()
        )
        self._held |= {lease.job_id: lease.token for lease in claimed.leases}

    async def end(self) -> None:
        if self._held:
            job_id = self._random.choice(sorted(self._held))
            state = self._random.choice([qo.State.SUCCEEDED, qo.State.QUEUED])
            await self._queue.store.finish([Outcome(job_id=job_id, token=self._held.pop(job_id), state=state)])

    async def cancel(self) -> None:
        if waiting := await self._in_line():
            await self._queue.cancel(self._random.choice(waiting))

    async def pause(self) -> None:
        group = self._random.choice(["priority:50", "user:u1"])
        await self._random.choice([self._queue.pause, self._queue.resume])(group)

    async def tier(self) -> None:
        await self._queue.set_tier(self._random.choice(USERS), self._random.choice(["partner", "cto_scale"]))

    async def age(self) -> None:
        await self._queue.store.upkeep(UpkeepRules(aging_period_ms=50))

    async def _in_line(self) -> list[str]:
        return [job.id for job in (await self._queue.store.line(limit=1000)).jobs]


@pytest.mark.parametrize("seed", [1, 2])
async def test_the_window_of_a_page_ends_in_the_order_of_the_line(queue: qo.Queue, seed: int) -> None:
    app, storm, window = StreamApp(queue), Storm(queue, seed), Window()
    await storm.submit_several()
    async with app.served() as served, connected(served, LIVE) as client:
        await window.apply(await client.next(), queue)
        await window.read(queue)
        for number in range(ROUNDS):
            last_job = f"last-{number}"
            async with asyncio.TaskGroup() as together:
                together.create_task(storm.blow(OPERATIONS_A_ROUND, last_job=last_job))
                together.create_task(window.follow_until_job(client, queue, last_job))

    in_line = await queue.jobs(status="queued", limit=10_000)
    assert window.resets == 0
    assert window.order == [job.id for job in in_line]
    assert {job.id: job.key for job in in_line} == {job_id: row["key"] for job_id, row in window.rows.items()}
    assert {job.id: job.tier for job in in_line} == {job_id: row.get("tier") for job_id, row in window.rows.items()}
    assert window.waiting == window.count == len(in_line) > 20
    assert len(storm.happened) == 10


async def test_neighbours_that_make_room_for_a_moved_job_come_with_their_new_keys(queue: qo.Queue) -> None:
    app, window = StreamApp(queue), Window()
    jobs = [await queue.submit("build", id=f"j{number:03}") for number in range(STEPS_PER_CELL + 20)]
    async with app.served() as served, connected(served, LIVE) as client:
        await window.apply(await client.next(), queue)
        await window.read(queue)
        spread: set[str] = set()
        for job in jobs[2:20]:
            before = {each.id: each.key for each in (await queue.store.line(limit=1000)).jobs}
            await queue.move(job.id, before="j001")
            after = {each.id: each.key for each in (await queue.store.line(limit=1000)).jobs}
            spread |= {each for each in after if after[each] != before[each]} - {job.id}
        await window.follow(client, queue, until_id=(await queue.store.events(None)).cursor)

    assert spread, "no job had to make room"
    assert window.order == [job.id for job in await queue.jobs(status="queued", limit=1000)]
    assert {job_id: row["key"] for job_id, row in window.rows.items()} == after
