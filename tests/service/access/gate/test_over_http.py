"""The gate behind a real server: what arrives there over a socket is what the other tests make up."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import NamedTuple

import httpx
import msgspec
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from qo.service.access.gate import Gate
from qo.service.access.keys import Keys, NewKey
from qo.service.access.refused import Refused
from qo.service.access.sessions import Sessions, clear_cookie, set_cookie
from tests.service.access.gate.asking import bearer
from tests.service.access.staging import Time


class Served(NamedTuple):
    client: httpx.AsyncClient
    port: int

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture
async def served(gate: Gate, sessions: Sessions, time: Time) -> AsyncIterator[Served]:
    """An application that tells its callers who they are, and lets them sign in and out."""

    async def who(request: Request) -> Response:
        return JSONResponse(msgspec.to_builtins(await gate.who(request)))

    async def session(request: Request) -> Response:
        gate.check_host(request)
        gate.check_forgery(request)
        site = gate.site(request)
        assert site is not None
        if request.method == "DELETE":
            return Response(status_code=204, headers={"Set-Cookie": clear_cookie(site)})
        caller = await gate.caller_with_key(request, (await request.body()).decode())
        assert caller.key_id is not None
        value = await sessions.make(caller.key_id, time.now)
        return Response(status_code=204, headers={"Set-Cookie": set_cookie(site, value)})

    async def refuse(request: Request, refused: Exception) -> Response:
        assert isinstance(refused, Refused)
        return JSONResponse({"title": refused.title}, status_code=refused.status, headers=refused.headers)

    app = Starlette(
        routes=[
            Route("/who", who, methods=["GET", "POST"]),
            Route("/api/session", session, methods=["POST", "DELETE"]),
        ],
        exception_handlers={Refused: refuse},
    )
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    # By itself uvicorn would believe X-Forwarded-For of this machine, and the gate would see another peer.
    config = uvicorn.Config(app, lifespan="off", ws="none", log_config=None, proxy_headers=False)
    running = uvicorn.Server(config)
    serving = asyncio.create_task(running.serve(sockets=[listening]))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        yield Served(client, port)
    running.should_exit = True
    await serving


async def test_without_keys_this_machine_is_admin_and_no_proxy_is(served: Served) -> None:
    direct = await served.client.get("/who")
    forwarded = await served.client.get("/who", headers={"X-Forwarded-For": "127.0.0.1"})
    rebound = await served.client.get("/who", headers={"Host": f"evil.example:{served.port}"})

    assert (direct.status_code, direct.json()["role"], direct.json()["address"]) == (200, "admin", "127.0.0.1")
    assert (forwarded.status_code, rebound.status_code) == (403, 421)


async def test_a_key_is_asked_for_and_accepted(served: Served, keys: Keys) -> None:
    made = await keys.create("user", user="ada")

    missing = await served.client.get("/who")
    right = await served.client.post("/who", headers=bearer(made))

    assert (missing.status_code, missing.headers["www-authenticate"]) == (401, "Bearer")
    assert (right.status_code, right.json()["user"]) == (200, "ada")


async def test_the_eleventh_wrong_key_says_when_to_try_again(served: Served, admin: NewKey) -> None:
    wrong = {"Authorization": "Bearer qo_x_y"}

    answers = [await served.client.get("/who", headers=wrong) for _ in range(11)]

    assert [answer.status_code for answer in answers] == [401] * 10 + [429]
    assert answers[-1].headers["retry-after"] == "60"
    assert (await served.client.get("/who", headers=bearer(admin))).status_code == 200


async def test_a_browser_signs_in_acts_and_signs_out(served: Served, admin: NewKey) -> None:
    own_page = {"Origin": served.origin, "Sec-Fetch-Site": "same-origin", "X-Qo-Csrf": "1"}
    client = served.client

    forged = await client.post("/api/session", content=admin.text, headers={"Origin": "http://evil.example"})
    signed_in = await client.post("/api/session", content=admin.text, headers=own_page)
    read = await client.get("/who")
    changed = await client.post("/who", headers=own_page)
    from_another_site = await client.post("/who", headers=own_page | {"Sec-Fetch-Site": "cross-site"})
    signed_out = await client.delete("/api/session", headers=own_page)

    assert (forged.status_code, forged.headers.get("set-cookie")) == (403, None)
    assert signed_in.headers["set-cookie"].startswith(f"qo-{served.port}=")
    assert (read.json()["key_id"], read.json()["by_cookie"]) == (admin.id, True)
    assert (changed.status_code, from_another_site.status_code) == (200, 403)
    assert (signed_out.status_code, (await client.get("/who")).status_code) == (204, 401)
