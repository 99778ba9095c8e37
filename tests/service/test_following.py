"""Following jobs, sessions of browsers and metrics, over a real connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from qo.job import State
from qo.service.access.caller import Role
from qo.service.access.keys import Keys
from qo.values import Advance, Outcome
from tests.service.conftest import Service


async def frames(answer: httpx.Response) -> AsyncIterator[tuple[str, str | None, dict[str, Any]]]:
    """The events of a stream: name, id and data."""
    name, number = "", None
    async for line in answer.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("id: "):
            number = line.removeprefix("id: ")
        elif line.startswith("data: "):
            yield name, number, json.loads(line.removeprefix("data: "))


async def run(served: Service, job_id: str) -> None:
    """Start the job, let it report a stage, and let it succeed."""
    store = served.queue.store
    (lease,) = (await store.claim(worker="w", tasks=["build"], capacity=1, lease_ms=60_000, claim_id=job_id)).leases
    await store.advance([Advance(job_id=job_id, token=lease.token, stage="code")])
    await store.finish([Outcome(job_id=job_id, token=lease.token, state=State.SUCCEEDED)])


async def test_a_job_is_followed_to_its_end_and_resumed_behind_any_event(served: Service) -> None:
    await served.queue.submit("build", id="a/b")
    seen: list[tuple[str, str | None, str]] = []
    async with served.client.stream("GET", "/api/jobs/a%2Fb/stream") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for name, number, data in frames(answer):
            if not seen:
                await run(served, "a/b")
            seen.append((name, number, data["status"]))

    assert [(name, status) for name, _, status in seen] == [
        ("connected", "queued"),
        ("status", "starting"),
        ("status", "running"),
        ("status", "code"),
        ("status", "ready"),
    ]
    last = seen[2][1]
    assert last is not None
    async with served.client.stream("GET", "/api/jobs/a%2Fb/stream", headers={"Last-Event-ID": last}) as answer:
        again = [(name, data["status"]) async for name, _, data in frames(answer)]
    assert again[0][0] == "connected"
    assert again[1:] == [("status", "code"), ("status", "ready")]


@pytest.mark.parametrize(("cursor", "status"), [("x", 422), ("-1", 422), ("99999999", 200)])
async def test_a_cursor_that_is_wrong_or_forged(served: Service, cursor: str, status: int) -> None:
    await served.queue.submit("build", id="one")
    await served.queue.cancel("one")

    async with served.client.stream("GET", "/api/jobs/one/stream", params={"after": cursor}) as answer:
        assert answer.status_code == status
        if status == 200:
            assert [name async for name, _, _ in frames(answer)] == ["reset"]


async def test_a_user_follows_only_their_own_jobs(served: Service) -> None:
    await served.queue.submit("build", id="theirs", user="u2")
    user = await served.key(Role.USER, user="u1")

    assert (await served.client.get("/api/jobs/theirs/stream", headers=user)).status_code == 404


async def test_a_browser_signs_in_and_out_and_needs_the_header_for_changes(served: Service) -> None:
    key = await served.key(Role.ADMIN)
    text = key["Authorization"].removeprefix("Bearer ")
    own = {"Origin": str(served.client.base_url).rstrip("/")}

    wrong = await served.client.post("/api/session", json={"key": "qo_x_y"}, headers=own)
    signed_in = await served.client.post("/api/session", json={"key": text, "next": "//evil"}, headers=own)

    assert wrong.status_code == 401
    assert (signed_in.json()["role"], signed_in.json()["next"]) == ("admin", "/")
    assert text not in signed_in.text + str(signed_in.headers)
    assert (await served.client.get("/api/session")).json()["role"] == "admin"
    change: dict[str, Any] = {"url": "/api/queue/pause", "json": {"group": "build"}}
    assert (await served.client.post(**change, headers=own)).status_code == 403
    assert (await served.client.post(**change, headers={"Origin": "http://evil", "X-Qo-Csrf": "1"})).status_code == 403
    assert (await served.client.post(**change, headers=own | {"X-Qo-Csrf": "1"})).status_code == 200
    await served.client.delete("/api/session", headers=own | {"X-Qo-Csrf": "1"})
    assert (await served.client.get("/api/session")).status_code == 401


async def test_the_numbers_for_prometheus(served: Service) -> None:
    await served.queue.submit("build", id="one")
    await served.queue.submit("build", id="two")
    await run(served, "one")

    text = (await served.client.get("/metrics")).text

    assert "\nqo_jobs_queued 1.0" in text
    assert "\nqo_jobs_submitted_total 2.0" in text


async def test_a_page_of_another_site_changes_nothing_without_keys_either(served: Service) -> None:
    answer = await served.client.post(
        "/api/jobs", json={"task": "build"}, headers={"Origin": "http://evil", "Sec-Fetch-Site": "cross-site"}
    )
    elsewhere = await served.client.get("/api/jobs", headers={"Host": "evil.example"})
    through_a_proxy = await served.client.get("/api/jobs", headers={"X-Forwarded-For": "1.2.3.4"})

    assert (answer.status_code, elsewhere.status_code, through_a_proxy.status_code) == (403, 421, 403)
    assert await served.queue.jobs() == []


async def test_a_stream_ends_within_seconds_after_its_key_was_revoked(served: Service) -> None:
    await served.queue.submit("build", id="one", user="u1")
    await served.key(Role.ADMIN)
    user = await served.key(Role.USER, user="u1")
    keys = Keys(served.queue.store, system=served.queue.system)

    async with asyncio.timeout(8), served.client.stream("GET", "/api/jobs/one/stream", headers=user) as answer:
        seen: list[str] = []
        async for name, _, _ in frames(answer):
            if not seen:
                (key,) = [each for each in await keys.list() if each.user == "u1"]
                await keys.revoke(key.id)
            seen.append(name)

    assert seen[0] == "connected"
    assert (await served.queue.get("one")).state == "queued"
