"""Every route with every kind of caller answers exactly as the table says."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

import qo
from qo.service.access import attempts
from qo.service.access.caller import Role
from qo.service.access.keys import Keys
from tests.service.calling import EXISTING, OPERATIONS, call, call_named, filled, filled_path
from tests.service.conftest import Service, running_service
from tests.service.who_may import CALLERS, EXCEPTIONS, ME, OURS, ROUTES, Caller, answers


def test_every_route_has_a_row_and_every_caller_a_line() -> None:
    assert ROUTES.keys() == EXISTING.keys()
    assert CALLERS.keys() == answers().keys()
    assert {route.kind for route in ROUTES.values()} <= answers()["admin"].keys()


@pytest.mark.parametrize("name", CALLERS)
async def test_every_route_answers_the_caller_as_the_table_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "WRONG_KEYS_A_MINUTE", 10 * len(ROUTES))  # a 429 would hide the 401
    caller = CALLERS[name]
    settings = {"server": {"port": 0, "user_tasks": ["build"], "trusted_proxies": list(caller.trusted_proxies)}}
    wrong: list[str] = []
    async with await qo.connect("memory://", settings=settings) as queue, running_service(queue) as served:
        headers = await headers_of(served, caller)
        for route, operation in OPERATIONS.items():
            answer = await call(served, route, owner=caller.owner, headers=headers)

            in_table = answers()[name][ROUTES[route].kind]
            expected = EXCEPTIONS.get((name, route)) or (operation.status if in_table == "ok" else int(in_table))
            is_problem = answer.headers["content-type"] == "application/problem+json"
            asks_for_a_key = "www-authenticate" in answer.headers
            if (answer.status_code, is_problem, asks_for_a_key) != (expected, expected >= 400, expected == 401):
                wrong.append(f"{route}: {answer.status_code}, not {expected}; {dict(answer.headers)}")

    assert wrong == []


@pytest.mark.parametrize("name", ["no key", "user on another's", "admin", "foreign Host"])
async def test_head_answers_as_get_does_and_without_a_body(name: str) -> None:
    caller = CALLERS[name]
    settings = {"server": {"port": 0, "user_tasks": ["build"]}}
    async with await qo.connect("memory://", settings=settings) as queue, running_service(queue) as served:
        headers = await headers_of(served, caller)
        for route in OPERATIONS:
            if route.startswith("GET "):
                made = await ROUTES[route].make(served, caller.owner, route)
                path = filled_path(route.removeprefix("GET "), made)

                read = await call_named(served, route, made, headers=headers)
                head = await served.client.head(path, params=filled(ROUTES[route].query, made), headers=headers)

                assert (head.status_code, head.content) == (read.status_code, b""), route
                assert head.headers["content-type"] == read.headers["content-type"], route


async def headers_of(served: Service, caller: Caller) -> dict[str, str]:
    origin = str(served.client.base_url).rstrip("/")
    headers = {name: value.replace(OURS, origin) for name, value in caller.headers.items()}
    if not caller.has_keys:
        return headers
    admin = await served.key(Role.ADMIN)
    if caller.has_cookie:
        signed_in = await served.client.post("/api/session", json={"key": served.keys_made[0]})
        headers["Cookie"] = signed_in.headers["set-cookie"].partition(";")[0]
    match caller.key:
        case None:
            return headers
        case "wrong":
            return headers | {"Authorization": admin["Authorization"][:-1] + "_"}
        case "expired":
            return headers | await expired_key(served)
        case "revoked":
            key = await served.key(Role.ADMIN)
            await served.keys.revoke(key["Authorization"].split("_")[1])
            return headers | key
        case role:
            return headers | await served.key(Role(role), user=ME if role == "user" else None)


async def expired_key(served: Service) -> dict[str, str]:
    """Made two hours ago, for one hour."""
    system = served.queue.system
    earlier = msgspec.structs.replace(system, clock=lambda: system.clock() - 2 * 3_600_000)
    made = await Keys(served.queue.store, system=earlier).create(
        Role.ADMIN, expires_at=system.now() - timedelta(hours=1)
    )
    return {"Authorization": f"Bearer {made.text}"}
