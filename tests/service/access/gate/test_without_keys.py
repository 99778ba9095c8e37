"""A server without keys serves its own machine only."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qo.service.access.caller import Caller, Role
from qo.service.access.gate import Gate
from qo.service.access.keys import Keys
from tests.service.access.gate.asking import MakeGate, bearer, status
from tests.service.access.staging import StagedStore, Time


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.53", 200),
        ("::1", 200),
        ("::ffff:127.0.0.1", 200),
        ("192.0.2.1", 403),
        ("10.0.0.1", 403),
        ("2001:db8::1", 403),
        ("::ffff:10.0.0.1", 403),
        (None, 403),
    ],
)
async def test_without_keys_only_this_machine_is_served(gate: Gate, peer: str | None, expected: int) -> None:
    assert await status(gate, peer=peer) == expected


@pytest.mark.parametrize(
    "header",
    ["Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "x-forwarded-prefix"],
)
@pytest.mark.parametrize("trusted", [(), ("127.0.0.1",)])
async def test_without_keys_a_request_through_a_proxy_is_refused(
    make_gate: MakeGate, keys: Keys, header: str, trusted: tuple[str, ...]
) -> None:
    gate = make_gate(trusted_proxies=trusted)
    headers = {header: "127.0.0.1"}

    assert await status(gate, headers=headers) == 403
    assert await status(gate, headers=headers | {"Authorization": "Bearer qo_x_y"}) == 403
    made = await keys.create("viewer")
    assert await status(gate, headers=headers | bearer(made)) == 200


async def test_a_server_without_keys_reads_the_store_once_for_many_requests_and_open_streams(
    gate: Gate, staged: StagedStore
) -> None:
    for _ in range(50):
        assert await status(gate) == 200
        assert await gate.is_still_allowed(Caller(role=Role.ADMIN, address="127.0.0.1"))

    assert staged.reads == 1


async def test_a_first_key_from_another_process_counts_for_its_caller_at_once_and_for_all_within_three_seconds(
    gate: Gate, server: Callable[..., Keys], time: Time
) -> None:
    before = await status(gate)
    made = await server().create("viewer")

    wrong = {"Authorization": "Bearer qo_x_y"}
    with_a_key = (await status(gate, headers=wrong), await status(gate, headers=bearer(made)))
    time.forward(3)

    assert (before, with_a_key, await status(gate)) == (200, (401, 200), 401)


async def test_after_the_first_key_nobody_is_served_without_one(gate: Gate, keys: Keys) -> None:
    before = await status(gate)
    made = await keys.create("admin")
    after = await status(gate)
    await keys.revoke(made.id)

    assert (before, after) == (200, 401)
    assert await status(gate) == 401
