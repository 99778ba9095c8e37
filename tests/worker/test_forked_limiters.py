"""Limiters in processes that are forked: one in process begins anew, one on a queue shares its slots."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest

import qo
import qo.sync
from tests.worker.forking import (
    PATIENCE_SECONDS,
    in_fork,
    queue_fixture,  # noqa: F401 - asked for by name
    until_now,
)

# Newer versions of Python warn of forks from a process with threads; that they do no harm is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def test_a_limiter_in_process_begins_anew_in_a_fork() -> None:
    limiter = qo.Limiter({"ollama": 1}, total=2)
    waiting = threading.Thread(target=lambda: limiter.acquire("ollama", timeout=PATIENCE_SECONDS).__enter__())

    def enter() -> tuple[Any, Any, Any]:
        before = limiter.get_metrics()
        with limiter.acquire("ollama", timeout=0) as lease, pytest.raises(qo.Timeout):
            limiter.acquire("ollama", timeout=0).__enter__()
        return before, dict(lease.slots), limiter.get_metrics()["in_flight"]

    with limiter.acquire("ollama"):
        waiting.start()
        until_now(lambda: limiter.get_metrics()["waiting"].get("ollama") == 1)
        before, slots, in_flight = in_fork(enter)

    assert (before["in_flight"]["ollama"], before["blocked_requests"]) == (0, 0)
    assert before["limits"] == {"ollama": 1, "global": 2}
    assert slots == {"provider:ollama": 0, "providers": 0}
    assert in_flight["ollama"] == 0
    waiting.join()
    assert limiter.get_metrics()["in_flight"]["ollama"] == 1


def test_a_limiter_on_a_queue_shares_its_slots_with_a_fork(queue: qo.sync.Queue) -> None:
    limiter = qo.Limiter({"ollama": 2}, queue=queue.asynchronous)

    def enter_twice() -> tuple[int, int, bool]:
        async def enter() -> int:
            async with limiter.acquire("ollama", timeout=PATIENCE_SECONDS):
                return queue.limit("provider:ollama").active

        with limiter.acquire("ollama", timeout=PATIENCE_SECONDS):
            in_threads = queue.limit("provider:ollama").active
            with pytest.raises(qo.Timeout):
                limiter.acquire("ollama", timeout=0).__enter__()
        in_tasks = asyncio.run(enter())
        in_flight = limiter.get_metrics()["in_flight"]
        limiter.close()
        return in_threads, in_tasks, "ollama" in in_flight and in_flight["ollama"] == 0

    with limiter.acquire("ollama"):
        assert in_fork(enter_twice) == (2, 2, True)
        assert queue.limit("provider:ollama").active == 1
    assert queue.limit("provider:ollama").active == 0
    limiter.close()


def test_slots_that_a_fork_takes_are_kept(queue: qo.sync.Queue) -> None:
    limiter = qo.Limiter({"ollama": 1}, queue=queue.asynchronous)
    with limiter.acquire("ollama"):
        pass

    def hold() -> bool:
        def ends_at() -> Any:
            (slot,) = queue.limit("provider:ollama").slots
            return slot.expires_at

        with limiter.acquire("ollama", timeout=PATIENCE_SECONDS) as lease:
            at_first = ends_at()
            until_now(lambda: ends_at() > at_first)
            return not lease.lost

    assert in_fork(hold)
    limiter.close()


def test_the_end_of_a_block_in_a_fork_does_not_give_back_what_the_other_process_holds(queue: qo.sync.Queue) -> None:
    limiter = qo.Limiter({"ollama": 1}, queue=queue.asynchronous)
    here = os.getpid()
    try:
        with limiter.acquire("ollama"):
            child = os.fork()
            if child:
                status = os.waitpid(child, 0)[1]
                active = queue.limit("provider:ollama").active
    finally:
        if os.getpid() != here:
            os._exit(0)

    assert (status, active) == (0, 1)
    assert queue.limit("provider:ollama").active == 0
    limiter.close()
