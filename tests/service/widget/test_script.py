"""The script of the element, as it is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

import qo
from qo.service.access.caller import Role
from tests.service.conftest import Service, running_service

SCRIPT = Path(qo.__file__).parent / "service" / "page" / "widget.js"
MOST_COMPRESSED_BYTES = 4096
OURS = "https://app.example.com"


pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def service() -> AsyncIterator[Service]:
    settings = {"server": {"port": 0, "widget_origins": [OURS]}}
    async with await qo.connect("memory://", settings=settings) as queue, running_service(queue) as service:
        yield service


async def test_the_script_is_small(service: Service) -> None:
    size = 0
    async with service.client.stream("GET", "/widget.js") as answer:
        async for chunk in answer.aiter_raw():
            size += len(chunk)

    assert answer.headers["content-encoding"] == "gzip"
    assert size <= MOST_COMPRESSED_BYTES


async def test_anybody_gets_it_with_its_type(service: Service) -> None:
    await service.key(Role.ADMIN)
    answer = await service.client.get("/widget.js")

    assert answer.text == SCRIPT.read_text()
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cross-origin-resource-policy"] == "cross-origin"


@pytest.mark.parametrize("accepted", ["identity", "gzip;q=0", "gzip; q=0.0", "br", ""])
async def test_a_client_that_does_not_take_gzip_gets_it_plain(service: Service, accepted: str) -> None:
    answer = await service.client.get("/widget.js", headers={"Accept-Encoding": accepted})

    assert "content-encoding" not in answer.headers
    assert answer.content == SCRIPT.read_bytes()


@pytest.mark.parametrize("accepted", ["gzip", "br, GZIP", "gzip;q=0.5", "deflate, gzip;q=1.0"])
async def test_a_client_that_takes_gzip_gets_that(service: Service, accepted: str) -> None:
    answer = await service.client.get("/widget.js", headers={"Accept-Encoding": accepted})

    assert answer.headers["content-encoding"] == "gzip"
    assert answer.content == SCRIPT.read_bytes()


async def test_a_browser_that_has_it_gets_it_once(service: Service) -> None:
    first = await service.client.get("/widget.js")
    etag = first.headers["etag"]
    again = await service.client.get("/widget.js", headers={"If-None-Match": f'"other", {etag}'})
    other = await service.client.get("/widget.js", headers={"If-None-Match": '"other"'})

    assert first.headers["cache-control"] == "public, max-age=3600"
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert other.status_code == 200


@pytest.mark.parametrize(("origin", "allowed"), [(OURS, OURS), ("https://evil.example", None)])
async def test_pages_of_the_named_sites_may_read_it(service: Service, origin: str, allowed: str | None) -> None:
    answer = await service.client.get("/widget.js", headers={"Origin": origin})
    unknown_link = await service.client.get("/watch/nothing", headers={"Origin": origin})

    for each in (answer, unknown_link):
        assert each.headers.get("access-control-allow-origin") == allowed
        assert "Origin" in each.headers["vary"]
    assert unknown_link.status_code == 404
