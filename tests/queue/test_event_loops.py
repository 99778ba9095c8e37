"""A queue belongs to one event loop; in another one its calls say so instead of hanging."""

from __future__ import annotations

import asyncio
import inspect
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import qo
import qo.sync
from tests.api.wrong_calls import CALLS
from tests.servers.redis import shared_server

CLASSES: dict[str, Callable[[qo.Queue], object]] = {
    "Queue": lambda queue: queue,
    "Worker": lambda queue: worker_on(queue),
    "Semaphore": lambda queue: qo.user_semaphore(queue, "ada", "partner"),
    "ConcurrencyManager": lambda queue: qo.ConcurrencyManager(queue),
    "WaitTimeEstimator": lambda queue: qo.WaitTimeEstimator(queue),
}
NOT_OF_A_LOOP = {"Queue.close", "ConcurrencyManager.close", "ConcurrencyManager.open"}


def is_asynchronous(name: str) -> bool:
    owner, _, method = name.partition(".")
    member = getattr(getattr(qo, owner), method, None) if owner in CLASSES else None
    return inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)


ASYNCHRONOUS = [name for name in CALLS if is_asynchronous(name) and name not in NOT_OF_A_LOOP]
MORE: dict[str, dict[str, object]] = {
    "Queue.move": {"before": "b"},
    "Queue.submit_many": {"jobs": [qo.New("greet")]},
    "Queue.limit": {"group": "g"},
}


@pytest.fixture(params=["memory", "sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    urls: dict[str, Callable[[], str]] = {
        "memory": lambda: "memory://",
        "sqlite": lambda: f"sqlite:///{tmp_path}/qo.db",
        "redis": lambda: shared_server("valkey").url,
    }
    return urls[request.param]()


def worker_on(queue: qo.Queue) -> qo.Worker:
    worker = qo.Worker(queue)
    worker.task("greet")(lambda: None)
    return worker


async def opened(url: str) -> qo.Queue:
    queue = await qo.connect(url, namespace=f"loops-{secrets.token_hex(6)}")
    job = await queue.submit("greet", user="ada")
    await queue.get(job.id)  # from now on, estimates are kept fresh in this loop
    return queue


async def called(queue: qo.Queue, name: str) -> Any:
    owner, _, method = name.partition(".")
    call = getattr(CLASSES[owner](queue), method)
    needed = [
        parameter.name for parameter in inspect.signature(call).parameters.values()
        if parameter.default is parameter.empty
    ]  # fmt: skip
    answer = call(**{**dict.fromkeys(needed, "a"), **CALLS[name].good, **MORE.get(name, {})})
    return await (anext(answer) if inspect.isasyncgen(answer) else answer)


def test_every_class_has_calls_here() -> None:
    assert {name.partition(".")[0] for name in ASYNCHRONOUS} == set(CLASSES)


def test_every_call_in_a_second_run_names_the_cause(url: str) -> None:
    queue = asyncio.run(opened(url))

    for name in ASYNCHRONOUS:
        with pytest.raises(qo.WrongEventLoop, match=r"that has ended; connect again in each event loop"):
            asyncio.run(asyncio.wait_for(called(queue, name), 20))
    asyncio.run(asyncio.wait_for(queue.close(), 20))


def test_every_call_beside_a_running_loop_names_the_cause_and_disturbs_no_other(url: str) -> None:
    ready, done = threading.Event(), threading.Event()
    shared: list[qo.Queue] = []
    ended: list[qo.State] = []

    async def own_loop() -> None:
        queue = await opened(url)
        shared.append(queue)
        ready.set()
        await asyncio.to_thread(done.wait)
        job = await queue.submit("greet")
        await worker_on(queue).run_until_idle()
        ended.append((await queue.wait(job.id, timeout=20)).state)
        await queue.close()

    thread = threading.Thread(target=lambda: asyncio.run(own_loop()))
    thread.start()
    try:
        assert ready.wait(20)
        for name in (*ASYNCHRONOUS, "Queue.close"):
            with pytest.raises(qo.WrongEventLoop, match=r"that is another one; connect again in each event loop"):
                asyncio.run(asyncio.wait_for(called(shared[0], name), 20))
    finally:
        done.set()
        thread.join(20)

    assert ended == [qo.State.SUCCEEDED]


def test_a_queue_may_be_opened_in_one_run_and_used_in_another(url: str) -> None:
    queue = asyncio.run(qo.connect(url, namespace=f"loops-{secrets.token_hex(6)}"))

    async def used() -> qo.State:
        job = await queue.submit("greet")
        await worker_on(queue).run_until_idle()
        state = (await queue.get(job.id)).state
        await queue.close()
        return state

    assert asyncio.run(used()) is qo.State.SUCCEEDED


def test_the_queue_of_qo_sync_is_not_for_other_loops(url: str) -> None:
    with qo.sync.connect(url, namespace=f"loops-{secrets.token_hex(6)}") as queue:
        queue.submit("greet")
        with pytest.raises(qo.WrongEventLoop, match=r"or use qo\.sync, which serves all threads"):
            asyncio.run(queue.asynchronous.submit("greet"))


def test_a_limiter_on_a_queue_serves_one_run_after_another_and_two_at_once(url: str) -> None:
    queue = asyncio.run(opened(url))
    limiter = qo.Limiter({"ollama": 1}, queue=queue)
    inside: list[str] = []

    async def enter(name: str) -> None:
        async with limiter.acquire("ollama", timeout=20):
            inside.append(f"{name} in")
            await asyncio.sleep(0)
            inside.append(f"{name} out")

    async def enter_several(name: str) -> None:
        await asyncio.gather(*(enter(name) for _ in range(5)))

    asyncio.run(enter_several("first"))
    asyncio.run(enter_several("second"))
    threads = [threading.Thread(target=lambda: asyncio.run(enter_several("beside"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    limiter.close()
    asyncio.run(queue.close())

    assert len(inside) == 40
    assert all(a.replace(" in", " out") == b for a, b in zip(inside[::2], inside[1::2], strict=True))
