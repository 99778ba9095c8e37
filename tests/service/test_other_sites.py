"""Pages of other sites: those that the settings name may call with a key, all others may not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import qo
from qo.service.access.caller import Role
from tests.service.conftest import Service, running_service

OURS = "https://app.example.com"


@pytest.fixture
async def open_to_ours() -> AsyncIterator[Service]:
    settings = {"server": {"port": 0, "cors_origins": [OURS], "widget_origins": [OURS]}}
    async with await qo.connect("memory://", settings=settings) as queue, running_service(queue) as served:
        yield served


@pytest.mark.parametrize(("origin", "allowed"), [(OURS, True), ("https://evil.example", False)])
async def test_a_preflight_allows_the_named_sites_only(open_to_ours: Service, origin: str, allowed: bool) -> None:
    answer = await open_to_ours.client.options(
        "/api/jobs",
        headers={
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type",
        },
    )

    assert ("access-control-allow-origin" in answer.headers) == allowed
    assert (answer.status_code == 200) == allowed


async def test_a_named_site_reads_the_answer_to_a_call_with_a_key(open_to_ours: Service) -> None:
    key = await open_to_ours.key(Role.ADMIN)

    answer = await open_to_ours.client.post("/api/jobs", json={"task": "build"}, headers={**key, "Origin": OURS})

    assert answer.status_code == 201
    assert answer.headers["access-control-allow-origin"] == OURS
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("call", ["GET /api/jobs", "PUT /api/jobs", "GET /nowhere", "GET /docs", "GET /%ff"])
async def test_a_name_that_is_not_ours_is_misdirected_whatever_it_asks_for(open_to_ours: Service, call: str) -> None:
    method, path = call.split()

    answer = await open_to_ours.client.request(method, path, headers={"Host": "evil.example"})

    assert (answer.status_code, answer.json()["title"]) == (421, "Unknown host")
