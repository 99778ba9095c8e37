"""Processes that are forked from one that has connected, as gunicorn, uWSGI and multiprocessing do it."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

import qo
import qo.sync
from tests.servers.bucket import shared_bucket_server
from tests.worker.forking import (
    FORKS,
    PATIENCE_SECONDS,
    in_fork,
    queue_fixture,  # noqa: F401 - asked for by name
    until_now,
)

# Newer versions of Python warn of forks from a process with threads; that they do no harm is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'qo.db'}"


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(qo.StoreUnavailable) as refused:
        call()
    return str(refused.value)


def greeting(queue: qo.sync.Queue) -> qo.sync.Worker:
    worker = qo.sync.Worker(queue)

    @worker.task
    def greet(data: str) -> str:
        return f"hello {data}"

    return worker


# --- queues -----------------------------------------------------------------------------------------------------


def test_a_queue_works_on_both_sides_of_a_fork(queue: qo.sync.Queue) -> None:
    first = queue.submit("greet", "ada")

    def submit_and_work() -> tuple[str, str]:
        second = queue.submit("greet", "grace")
        position = queue.get(second.id).position
        greeting(queue).run_until_idle()
        return second.id, f"{position} {queue.wait(first.id, timeout=PATIENCE_SECONDS).result}"

    second, seen = in_fork(submit_and_work)

    assert seen == "2 hello ada"
    assert queue.wait(second, timeout=PATIENCE_SECONDS).result == "hello grace"
    third = queue.submit("greet", "joan")
    greeting(queue).run_until_idle()
    assert queue.get(third.id).result == "hello joan"


def test_a_fork_waits_for_what_happens_in_the_other_process(queue: qo.sync.Queue) -> None:
    job = queue.submit("greet", "ada")
    worked = FORKS.Event()

    def wait() -> Any:
        worked.set()
        return queue.wait(job.id, timeout=PATIENCE_SECONDS).result

    def work() -> None:
        worked.wait(PATIENCE_SECONDS)
        greeting(queue).run_until_idle()

    working = threading.Thread(target=work)
    working.start()
    assert in_fork(wait) == "hello ada"
    working.join()


def test_what_threads_were_doing_when_it_was_forked_does_not_hold_up_the_new_process(queue: qo.sync.Queue) -> None:
    stopped = threading.Event()
    submitted: list[str] = []

    def submit_on() -> None:
        while not stopped.is_set():
            submitted.append(queue.submit("greet", "ada").id)

    threads = [threading.Thread(target=submit_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        forked = [in_fork(lambda: queue.submit("greet", "grace").id) for _ in range(10)]
    finally:
        stopped.set()
        for thread in threads:
            thread.join()

    known = [job.id for job in queue.jobs(limit=len(submitted) + len(forked) + 1)]
    assert sorted(known) == sorted(submitted + forked)


def test_locks_that_were_held_when_it_was_forked_are_not_held_in_the_new_process(queue: qo.sync.Queue) -> None:
    job = queue.submit("greet", "ada")
    limiter, alone = qo.Limiter({"ollama": 1}, queue=queue.asynchronous), qo.Limiter({"ollama": 1})
    store: Any = queue.asynchronous.store
    slots: Any = limiter._slots  # noqa: SLF001 - its parts have locks, which no caller can hold
    of_limiters = [slots._groups, slots._requests, slots._thread, alone._slots]  # noqa: SLF001 - the same
    owners: list[Any] = [store.client, store.client.availability, store.waking, *of_limiters]

    def use_all() -> str:
        with limiter.acquire("ollama", timeout=PATIENCE_SECONDS), alone.acquire("ollama", timeout=PATIENCE_SECONDS):
            limiter.set_limit("ollama", 2)
            greeting(queue).run_until_idle()
            return str(queue.wait(job.id, timeout=PATIENCE_SECONDS).result)

    with ExitStack() as held:
        for owner in owners:
            held.enter_context(owner._lock)  # noqa: SLF001 - that these are held is the point
        assert in_fork(use_all) == "hello ada"


def test_a_fork_of_a_fork_works_too(queue: qo.sync.Queue) -> None:
    def fork_again() -> list[str]:
        # One of multiprocessing's own could not have children.
        own = queue.submit("greet", "ada").id
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writing, queue.submit("greet", "grace").id.encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            return [own, pipe.read(), str(os.waitpid(child, 0)[1])]

    own, grandchild, status = in_fork(fork_again)

    assert status == "0"
    assert [job.id for job in queue.jobs()] == [own, grandchild]


def test_a_queue_that_was_closed_before_is_closed_in_the_fork(queue: qo.sync.Queue) -> None:
    asynchronous = queue.asynchronous
    queue.close()

    assert "closed; connect again" in in_fork(lambda: refusal(lambda: asyncio.run(asynchronous.submit("greet"))))


def test_a_fork_that_closes_its_queue_leaves_that_of_the_other_process_open(queue: qo.sync.Queue) -> None:
    def submit_and_close() -> str:
        job = queue.submit("greet", "ada")
        queue.close()
        return job.id

    for close in (queue.close, submit_and_close):
        in_fork(close)
        assert queue.submit("greet", "grace").position is not None


def test_an_asynchronous_queue_works_in_an_event_loop_of_the_fork(queue: qo.sync.Queue) -> None:
    asynchronous = queue.asynchronous

    async def submit() -> str:
        return (await asynchronous.submit("greet", "ada")).id

    assert queue.get(in_fork(lambda: asyncio.run(submit()))).task == "greet"


def test_connections_are_not_kept_open_by_a_fork(queue: qo.sync.Queue) -> None:
    """Or a worker that was killed would be heard by nobody, and still count as listening."""
    job = queue.submit("greet", "ada")
    watching = queue.watch(job.id)
    next(watching)
    store: Any = queue.asynchronous.store
    with Redis.from_url(f"redis://{store.client.address}") as server:
        own = {each["id"] for each in server.client_list() if each.get("lib-name") == "qo"}
        assert own, "no connection says that it is qo's"
        living = FORKS.Event()
        process = FORKS.Process(target=living.wait)
        process.start()
        try:
            watching.close()
            queue.close()
            until_now(lambda: own.isdisjoint(each["id"] for each in server.client_list()))
        finally:
            living.set()
            process.join()


# --- workers ----------------------------------------------------------------------------------------------------


def test_a_worker_runs_in_each_fork_under_a_name_of_its_own(queue: qo.sync.Queue) -> None:
    worker, named = greeting(queue), qo.sync.Worker(queue, "worker-1")
    jobs = [queue.submit("greet", name) for name in ("ada", "grace")]

    def work() -> tuple[str, str]:
        worker.run_until_idle()
        return worker.name, named.name

    forked = [in_fork(work) for _ in range(2)]

    assert len({worker.name, *(name for name, _ in forked)}) == 3
    assert {given for _, given in forked} == {"worker-1"}
    assert [queue.get(job.id).result for job in jobs] == ["hello ada", "hello grace"]
    assert {queue.get(job.id).worker for job in jobs} == {forked[0][0]}


def test_a_worker_with_a_name_that_runs_on_both_sides_of_a_fork_is_two_workers(queue: qo.sync.Queue) -> None:
    worker = qo.sync.Worker(queue, "worker-1", concurrency=1)
    begun, go_on = FORKS.Event(), FORKS.Event()

    @worker.task
    def hold() -> None:
        begun.set()
        go_on.wait(PATIENCE_SECONDS)

    @worker.task
    def tell_name() -> str:
        return worker.name

    held = queue.submit("hold")
    process = FORKS.Process(target=worker.run_until_idle)
    process.start()
    try:
        assert begun.wait(PATIENCE_SECONDS)
        here = queue.submit("tell_name")
        worker.run_until_idle()
        there = [each.name for each in queue.workers()]
        go_on.set()
        process.join(PATIENCE_SECONDS)
    finally:
        process.kill()
        process.join()

    assert (queue.get(here.id).result, queue.get(held.id).worker) == ("worker-1-2", "worker-1")
    assert there == ["worker-1"]
    assert queue.workers() == []


async def test_a_handler_can_end_a_process_that_it_forked() -> None:
    """Stopping is for the worker, and its copy in the fork does not run."""
    async with await qo.connect("memory://") as queue:
        worker = qo.Worker(queue, "worker-1")

        @worker.task
        def fork_and_end() -> int | None:
            begun = FORKS.Event()

            def begin_and_wait() -> None:
                begun.set()
                threading.Event().wait()

            process = FORKS.Process(target=begin_and_wait)
            process.start()
            assert begun.wait(PATIENCE_SECONDS)
            process.terminate()
            process.join(PATIENCE_SECONDS)
            code = process.exitcode
            process.kill()
            return code

        job = await queue.submit("fork_and_end")
        await worker.run_until_idle()

        assert (await queue.get(job.id)).result == -signal.SIGTERM


# --- where it cannot work -----------------------------------------------------------------------------------------


def test_a_file_is_refused_where_sqlite_would_not_lock_it(file_url: str) -> None:
    """SQLite counts locks of a file for the process as a whole, and a fork finds them counted that it does not have."""
    with qo.sync.connect(file_url) as queue:
        first = queue.submit("greet", "ada")

        def try_all() -> list[str]:
            limiter = qo.Limiter({"ollama": 1}, queue=queue.asynchronous)
            tries = [
                lambda: queue.submit("greet", "grace"),
                lambda: queue.get(first.id),
                lambda: queue.wait(first.id, timeout=0.1),
                lambda: limiter.acquire("ollama", timeout=0).__enter__(),
                lambda: qo.sync.connect(file_url),
            ]
            said = [refusal(each) for each in tries]
            queue.close()
            return said

        def try_without_threads() -> list[str]:
            return [refusal(lambda: asyncio.run(queue.asynchronous.submit("greet", "grace")))]

        for said in (*in_fork(try_all), *in_fork(try_without_threads)):
            assert "SQLite cannot use a file in both; connect only after forking, in each process" in said
        second = queue.submit("greet", "joan")
        assert [job.id for job in queue.jobs()] == [first.id, second.id]


def test_a_file_that_is_busy_does_not_hold_up_a_fork(file_url: str) -> None:
    stopped = threading.Event()
    with qo.sync.connect(file_url) as queue:

        def submit_on() -> None:
            while not stopped.is_set():
                queue.submit("greet", "ada")

        threads = [threading.Thread(target=submit_on) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(10):
                assert "SQLite cannot use" in in_fork(lambda: refusal(lambda: queue.submit("greet", "grace")))
        finally:
            stopped.set()
            for thread in threads:
                thread.join()


def test_a_file_that_was_closed_before_can_be_opened_in_a_fork(file_url: str, tmp_path: Path) -> None:
    with qo.sync.connect(file_url) as queue:
        job = queue.submit("greet", "ada")

    def read() -> str:
        with qo.sync.connect(file_url) as opened, qo.sync.connect(f"sqlite:///{tmp_path / 'other.db'}") as other:
            assert other.jobs() == []
            return opened.get(job.id).task

    with qo.sync.connect(f"sqlite:///{tmp_path / 'unlike.db'}"):
        assert in_fork(read) == "greet"


def test_jobs_in_memory_are_of_one_process() -> None:
    with qo.sync.connect("memory://") as queue:
        queue.submit("greet", "ada")

        said = in_fork(lambda: refusal(lambda: queue.submit("greet", "grace")))

        assert "the process from which this one was forked; connect again here" in said
        assert len(queue.jobs()) == 1


def test_a_bucket_has_to_be_opened_in_each_process() -> None:
    with qo.sync.ConcurrencyManager.open(shared_bucket_server().url(f"fork-{secrets.token_hex(6)}")) as manager:
        said = in_fork(lambda: refusal(lambda: manager.get_status("user:ada")))

        assert "the process from which this one was forked; open it here" in said
        assert manager.get_status("user:ada").active == 0
