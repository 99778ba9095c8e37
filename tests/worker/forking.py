"""Work in a process that is forked now, and a queue that was connected before it."""

from __future__ import annotations

import asyncio
import multiprocessing
import secrets
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest

import qo
import qo.sync
from tests.servers.redis import shared_server
from tests.worker.running import until

FORKS = multiprocessing.get_context("fork")
PATIENCE_SECONDS = 20


def in_fork(work: Callable[[], Any]) -> Any:
    """What `work` answers in a process that is forked now, and that has to end well."""
    ours, theirs = FORKS.Pipe()
    process = FORKS.Process(target=_tell, args=(theirs, work))
    process.start()
    try:
        assert ours.poll(PATIENCE_SECONDS), "the forked process hangs"
        went_well, answer = ours.recv()
        assert went_well, answer
        process.join(PATIENCE_SECONDS)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join()
    return answer


def _tell(pipe: Connection, work: Callable[[], Any]) -> None:
    try:
        pipe.send((True, work()))
    except Exception as error:
        pipe.send((False, repr(error)))


@pytest.fixture(name="queue", params=["valkey", "redis"])
def queue_fixture(request: pytest.FixtureRequest) -> Iterator[qo.sync.Queue]:
    settings = {"concurrency": {"default_lease_duration_secs": 1}}
    namespace = f"test-{secrets.token_hex(8)}"
    with qo.sync.connect(shared_server(request.param).url, namespace=namespace, settings=settings) as opened:
        yield opened


def until_now(is_true: Callable[[], bool]) -> None:
    async def ask() -> bool:
        return is_true()

    asyncio.run(until(ask))
