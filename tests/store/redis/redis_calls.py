"""What the tests of the way to Redis share: small functions, a server that stands still, and waiting for a fact."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from inspect import isawaitable

import pytest

from qo.store.redis.server.client import Client
from qo.store.redis.server.functions import Function
from tests.servers.redis import Kind, Server, shared_server

KINDS: tuple[Kind, ...] = ("valkey", "redis")
PATIENCE_SECONDS = 30

ECHO = Function.alone("return {keys[1], unpack(argv)}")
ADDING_ONCE = """
if redis.call('SADD', keys[1] .. 'known', argv[1]) == 1 then
    redis.call('RPUSH', keys[1] .. 'list', argv[1])
end
return redis.call('LLEN', keys[1] .. 'list')
"""
ADD_ONCE = Function.alone(ADDING_ONCE)
"""safe to repeat, as every operation of the store is; the list keeps the order in which ids first came"""


def new_namespace() -> str:
    return f"test-{uuid.uuid4()}"


@asynccontextmanager
async def connected(url: str, *, namespace: str | None = None, patience_seconds: float = 20) -> AsyncIterator[Client]:
    client = Client(url, namespace=namespace or new_namespace(), patience_seconds=patience_seconds)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def on_shared(kind: Kind) -> AsyncIterator[Client]:
    async with connected(shared_server(kind).url) as client:
        yield client


async def added(client: Client) -> list[str]:
    return [item.decode() for item in await client.command("LRANGE", f"{client.prefix}list", 0, -1)]


def said_of_the_server(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "qo.store"]


def freeze(server: Server) -> None:
    """It takes in what is sent to it and answers nothing."""
    os.kill(server.pid, signal.SIGSTOP)


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    freeze(server)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


async def eventually(fact: Callable[[], bool | Awaitable[bool]]) -> None:
    """Returns as soon as it is so; fails when it does not become so."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = fact()
        if await answer if isawaitable(answer) else answer:
            return
        assert time.monotonic() < deadline, "it did not come true"
        await asyncio.sleep(0.005)
