"""How blocking queues end: closed by their program, or left open when it ends."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import qo
import qo.sync
from tests.servers.redis import shared_server

BEGINNING = """
import sys, threading, time
import qo, qo.sync
queue = qo.sync.connect(sys.argv[1], namespace="endings")
job = queue.submit("greet", 1)
running = threading.Event()
"""
PROGRAMS = {
    "asked for an estimate": "queue.get(job.id)",
    "left a watch": "events = queue.watch(job.id); next(events)",
    "waits in a thread": """
        def wait():
            running.set()
            queue.wait(job.id)
        threading.Thread(target=wait, daemon=True).start()
        running.wait()
    """,
    "works in a thread": """
        worker = qo.sync.Worker(queue)
        @worker.task
        def greet(data):
            running.set()
        threading.Thread(target=worker.run, daemon=True).start()
        running.wait()
    """,
    "works in a thread, async": """
        import asyncio
        worker = qo.sync.Worker(queue)
        @worker.task
        async def greet(data):
            running.set()
            await asyncio.Event().wait()
        threading.Thread(target=worker.run, daemon=True).start()
        running.wait()
    """,
    "holds a slot": """
        limiter = qo.Limiter({"a": 1}, queue=queue)
        with limiter.acquire("a"):
            pass
    """,
    "gave up waiting": """
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background programs ignore it
        main = threading.main_thread().ident
        interrupt = threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT))
        try:
            interrupt.start()
            queue.wait(job.id)
        except KeyboardInterrupt:
            pass
    """,
    "serves in threads": """
        def serve():
            running.set()
            while True:
                queue.get(job.id)
        for _ in range(4):
            threading.Thread(target=serve, daemon=True).start()
        running.wait()
    """,
}


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    urls: dict[str, Callable[[], str]] = {
        "sqlite": lambda: f"sqlite:///{tmp_path}/qo.db",
        "redis": lambda: shared_server("valkey").url,
    }
    return urls[request.param]()


def run_program(text: str, url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", BEGINNING + dedent(text), url]
    return subprocess.run(program, cwd=folder, capture_output=True, text=True, timeout=40, check=False)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_ends_without_closing_its_queue_ends_silently(name: str, url: str, tmp_path: Path) -> None:
    ended = run_program(PROGRAMS[name], url, tmp_path)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_worker_in_a_daemon_thread_hands_its_job_back_when_the_program_ends(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/qo.db"
    ended = run_program(PROGRAMS["works in a thread, async"], url, tmp_path)

    assert ended.stderr == ""
    with qo.sync.connect(url, namespace="endings") as queue:
        (job,) = queue.jobs()
        assert (job.state, job.attempts, job.position) == (qo.State.QUEUED, 0, 1)
        assert queue.workers() == []


def test_a_worker_in_a_thread_goes_on_when_the_main_thread_has_ended(tmp_path: Path) -> None:
    """The way of many scripts: start a thread that works, and reach the end of the file."""
    ended = run_program(
        """
        worker = qo.sync.Worker(queue)
        @worker.task
        def greet(data):
            threading.main_thread().join()
            return data
        def stop_when_done():
            threading.main_thread().join()
            late = queue.submit("greet", 2)
            print(queue.wait(job.id).result, queue.wait(late.id).result, queue.get(late.id).state)
            worker.stop()
        threading.Thread(target=worker.run).start()
        threading.Thread(target=stop_when_done).start()
        """,
        f"sqlite:///{tmp_path}/qo.db",
        tmp_path,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1 2 succeeded\n", "")


# --- closed by the program ------------------------------------------------------------------------------------


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[qo.sync.Queue]:
    with qo.sync.connect(f"sqlite:///{tmp_path}/qo.db") as opened:
        yield opened


def test_a_call_after_closing_is_told_so(queue: qo.sync.Queue) -> None:
    queue.close()

    for call in (lambda: queue.get("x"), lambda: queue.submit("greet"), lambda: next(queue.watch("x"))):
        with pytest.raises(qo.StoreUnavailable, match=r"is closed; connect again\.$"):
            call()


def test_a_call_that_waits_while_its_queue_is_closed_is_told_so(queue: qo.sync.Queue) -> None:
    job = queue.submit("greet")
    with ThreadPoolExecutor(1) as thread:
        waits = thread.submit(queue.wait, job.id)
        while not queue.asynchronous.follower.watchers:
            time.sleep(0.001)
        queue.close()

        with pytest.raises(qo.StoreUnavailable, match=r"is closed; connect again\.$"):
            waits.result(timeout=20)


def test_closing_hands_back_what_a_worker_in_another_thread_runs(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/qo.db"
    running = threading.Event()
    closing = qo.sync.connect(url)
    worker = qo.sync.Worker(closing)

    @worker.task
    def greet(data: Any) -> None:
        running.set()
        threading.Event().wait()

    closing.submit("greet", id="a")
    with ThreadPoolExecutor(1) as thread:
        works = thread.submit(worker.run)
        assert running.wait(20)
        closing.close()

        with pytest.raises(qo.StoreUnavailable):
            works.result(timeout=20)
    with qo.sync.connect(url) as queue:
        assert queue.get("a").state is qo.State.QUEUED
