"""Workers of one name: each is seen, none makes another invisible, and what was forgotten registers again."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from typing import Any

import pytest

import qo
from qo.values import Registered, Registration, TaskOptions
from tests.worker.running import running, soon, state_is, until

LEASE_SECONDS = 0.6
"""so that the heart beats five times a second"""


@pytest.fixture
def overrides() -> dict[str, Any]:
    return {"concurrency": {"default_lease_duration_secs": LEASE_SECONDS, "limits": {"gpu": 3}}}


def building(queue: qo.Queue, name: str = "w") -> qo.Worker:
    worker = qo.Worker(queue, name, concurrency=2)

    @worker.task
    async def build(data: Any, ctx: qo.Context) -> None:
        if data == "wait":
            await asyncio.Event().wait()

    return worker


def registration(name: str = "w", **fields: Any) -> Registration:
    return Registration(name=name, tasks=(TaskOptions(name="build"),), capacity=1, **fields)


async def names(queue: qo.Queue) -> list[str]:
    return [worker.name for worker in await queue.workers()]


async def are_there(queue: qo.Queue, *wanted: str) -> None:
    async def there() -> bool:
        return await names(queue) == sorted(wanted)

    await until(there)


def dead_process() -> int:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


async def test_when_one_of_two_workers_of_a_name_leaves_the_other_is_still_seen(
    queue: qo.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = building(queue), building(queue)
    async with running(first):
        await are_there(queue, "w")
        async with running(second):
            await are_there(queue, "w", "w-2")
            named = {first.name, second.name}
            first.stop()
            await are_there(queue, "w-2")
            job = await queue.submit("build")
            await state_is(queue, job.id, qo.State.SUCCEEDED)
            ran = await queue.get(job.id)
            waits = await queue.submit("build", delay=0)

            assert not (await queue.why(waits.id)).no_worker

    assert named == {"w", "w-2"}
    assert ran.worker == "w-2"
    (warning,) = [each for each in caplog.messages if "w-2" in each and "is taken" in each]
    assert f"process {os.getpid()} on {socket.gethostname()}" in warning
    assert await names(queue) == []
    assert second.name == "w"


async def test_a_third_worker_of_a_name_gets_the_next_number(queue: qo.Queue) -> None:
    async with running(building(queue), building(queue), building(queue)):
        await are_there(queue, "w", "w-2", "w-3")


async def test_a_worker_whose_process_is_dead_on_this_host_is_replaced(
    queue: qo.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await queue.store.register(registration(instance="dead", host=socket.gethostname(), pid=dead_process()))

    async with running(building(queue)):
        await until(lambda: is_instance(queue, other_than="dead"))
        there = await names(queue)

    assert there == ["w"]
    assert not [each for each in caplog.messages if "is taken" in each]


async def is_instance(queue: qo.Queue, *, other_than: str) -> bool:
    return [worker.instance == other_than for worker in await queue.workers()] == [False]


@pytest.mark.parametrize("host", ["another-host", None])
async def test_a_worker_elsewhere_is_never_taken_for_dead(queue: qo.Queue, host: str | None) -> None:
    """Its process id says nothing here."""
    await queue.store.register(registration(instance="other", host=host, pid=dead_process()))

    async with running(building(queue)):
        await are_there(queue, "w", "w-2")


async def test_a_name_of_the_greatest_length_gets_a_suffix_too(queue: qo.Queue) -> None:
    longest = "w" * 200
    async with running(building(queue, longest), building(queue, longest)):
        await are_there(queue, longest, "w" * 198 + "-2")


async def test_a_heartbeat_registers_again_what_is_missing_and_records_no_limits_that_stayed(queue: qo.Queue) -> None:
    async with running(building(queue)):
        await are_there(queue, "w")
        (before,) = await queue.workers()
        audit = await queue.audit()
        gone = Registration(name="w", instance=before.instance, tasks=(), capacity=0)
        await queue.store.register(gone)
        missing = await names(queue)

        await are_there(queue, "w")
        (after,) = await queue.workers()

        assert missing == []
        assert (after.instance, after.tasks, after.capacity) == (before.instance, ("build",), 2)
        assert (after.host, after.pid) == (socket.gethostname(), os.getpid())
        assert await queue.audit() == audit
        assert [(entry.by, entry.subject) for entry in audit] == [("w", "gpu")]


async def test_a_worker_whose_name_was_taken_while_it_was_not_heard_of_goes_on_under_another(
    queue: qo.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    worker = building(queue)
    async with running(worker):
        await are_there(queue, "w")
        held = await queue.submit("build", "wait")
        await state_is(queue, held.id, qo.State.RUNNING)
        (own,) = await queue.workers()
        taken = registration(instance="other", replaces=own.instance, host="another-host", lifetime_ms=600_000)
        await queue.store.register(taken)

        await are_there(queue, "w", "w-2")
        later = await queue.submit("build", "wait")
        await state_is(queue, later.id, qo.State.RUNNING)
        worked = (await queue.get(later.id)).worker
        await queue.cancel(held.id)
        await queue.cancel(later.id)
        await soon(queue.wait(held.id))
        await soon(queue.wait(later.id))

        assert worked == "w-2" == worker.name
        assert [worker.name for worker in await queue.workers() if worker.instance == "other"] == ["w"]
    assert await names(queue) == ["w"]
    assert any("w-2" in each and "another-host" in each for each in caplog.messages)


async def test_a_worker_that_stops_while_it_registers_again_is_gone_afterwards(queue: qo.Queue) -> None:
    """Its goodbye cannot overtake a registration that is on its way to the store."""
    loop = asyncio.get_running_loop()
    register, registering, go_on = queue.store.register, asyncio.Event(), asyncio.Event()
    arrived: list[str] = []

    async def arrive(wanted: Registration) -> Registered:
        if arrived and wanted.tasks:
            registering.set()
            await go_on.wait()
        answer = await register(wanted)
        arrived.append("registration" if wanted.tasks else "goodbye")
        if not wanted.tasks:
            go_on.set()
        return answer

    async def send(registration: Registration) -> Registered:
        """What was sent arrives, whether or not the sender waits for the answer."""
        return await asyncio.shield(asyncio.wrap_future(asyncio.run_coroutine_threadsafe(arrive(registration), loop)))

    queue.store.register = send  # type: ignore[method-assign]
    worker = building(queue)
    async with running(worker):
        await are_there(queue, "w")
        (own,) = await queue.workers()
        await register(Registration(name="w", instance=own.instance, tasks=(), capacity=0))
        await soon(registering.wait())
        worker.stop()
        loop.call_later(0.5, go_on.set)  # a goodbye that overtakes comes sooner

    assert arrived == ["registration", "registration", "goodbye"]
    assert await names(queue) == []


async def test_idle_workers_of_one_given_name_are_each_given_a_job_and_each_hears_its_cancel(queue: qo.Queue) -> None:
    workers = [building(queue), building(queue)]
    for worker in workers:
        worker.concurrency = 1
    async with running(*workers):
        await are_there(queue, "w", "w-2")
        jobs = [await queue.submit("build", "wait") for _ in range(2)]
        for job in jobs:
            await state_is(queue, job.id, qo.State.RUNNING)
        ran_on = {(await queue.get(job.id)).worker for job in jobs}
        for job in jobs:
            await queue.cancel(job.id)
        for job in jobs:
            await soon(queue.wait(job.id))

    assert ran_on == {"w", "w-2"}


async def test_a_worker_that_runs_again_has_its_own_name_again(queue: qo.Queue) -> None:
    worker = building(queue)
    for _ in range(2):
        async with running(worker):
            await are_there(queue, "w")


async def test_workers_are_listed_with_the_time_of_their_last_heartbeat(queue: qo.Queue) -> None:
    async with running(building(queue)):
        await are_there(queue, "w")
        (first,) = await queue.workers()

        async def heard_again() -> bool:
            (worker,) = await queue.workers()
            return worker.heard_at > first.heard_at

        await until(heard_again)
        assert first.heard_at >= first.registered_at
