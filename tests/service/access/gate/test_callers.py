"""Who a request comes from."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from qo.service.access.caller import Caller, Role
from qo.service.access.gate import Gate
from qo.service.access.keys import Keys, NewKey
from qo.service.access.sessions import Sessions
from tests.service.access.gate.asking import LOCAL_COOKIE, MakeGate, bearer, status
from tests.service.access.requests import request
from tests.service.access.staging import Time


async def test_without_keys_this_machine_is_admin(gate: Gate) -> None:
    caller = await gate.who(request())

    assert caller == Caller(role=Role.ADMIN, address="127.0.0.1")
    assert caller.by == "loopback"


@pytest.mark.parametrize(
    ("fields", "role"),
    [
        ({}, Role.ADMIN),
        ({}, Role.VIEWER),
        ({"user": "ada"}, Role.USER),
        ({"user": "ada", "project": "p1"}, Role.USER),
    ],
)
@pytest.mark.parametrize("peer", ["127.0.0.1", "192.0.2.1", "2001:db8::1"])
async def test_a_caller_is_what_their_key_says_wherever_they_are(
    gate: Gate, keys: Keys, time: Time, fields: dict[str, Any], role: Role, peer: str
) -> None:
    until = time.now + timedelta(days=1)
    made = await keys.create(role, expires_at=until, **fields)

    caller = await gate.who(request(headers=bearer(made), peer=peer))

    assert caller == Caller(role=role, key_id=made.id, address=peer, expires_at=until, **fields)
    assert caller.by == made.id


async def test_a_cookie_stands_for_its_key(gate: Gate, admin: NewKey, cookie: dict[str, str], time: Time) -> None:
    caller = await gate.who(request(headers=cookie))

    assert caller == Caller(
        role=Role.ADMIN,
        key_id=admin.id,
        address="127.0.0.1",
        by_cookie=True,
        session=caller.session,
        expires_at=time.now + timedelta(hours=12),
    )
    assert caller.session is not None
    assert caller.session not in cookie["Cookie"]


async def test_a_session_ends_with_its_key(gate: Gate, keys: Keys, sessions: Sessions, time: Time) -> None:
    made = await keys.create("viewer", expires_at=time.now + timedelta(hours=1))
    headers = {"Cookie": f"{LOCAL_COOKIE}={await sessions.make(made.id, time.now)}"}

    caller = await gate.who(request(headers=headers))
    assert caller.expires_at == time.now + timedelta(hours=1)
    time.forward(3600)
    assert await status(gate, headers=headers) == 401


async def test_a_session_of_a_revoked_key_has_ended(
    gate: Gate, keys: Keys, admin: NewKey, cookie: dict[str, str]
) -> None:
    assert await status(gate, headers=cookie) == 200
    await keys.revoke(admin.id)

    assert await status(gate, headers=cookie) == 401


async def test_a_session_ends_after_12_hours(gate: Gate, cookie: dict[str, str], time: Time) -> None:
    time.forward(12 * 3600)

    assert await status(gate, headers=cookie) == 401


async def test_a_key_in_authorization_wins_over_the_cookie(gate: Gate, keys: Keys, cookie: dict[str, str]) -> None:
    viewer = await keys.create("viewer")

    caller = await gate.who(request(headers=cookie | bearer(viewer)))

    assert (caller.key_id, caller.by_cookie) == (viewer.id, False)
    assert await status(gate, headers=cookie | {"Authorization": "Bearer qo_x_y"}) == 401


async def test_a_cookie_is_looked_for_under_the_name_that_this_site_gives_it(
    make_gate: MakeGate, sessions: Sessions, admin: NewKey, time: Time
) -> None:
    value = await sessions.make(admin.id, time.now)
    gate = make_gate(public_url="https://qo.example.com/queue", hosts=("qo.example.com",))

    statuses = {
        name: await status(gate, headers={"Cookie": f"{name}={value}"}, host="qo.example.com")
        for name in ("__Secure-qo", "__Host-qo", "qo-443", "qo-8765")
    }

    assert statuses == {"__Secure-qo": 200, "__Host-qo": 401, "qo-443": 401, "qo-8765": 401}
