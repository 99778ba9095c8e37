"""The same names for synchronous programs."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import qo
import qo.sync

ASYNCHRONOUS_ONLY = {"apply_configured_limits", "warn_of_ignored"}


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[qo.sync.Queue]:
    with qo.sync.connect(f"sqlite:///{tmp_path}/qo.db", settings={"retries": {"first_delay_secs": 0}}) as opened:
        yield opened


def test_every_call_of_the_asynchronous_queue_and_worker_is_there() -> None:
    for asynchronous, blocking in ((qo.Queue, qo.sync.Queue), (qo.Worker, qo.sync.Worker)):
        names = {name for name, member in vars(asynchronous).items() if callable(member) and not name.startswith("_")}
        missing = names - ASYNCHRONOUS_ONLY - set(dir(blocking)) - {"task", "cron", "stop_now"}
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

    assert queue.asynchronous.follower._watchers == {}


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
