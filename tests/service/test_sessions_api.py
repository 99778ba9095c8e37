"""Browser sessions over HTTP."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from qo.service.access.caller import Role
from tests.service.conftest import Service
from tests.service.test_following import frames

pytestmark = pytest.mark.parametrize("served", ["memory"], indirect=True)


async def signed_in(served: Service, **fields: Any) -> tuple[dict[str, str], httpx.Response]:
    """What a browser sends with every request from then on."""
    await served.key(Role.ADMIN, **fields)
    answer = await served.client.post("/api/session", json={"key": served.keys_made[-1]})
    served.client.cookies.clear()
    headers = {"X-Qo-Csrf": "1", "Sec-Fetch-Site": "same-origin"}
    return headers | {"Cookie": answer.headers["set-cookie"].partition(";")[0]}, answer


async def test_signing_in_answers_when_the_session_ends(served: Service) -> None:
    browser, answer = await signed_in(served)
    read = (await served.client.get("/api/session", headers=browser)).json()

    ends = datetime.fromisoformat(answer.json()["expires_at"]) - served.queue.system.now()
    assert timedelta(hours=11, minutes=59) < ends <= timedelta(hours=12)
    assert read["expires_at"] == answer.json()["expires_at"]


async def test_a_session_ends_with_its_key(served: Service) -> None:
    soon = served.queue.system.now() + timedelta(hours=1)

    _, answer = await signed_in(served, expires_at=soon)

    assert datetime.fromisoformat(answer.json()["expires_at"]) == soon


async def test_signing_out_ends_the_streams_of_that_browser_and_no_other(served: Service) -> None:
    await served.queue.submit("build", id="one")
    leaving, _ = await signed_in(served)
    staying, _ = await signed_in(served)
    by_key = {"Authorization": f"Bearer {served.keys_made[0]}"}
    seen: dict[str, list[str]] = {"leaving": [], "line": [], "staying": [], "by_key": []}
    connected = {name: asyncio.Event() for name in seen}

    async def follow(name: str, path: str, headers: dict[str, str]) -> None:
        async with served.client.stream("GET", path, headers=headers) as answer:
            async for event, _, _ in frames(answer):
                seen[name].append(event)
                connected[name].set()

    tasks = {
        name: asyncio.create_task(follow(name, path, headers))
        for name, path, headers in (
            ("leaving", "/api/jobs/one/stream", leaving),
            ("line", "/api/stream", leaving),
            ("staying", "/api/jobs/one/stream", staying),
            ("by_key", "/api/jobs/one/stream", by_key),
        )
    }
    async with asyncio.timeout(20):
        await asyncio.gather(*(each.wait() for each in connected.values()))
        await served.client.delete("/api/session", headers=leaving)
        await asyncio.gather(tasks["leaving"], tasks["line"])
        await served.queue.cancel("one")
        await asyncio.gather(tasks["staying"], tasks["by_key"])

    assert len(seen["leaving"]) == 1
    assert (seen["staying"][-1], seen["by_key"][-1]) == ("status", "status")
