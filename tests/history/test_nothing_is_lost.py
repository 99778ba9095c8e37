"""Every acknowledged job is in the history once, with its right end, whatever dies in between."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from qo.job import State
from qo.store.redis.store import RedisStore
from tests.conformance.suite.harness import claim, fresh_id, outcome, submit_all
from tests.history.staging import (
    PATIENCE_SECONDS,
    Snapshot,
    Staged,
    fresh_database,
    fresh_name,
    fresh_store,
    switch_on,
)
from tests.history.victim import STEPS
from tests.processes import environment
from tests.servers.postgres import PostgresServer
from tests.servers.redis import shared_server

ENDS = (State.SUCCEEDED, State.FAILED, State.SUCCEEDED)


class Jobs:
    """Submits jobs and ends most of them, and knows what was acknowledged last of each.

    A server that is set back forgets what it has acknowledged. The history keeps it, until something newer comes.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self.states: dict[str, str] = {}
        self._random = random.Random(7)

    async def submit(self, count: int) -> None:
        names = [fresh_id("job") for _ in range(count)]
        await submit_all(self._store, names, now=None)
        self.states |= dict.fromkeys(names, "accepted")

    async def go_on(self, count: int) -> None:
        await self.submit(count)
        leases = await claim(self._store, capacity=count, now=None)
        outcomes = [outcome(lease, self._random.choice(ENDS)) for lease in leases[: count * 3 // 4]]
        for finished in await self._store.finish(outcomes):
            assert finished.state is not None
            self.states[finished.job_id] = finished.state.value


async def kill_at(step: str, staged: Staged, url: str) -> None:
    """Run a recorder until it has died there."""
    arguments = [step, url, staged.store.client.namespace, staged.url]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.history.victim", *arguments, env=environment()
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await process.wait() == -signal.SIGKILL


@asynccontextmanager
async def recording(staged: Staged, *, until: Jobs, recorders: int = 1) -> AsyncIterator[None]:
    """Recorders beside the block; they end when the outbox is empty."""
    made = [staged.new_recorder() for _ in range(recorders)]
    running = [asyncio.create_task(recorder.run()) for recorder in made]
    yield
    await staged.until_outbox_is_empty()
    for recorder in made:
        recorder.stop()
    await asyncio.gather(*running)
    assert await staged.states() == until.states
    assert await staged.count("history.rejected") == 0
    assert (await staged.status()).length == 0


async def test_no_step_at_which_a_recorder_dies_loses_or_doubles_anything(staged: Staged) -> None:
    jobs, url = Jobs(staged.store), shared_server("valkey").url
    for step in STEPS:
        await jobs.go_on(20)
        await kill_at(step, staged, url)
    await jobs.go_on(20)

    async with recording(staged, until=jobs):
        pass

    (attempts,) = await staged.rows("SELECT count(*), count(DISTINCT job_id) AS jobs FROM history.attempts")
    assert attempts["count"] == attempts["jobs"] == sum(state != "accepted" for state in jobs.states.values())


async def away_for(server: PostgresServer, seconds: float) -> None:
    server.kill()
    await asyncio.sleep(seconds)
    await asyncio.to_thread(server.start)


async def test_postgresql_may_be_away_while_jobs_go_on(store: RedisStore) -> None:
    await check_away(store, seconds=3, jobs_at_once=20, rounds=10)


async def check_away(store: RedisStore, *, seconds: float, jobs_at_once: int, rounds: int) -> None:
    await switch_on(store)
    with PostgresServer() as server:
        name = fresh_name()
        await server.execute(f"CREATE DATABASE {name}")
        staged, jobs = Staged(store, server.url(name)), Jobs(store)
        async with recording(staged, until=jobs):
            await jobs.go_on(jobs_at_once)
            away = asyncio.create_task(away_for(server, seconds))
            for _ in range(rounds):
                await jobs.go_on(jobs_at_once)
            await away


async def test_two_recorders_at_once_write_each_entry_once(staged: Staged) -> None:
    jobs = Jobs(staged.store)
    first, second = staged.new_recorder(), staged.new_recorder()
    await asyncio.gather(first.open(), second.open())

    for _ in range(5):
        await jobs.go_on(20)
        # Both without a slot, as when one has lost it and does not know it yet.
        await asyncio.gather(first.step(), second.step())
    async with recording(staged, until=jobs):
        pass

    assert first.numbers.renumbered == second.numbers.renumbered == 0
    await asyncio.gather(first.close(), second.close())


async def test_a_server_that_is_set_back_loses_nothing_that_it_acknowledges_afterwards(staged: Staged) -> None:
    jobs, url = Jobs(staged.store), shared_server("valkey").url
    await jobs.go_on(20)
    await jobs.submit(20)
    async with recording(staged, until=jobs):
        pass
    snapshot = Snapshot(staged.store, url)
    await jobs.go_on(20)  # some of those that the snapshot has in line end now
    async with recording(staged, until=jobs):
        pass

    snapshot.set_back()
    await jobs.go_on(10)  # fewer of them end once more
    async with recording(staged, until=jobs):
        pass


@pytest.mark.nightly
async def test_all_of_it_under_twenty_thousand_jobs() -> None:
    await check_all_of_it(kills=200, rounds=100, jobs_at_once=60, away_seconds=60)


async def check_all_of_it(*, kills: int, rounds: int, jobs_at_once: int, away_seconds: float) -> None:
    """Recorders that are killed so often, PostgreSQL away, two recorders at once, Redis set back."""
    url = shared_server("valkey").url
    async with fresh_store() as store, fresh_database() as database:
        await switch_on(store)
        staged, jobs = Staged(store, database), Jobs(store)
        for number in range(kills):
            await jobs.go_on(jobs_at_once)
            await kill_at(STEPS[number % len(STEPS)], staged, url)
        async with recording(staged, until=jobs, recorders=2):
            for _ in range(rounds):
                await jobs.go_on(jobs_at_once)
        snapshot = Snapshot(store, url)
        await jobs.go_on(jobs_at_once)
        async with recording(staged, until=jobs):
            pass
        snapshot.set_back()
        async with recording(staged, until=jobs, recorders=2):
            for _ in range(rounds):
                await jobs.go_on(jobs_at_once)
    async with fresh_store() as store:
        await check_away(store, seconds=away_seconds, jobs_at_once=jobs_at_once, rounds=rounds)
