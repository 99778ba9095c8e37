"""A queue that is really served: uvicorn on a socket of this machine, called with httpx."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import pytest_asyncio

import qo
from qo.service.access.caller import Role
from qo.service.access.keys import Keys
from qo.service.serving import open_server

if TYPE_CHECKING:
    from playwright.async_api import Browser


class Service:
    """The queue, a client without a key, and keys on demand."""

    def __init__(self, queue: qo.Queue, client: httpx.AsyncClient, keys: Keys) -> None:
        self.queue = queue
        self.keys = keys
        """Those of the server: one that is made or revoked here counts at once."""
        self.client = client
        self.keys_made: list[str] = []

    async def key(self, role: Role, **fields: Any) -> dict[str, str]:
        """The headers that a caller of this role sends."""
        made = await self.keys.create(role, **fields)
        self.keys_made.append(made.text)
        return {"Authorization": f"Bearer {made.text}"}


@asynccontextmanager
async def running_service(queue: qo.Queue) -> AsyncIterator[Service]:
    keys = Keys(queue.store, system=queue.system)
    server = await open_server(queue, keys=keys)
    running = asyncio.create_task(server.run())
    try:
        # Without TLS: reading the certificates would take longer than most tests.
        async with httpx.AsyncClient(base_url=server.url, timeout=30, verify=False) as client:
            yield Service(queue, client, keys)
    finally:
        server.stop()
        await asyncio.wait_for(running, timeout=10)


@pytest.fixture(params=["memory", "sqlite"])
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Service]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/qo.db"
    settings = {"server": {"port": 0, "user_tasks": ["build"]}, "queue": {"upgrade_url": "https://example.com/more"}}
    async with await qo.connect(url, settings=settings) as queue, running_service(queue) as served:
        yield served


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One Chromium for all tests of a process. They have to run in the session's event loop, to which it belongs."""
    from tests.browser import chromium  # only tests of pages need playwright

    async with chromium() as browser:
        yield browser
