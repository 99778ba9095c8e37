"""The same names for synchronous programs."""

from __future__ import annotations

import asyncio
import inspect
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import qo
import qo.sync
from tests.servers.bucket import shared_bucket_server

ASYNCHRONOUS_ONLY = {"admit", "admit_each", "check_loop", "configured_limits", "jobs_page", "warn_of_ignored"}


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[qo.sync.Queue]:
    with qo.sync.connect(f"sqlite:///{tmp_path}/qo.db", settings={"retries": {"first_delay_secs": 0}}) as opened:
        yield opened


def test_every_call_of_the_asynchronous_queue_and_worker_is_there() -> None:
    for asynchronous, blocking in (
        (qo.Queue, qo.sync.Queue),
        (qo.Worker, qo.sync.Worker),
        (qo.Semaphore, qo.sync.Semaphore),
        (qo.ConcurrencyManager, qo.sync.ConcurrencyManager),
    ):
        names = {name for name, _ in inspect.getmembers(asynchronous, callable) if not name.startswith("_")}
        missing = names - ASYNCHRONOUS_ONLY - set(dir(blocking)) - {"task", "cron", "lifespan", "around", "stop_now"}
        assert missing == set()


def test_signatures_and_docs_are_those_of_the_asynchronous_call(queue: qo.sync.Queue) -> None:
    blocking, asynchronous = inspect.signature(queue.submit), inspect.signature(qo.Queue.submit)

    assert list(blocking.parameters) == list(asynchronous.parameters)
    assert queue.submit.__doc__ == qo.Queue.submit.__doc__


def test_a_job_is_submitted_run_and_waited_for(queue: qo.sync.Queue) -> None:
    worker = qo.sync.Worker(queue, "worker-1")

    @worker.task
    def greet(data: Any) -> str:
        return f"hello {data}"

    job = queue.submit("greet", "ada")
    worker.run_until_idle()

    assert queue.wait(job.id, timeout=10).result == "hello ada"
    assert [event.kind for event in queue.watch(job.id)] == ["succeeded"]


def test_a_worker_runs_in_a_thread_until_it_is_stopped(queue: qo.sync.Queue) -> None:
    worker = qo.sync.Worker(queue)
    worker.task("greet")(lambda data: data)
    thread = threading.Thread(target=worker.run)
    thread.start()
    job = queue.submit("greet", 7)

    assert queue.wait(job.id, timeout=10).result == 7
    worker.stop()
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_a_watch_that_is_left_early_is_closed(queue: qo.sync.Queue) -> None:
    job = queue.submit("greet")
    for event in queue.watch(job.id):
        assert event.kind == "queued"
        break

    assert queue.asynchronous.follower.watchers == {}


def test_many_threads_use_one_queue(queue: qo.sync.Queue) -> None:
    with ThreadPoolExecutor(16) as threads:
        jobs = list(threads.map(lambda n: queue.submit("greet", n, id=f"job-{n}"), range(200)))

    assert [job.id for job in jobs] == [f"job-{n}" for n in range(200)]
    assert len(queue.jobs(limit=300)) == 200


def test_errors_are_the_same(queue: qo.sync.Queue) -> None:
    with pytest.raises(qo.JobNotFound):
        queue.get("nobody")
    with pytest.raises(qo.InvalidPriority):
        queue.submit("greet", priority=100)


def test_a_queue_that_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()

    with pytest.raises(qo.SettingsError):
        qo.sync.connect("nonsense://")

    assert threading.active_count() == before


def test_closing_ends_the_thread_and_closing_twice_is_harmless(tmp_path: Path) -> None:
    before = threading.active_count()
    queue = qo.sync.connect(f"sqlite:///{tmp_path}/other.db")
    queue.submit("greet")
    queue.close()
    queue.close()

    assert threading.active_count() == before


def test_semaphores_block_too(queue: qo.sync.Queue) -> None:
    semaphore = qo.sync.user_semaphore(queue, "ada", "bootstrapper")

    assert [semaphore.acquire(holder) for holder in ("one", "two", "three")] == [True, True, False]
    assert semaphore.heartbeat("one")
    assert semaphore.release("one")
    assert semaphore.acquire("three", timeout=5)
    assert (semaphore.count(), semaphore.cleanup()) == (2, 0)
    assert qo.sync.project_semaphore(queue, "site", "partner").acquire("one")


# --- a blocking call in the loop itself -----------------------------------------------------------------------


def blocking_calls(queue: qo.sync.Queue) -> dict[str, Callable[[], Any]]:
    return {
        "submit": lambda: queue.submit("other"),
        "get": lambda: queue.get("a"),
        "wait": lambda: queue.wait("a"),
        "watch": lambda: next(queue.watch("a")),
        "semaphore": lambda: qo.sync.user_semaphore(queue, "ada", "partner").acquire("x"),
        "manager": lambda: qo.sync.ConcurrencyManager(queue).try_acquire("api", 1, "ann"),
        "worker": lambda: qo.sync.Worker(queue).run_until_idle(),
        "close": lambda: queue.close(),
    }


@pytest.mark.parametrize("name", blocking_calls(None))  # type: ignore[arg-type]  # for its names
def test_an_async_handler_that_makes_a_blocking_call_is_told_what_to_do(queue: qo.sync.Queue, name: str) -> None:
    worker = qo.sync.Worker(queue)

    @worker.task(max_attempts=1)
    async def greet(data: Any) -> None:
        blocking_calls(queue)[name]()

    queue.submit("greet", id="a")
    worker.run_until_idle()

    error = queue.get("a").error
    assert error is not None
    assert error.detail is not None
    assert error.detail.startswith("WrongEventLoop: A blocking call of qo.sync was made in its own event loop")
    assert "make the handler a plain `def`, or await the same call of `queue.asynchronous`." in error.detail


def test_an_async_handler_may_await_the_asynchronous_queue(queue: qo.sync.Queue) -> None:
    worker = qo.sync.Worker(queue)

    @worker.task
    async def greet(data: Any) -> str:
        return (await queue.asynchronous.submit("other", id="b")).id

    queue.submit("greet", id="a")
    worker.run_until_idle()

    assert queue.get("a").result == "b"


def test_a_blocking_call_in_another_event_loop_blocks_it_and_answers(queue: qo.sync.Queue) -> None:
    async def in_a_notebook() -> qo.Job:
        return queue.submit("greet")

    assert asyncio.run(in_a_notebook()).task == "greet"


# --- slots without a job --------------------------------------------------------------------------------------


def use_all_calls(manager: qo.sync.ConcurrencyManager) -> None:
    assert manager.try_acquire("api", 1, "ann", "worker-1", lease=60) == 0
    assert manager.try_acquire("api", 1, "bob") is None
    assert manager.extend_lease("api", 0, "ann", 30)
    (slot,) = manager.get_status("api").slots
    assert (slot.slot_id, slot.holder, slot.worker_id) == (0, "ann", "worker-1")
    assert manager.cleanup_expired("api") == 0
    assert not manager.release("api", 0, "bob")
    assert manager.release("api", 0, "ann")


def test_the_manager_blocks_too_on_a_queue(queue: qo.sync.Queue) -> None:
    manager = qo.sync.ConcurrencyManager(queue)
    use_all_calls(manager)

    assert manager.get_status("api").active == 0


@pytest.mark.parametrize("where", ["store", "bucket"])
def test_the_manager_opens_any_url_and_leaves_no_thread(tmp_path: Path, where: str) -> None:
    bucket = shared_bucket_server().url(f"sync-{secrets.token_hex(6)}")
    before = threading.active_count()
    with qo.sync.ConcurrencyManager.open(f"sqlite:///{tmp_path}/own.db" if where == "store" else bucket) as manager:
        use_all_calls(manager)
    manager.close()
    with pytest.raises(qo.SettingsError):
        qo.sync.ConcurrencyManager.open("nonsense://")

    until_seconds = time.monotonic() + 20
    while threading.active_count() > before and time.monotonic() < until_seconds:
        time.sleep(0.01)  # a bucket's threads are told to end and not waited for
    assert threading.active_count() == before


def test_a_limiter_takes_a_blocking_queue(queue: qo.sync.Queue) -> None:
    limiter = qo.Limiter({"ollama": 2}, total=2, queue=queue)
    inside: list[int] = []

    def call(number: int) -> int:
        with limiter.acquire("ollama", timeout=20):
            inside.append(queue.limit("provider:ollama").active)
        return number

    with ThreadPoolExecutor(6) as threads:
        called = list(threads.map(call, range(12)))
    limiter.close()

    assert called == list(range(12))
    assert set(inside) <= {1, 2}
    assert (queue.limit("provider:ollama").active, queue.limit("providers").active) == (0, 0)


def test_a_task_may_use_a_limiter_on_a_blocking_queue(queue: qo.sync.Queue) -> None:
    limiter = qo.Limiter({"ollama": 1}, queue=queue)

    async def call() -> dict[str, int]:
        async with limiter.acquire("ollama", timeout=20) as lease:
            return dict(lease.slots)

    assert asyncio.run(call()) == {"provider:ollama": 0}
    limiter.close()
