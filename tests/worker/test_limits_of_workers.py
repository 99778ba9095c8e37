"""The limits of a configuration reach the store with a worker that runs, and in no other way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

import qo
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.values import Source
from tests.worker.running import running, soon, until

With = Callable[..., qo.Queue]


@pytest.fixture
def with_limits(queue: qo.Queue) -> With:
    """The same store as a program with another file sees it."""

    def connected(**limits: int) -> qo.Queue:
        settings = load_settings({"concurrency": {"limits": limits}}, environ={})
        return Queue(queue.store, settings)

    return connected


def worker_on(queue: qo.Queue, name: str) -> qo.Worker:
    worker = qo.Worker(queue, name)
    worker.task("nothing")(lambda: None)
    return worker


async def run(queue: qo.Queue, name: str) -> None:
    await soon(worker_on(queue, name).run_until_idle())


async def limits_of(queue: qo.Queue) -> dict[str, tuple[int | None, str]]:
    return {each.group: (each.limit, each.source.name) for each in await queue.limits() if each.source is not None}


async def audit_of(queue: qo.Queue) -> list[tuple[str | None, str, dict[str, Any]]]:
    """Oldest first."""
    return [(entry.by, entry.subject, entry.detail) for entry in reversed(await queue.audit())]


async def test_to_connect_and_to_use_a_queue_writes_no_limits(tmp_path: Any) -> None:
    limits = {"concurrency": {"limits": {"gpu": 2, "provider:ollama": 2, "user:ada": 9}}}
    async with await qo.connect(f"sqlite:///{tmp_path}/qo.db", settings=limits) as queue:
        await queue.submit("nothing", groups=["gpu"])
        await queue.jobs()

        assert await limits_of(queue) == {}
        assert await queue.audit() == []


async def test_a_worker_with_another_file_changes_limits_and_that_is_logged_and_recorded(
    with_limits: With, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await run(with_limits(gpu=2, api=7), "first")
    await run(with_limits(gpu=99), "second")

    queue = with_limits()
    assert await limits_of(queue) == {"gpu": (99, "CONFIGURATION"), "api": (7, "CONFIGURATION")}
    assert await audit_of(queue) == [
        ("first", "gpu", {"limit": 2, "source": 2, "from": None, "from_source": None}),
        ("first", "api", {"limit": 7, "source": 2, "from": None, "from_source": None}),
        ("second", "gpu", {"limit": 99, "source": 2, "from": 2, "from_source": 2}),
    ]
    logged = [(each.levelname, each.getMessage()) for each in caplog.records if "configuration" in each.getMessage()]
    assert logged == [
        ("INFO", "the configuration of worker first has limited gpu to 2"),
        ("INFO", "the configuration of worker first has limited api to 7"),
        (
            "WARNING",
            "the configuration of worker second has changed the limit of gpu from 2, which the configuration had set, "
            "to 99",
        ),
    ]


async def test_a_worker_without_a_file_removes_nobodys_limits(with_limits: With) -> None:
    await run(with_limits(gpu=2), "first")
    before = await audit_of(with_limits())

    await run(with_limits(), "second")

    assert await limits_of(with_limits()) == {"gpu": (2, "CONFIGURATION")}
    assert await audit_of(with_limits()) == before


async def test_of_two_workers_that_run_with_differing_files_the_one_that_started_last_counts(
    with_limits: With,
) -> None:
    one, other = with_limits(gpu=2, api=7), with_limits(gpu=99)
    async with running(worker_on(one, "one")):
        await until_worker(one, "one")
        async with running(worker_on(other, "other")):
            await until_worker(one, "other")
            both = await limits_of(one)
        left = await limits_of(one)

    assert both == left == {"gpu": (99, "CONFIGURATION"), "api": (7, "CONFIGURATION")}
    assert [by for by, subject, _ in await audit_of(one) if subject == "gpu"] == ["one", "other"]


async def until_worker(queue: qo.Queue, name: str) -> None:
    async def there() -> bool:
        return name in [worker.name for worker in await queue.workers()]

    await until(there)


async def test_limits_are_there_before_the_first_claim(with_limits: With) -> None:
    queue = with_limits(gpu=1)
    inside = most = 0
    worker = qo.Worker(queue, "w")

    @worker.task(groups=["gpu"])
    async def counts() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.01)
        inside -= 1

    for _ in range(4):
        await queue.submit("counts")
    await soon(worker.run_until_idle())

    assert most == 1


async def test_an_operators_limit_is_kept_and_the_worker_warns(
    with_limits: With, caplog: pytest.LogCaptureFixture
) -> None:
    queue = with_limits(gpu=9)
    await queue.set_limit("gpu", 3, by="ops")

    await run(queue, "w")

    assert await limits_of(queue) == {"gpu": (3, "OPERATOR")}
    assert any("the limit 9 of group gpu" in message for message in caplog.messages)


async def test_a_limiter_a_semaphore_and_a_manager_write_what_code_gave_them_when_somebody_enters(
    with_limits: With,
) -> None:
    queue = with_limits(**{"gpu": 2, "providers": 50, "user:ada": 9})
    limiter = qo.Limiter({"ollama": 4}, total=12, queue=queue)
    semaphore, manager = qo.user_semaphore(queue, "ada", "partner"), qo.ConcurrencyManager(queue)
    try:
        before = await limits_of(queue)
        async with limiter.acquire("ollama"):
            assert await semaphore.acquire("holder")
            assert await manager.try_acquire("gpu", 7, "holder") is not None
    finally:
        limiter.close()

    assert before == {}
    assert await limits_of(queue) == {
        "gpu": (7, "TASK"),
        "provider:ollama": (4, "TASK"),
        "providers": (12, "TASK"),
        "user:ada": (3, "TIER"),
    }


async def test_a_limiter_that_takes_its_limit_back_leaves_an_operators_alone(queue: qo.Queue) -> None:
    limiter = qo.Limiter({"ollama": 4, "gemini": 4}, queue=queue)
    try:
        async with limiter.acquire("ollama"), limiter.acquire("gemini"):
            pass
        await queue.set_limit("provider:ollama", 1, by="ops")
        await asyncio.to_thread(limiter.set_limit, "ollama", None)
        await asyncio.to_thread(limiter.set_limit, "gemini", None)
    finally:
        limiter.close()

    status = await queue.limit("provider:ollama")
    assert (status.limit, status.source) == (1, Source.OPERATOR)
    assert (await queue.limit("provider:gemini")).limit is None
