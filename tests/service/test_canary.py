"""A secret that goes through the service is in no log line, no metric, no problem and no other user's stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

import qo
from qo.job import JobError, Progress, State
from qo.service.access.caller import Role
from qo.values import Advance, Outcome
from tests.service.conftest import Service, running_service

CANARY = "c4nary"
OF_THE_CLIENT = ("httpx", "httpcore")
"""Loggers of the test's own client."""
DEEP = "[" * 70 + f'"{CANARY}"' + "]" * 70
JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Service]:
    caplog.set_level(logging.DEBUG)
    settings = {"server": {"port": 0, "user_tasks": ["build"]}}
    async with (
        await qo.connect(f"sqlite:///{tmp_path}/qo.db", settings=settings) as queue,
        running_service(queue) as served,
    ):
        yield served


def logged(caplog: pytest.LogCaptureFixture) -> str:
    """Every line of the server's log, with its tracebacks."""
    everything = caplog.get_records("setup") + caplog.get_records("call")
    records = [record for record in everything if record.name.split(".")[0] not in OF_THE_CLIENT]
    text = "\n".join(map(logging.Formatter().format, records))
    assert "qo is at http://" in text  # so the log was seen
    return text


def is_clean(text: str, served: Service) -> bool:
    """Whether neither the canary nor the secret of a key is in it."""
    secrets = [key.split("_", 2)[2] for key in served.keys_made]
    return not any(secret in text for secret in (CANARY, *secrets))


async def test_a_secret_of_a_job_is_seen_by_its_owner_only(served: Service, caplog: pytest.LogCaptureFixture) -> None:
    owner, other = [await served.key(Role.USER, user=user) for user in ("u1", "u2")]
    viewer = await served.key(Role.VIEWER)
    watched = await served.client.post("/api/jobs", json={"task": "build"}, headers=other)
    others_job = watched.json()["id"]

    link = httpx.URL(watched.json()["watch_url"]).path
    events = {"Accept": "text/event-stream"}

    async with asyncio.TaskGroup() as following:
        connected = asyncio.Barrier(3)
        streams = [
            following.create_task(all_of(served, path, headers, connected))
            for path, headers in [(f"/api/jobs/{others_job}/stream", other), (link, events)]
        ]
        await connected.wait()
        mine = await served.client.post(
            "/api/jobs",
            json={"task": "build", "priority": "urgent", "data": {"note": CANARY, CANARY: [{CANARY: 1}]}},
            headers=owner | {"Idempotency-Key": CANARY, "X-Secret": CANARY, "User-Agent": CANARY, "Cookie": CANARY},
        )
        await run_with_secrets(served, mine.json()["id"])
        seen = await served.client.get(f"/api/jobs/{mine.json()['id']}", headers=owner)
        await served.queue.cancel(others_job)

    assert all(CANARY in str(seen.json()[field]) for field in ("data", "error", "message"))
    for text in (
        *(stream.result() for stream in streams),
        (await served.client.get("/metrics", headers=viewer)).text,
        (await served.client.get("/api/jobs", headers=other)).text,
        logged(caplog),
    ):
        assert text
        assert is_clean(text, served), text
    assert link.rpartition("/")[2] not in logged(caplog)


async def all_of(served: Service, path: str, headers: dict[str, str], connected: asyncio.Barrier) -> str:
    """All that a stream sends until its job has ended."""
    text = ""
    async with served.client.stream("GET", path, headers=headers) as answer:
        async for chunk in answer.aiter_text():
            if not text:
                await connected.wait()
            text += chunk
    assert '"cancelled"' in text
    return text


async def run_with_secrets(served: Service, job_id: str) -> None:
    """Let the job report, and fail, with the canary in everything that a handler can say."""
    store = served.queue.store
    (lease,) = (await store.claim(worker="w", tasks=["build"], capacity=1, lease_ms=60_000, claim_id="c")).leases
    assert lease.job.id == job_id
    report = Advance(
        job_id=job_id,
        token=lease.token,
        stage=CANARY,
        message=CANARY,
        progress=Progress(1, 2, CANARY),
        checkpoint=msgspec.json.encode({CANARY: CANARY}),
    )
    await store.advance([report])
    error = JobError(message=CANARY, detail=CANARY)
    await store.finish([Outcome(job_id=job_id, token=lease.token, state=State.FAILED, error=error, message=CANARY)])


async def test_a_result_is_seen_by_its_owner_only(served: Service, caplog: pytest.LogCaptureFixture) -> None:
    owner, other = [await served.key(Role.USER, user=user) for user in ("u1", "u2")]
    await served.queue.submit("build", id="mine", user="u1")
    store = served.queue.store
    (lease,) = (await store.claim(worker="w", tasks=["build"], capacity=1, lease_ms=60_000, claim_id="c")).leases
    result = msgspec.json.encode({CANARY: CANARY})
    await store.finish([Outcome(job_id="mine", token=lease.token, state=State.SUCCEEDED, result=result)])

    seen = await served.client.get("/api/jobs/mine", headers=owner)
    hidden = await served.client.get("/api/jobs/mine", headers=other)
    listed = await served.client.get("/api/jobs", headers=owner)

    assert seen.json()["result"] == {CANARY: CANARY}
    assert is_clean(hidden.text + listed.text + logged(caplog), served)


# a request that is refused, with the canary where a secret may be: what it is, status, method and path, and the rest
REFUSED: list[tuple[str, int, str, dict[str, Any]]] = [
    ("JSON that is cut", 400, "POST /api/jobs", {"content": f'{{"task": "build", "data": "{CANARY}', "headers": JSON}),
    ("JSON with an error", 400, "POST /api/jobs", {"content": f'{{"{CANARY}": {CANARY}}}', "headers": JSON}),
    ("JSON too deep", 400, "POST /api/jobs", {"content": f'{{"task": "build", "data": {DEEP}}}', "headers": JSON}),
    ("a body that is text", 422, "POST /api/jobs", {"json": CANARY}),
    ("a body that is a list", 422, "POST /api/session", {"json": [CANARY]}),
    ("data without a task", 422, "POST /api/jobs", {"json": {"data": {CANARY: CANARY}}}),
    ("data with a wrong priority", 422, "POST /api/jobs", {"json": {"task": "a", "data": CANARY, "priority": 100}}),
    ("data under a wrong name", 422, "POST /api/jobs", {"json": {"task": "a", "payload": {CANARY: CANARY}}}),
    ("data that is too large", 413, "POST /api/jobs", {"json": {"task": "a", "data": CANARY * 200_000}}),
    ("a contact that is none", 422, "POST /api/jobs", {"json": {"task": "a", "contact": CANARY}}),
    ("a key that is none", 401, "GET /api/jobs", {"headers": {"Authorization": f"Bearer {CANARY}"}}),
    ("a wrong key", 401, "GET /api/jobs", {"headers": {"Authorization": f"Bearer qo_{CANARY}_{CANARY}"}}),
    ("another scheme", 401, "GET /api/jobs", {"headers": {"Authorization": f"Basic {CANARY}"}}),
    ("a key to sign in", 401, "POST /api/session", {"json": {"key": CANARY}}),
    ("a list of keys", 422, "POST /api/session", {"json": {"key": [CANARY]}}),
    ("a key under a wrong name", 422, "POST /api/session", {"json": {"api_key": CANARY}}),
    ("a key in the query", 422, "GET /api/jobs", {"params": {"key": CANARY}}),
    ("a cookie", 401, "GET /api/jobs", {"headers": {"Cookie": f"qo-8765={CANARY}", "Authorization": ""}}),
    ("a watch token", 404, f"GET /watch/{CANARY}", {}),
    ("a watch token in the query", 422, "GET /api/jobs", {"params": {"token": CANARY}}),
    ("a Host", 421, "GET /api/jobs", {"headers": {"Host": CANARY}}),
    ("an Origin", 403, "POST /api/jobs", {"headers": {"Origin": f"http://{CANARY}", "Authorization": ""}}),
    (
        "an Idempotency-Key",
        422,
        "POST /api/jobs",
        {"json": {"task": "a", "id": "x"}, "headers": {"Idempotency-Key": CANARY}},
    ),
    ("a page that does not exist", 404, f"GET /{CANARY}", {}),
    ("a method that does not exist", 405, "PUT /api/jobs", {"headers": {"X-Secret": CANARY}, "json": {CANARY: CANARY}}),
]


async def test_no_problem_and_no_log_line_repeats_a_secret(served: Service, caplog: pytest.LogCaptureFixture) -> None:
    admin = await served.key(Role.ADMIN)
    for what, status, route, more in REFUSED:
        method, path = route.split(" ")
        headers = {name: value for name, value in (admin | more.get("headers", {})).items() if value}

        answer = await served.client.request(method, path, **{**more, "headers": headers})

        assert answer.status_code == status, (what, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        assert is_clean(answer.text + str(answer.headers), served), (what, answer.text)
    assert is_clean(logged(caplog), served)


async def test_a_request_that_is_no_http_is_not_logged(served: Service, caplog: pytest.LogCaptureFixture) -> None:
    url = served.client.base_url
    for text in (f"{CANARY}\r\n\r\n", f"GET / HTTP/1.1\r\n{CANARY}\r\n\r\n", f"GET /{CANARY}\x01 HTTP/9\r\n\r\n"):
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(text.encode())
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
    assert is_clean(logged(caplog), served)
