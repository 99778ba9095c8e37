"""Wrong keys are counted by address, missing ones are not, and a right one always passes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from qo.service.access.gate import Gate
from qo.service.access.keys import Keys, NewKey
from qo.service.access.refused import Refused
from tests.service.access.gate.asking import LOCAL_COOKIE, MakeGate, answer, bearer, status
from tests.service.access.requests import Headers, request
from tests.service.access.staging import Time


@pytest.mark.parametrize(
    "make_headers",
    [
        lambda text: {"Authorization": ""},
        lambda text: {"Authorization": "Bearer"},
        lambda text: {"Authorization": "Bearer "},
        lambda text: {"Authorization": text},
        lambda text: {"Authorization": f"Basic {text}"},
        lambda text: {"Authorization": f"Bearer {text}x"},
        lambda text: {"Authorization": f"Bearer {text} {text}"},
        lambda text: {"Authorization": f"Bearer{text}"},
        lambda text: {"Authorization": "Bearer qo_ü_ÿ"},
        lambda text: [("Authorization", f"Bearer {text}"), ("Authorization", f"Bearer {text}")],
    ],
)
async def test_an_authorization_that_is_no_valid_key_is_a_wrong_key(
    gate: Gate, admin: NewKey, make_headers: Callable[[str], Headers]
) -> None:
    headers = make_headers(admin.text)

    refusals = [await answer(gate, headers=headers) for _ in range(11)]

    assert isinstance(refusals[0], Refused)
    assert (refusals[0].status, refusals[0].headers) == (401, {"WWW-Authenticate": "Bearer"})
    assert [refusal.status for refusal in refusals if isinstance(refusal, Refused)] == [401] * 10 + [429]


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer "])
async def test_the_scheme_may_be_written_in_any_case(gate: Gate, admin: NewKey, scheme: str) -> None:
    assert await status(gate, headers={"Authorization": f"{scheme} {admin.text}"}) == 200


@pytest.mark.parametrize("headers", [{}, {"Cookie": "other=1"}, {"Cookie": f"{LOCAL_COOKIE}=forged"}])
async def test_a_missing_key_is_asked_for_and_never_counted(gate: Gate, admin: NewKey, headers: dict[str, str]) -> None:
    refusals = [await answer(gate, headers=headers) for _ in range(30)]

    assert all(isinstance(each, Refused) and each.status == 401 for each in refusals)
    assert all(isinstance(each, Refused) and each.headers == {"WWW-Authenticate": "Bearer"} for each in refusals)
    assert await status(gate, headers={"Authorization": "Bearer qo_x_y"}) == 401


async def test_more_than_10_wrong_keys_a_minute_are_429_but_a_right_one_passes(
    gate: Gate, keys: Keys, admin: NewKey, time: Time
) -> None:
    revoked, expired = (
        await keys.create("admin"),
        await keys.create("admin", expires_at=time.now + timedelta(minutes=1)),
    )
    await keys.revoke(revoked.id)
    time.forward(60)
    wrong = [bearer(revoked), bearer(expired), {"Authorization": "Bearer qo_x_y"}, {"Authorization": "nonsense"}]

    first = [await status(gate, headers=wrong[number % 4], peer="192.0.2.1") for number in range(10)]
    refused = await answer(gate, headers=wrong[0], peer="192.0.2.1")

    assert first == [401] * 10
    assert isinstance(refused, Refused)
    assert (refused.status, refused.headers, refused.retry_after) == (429, {"Retry-After": "60"}, 60)
    assert await status(gate, headers=bearer(admin), peer="192.0.2.1") == 200
    assert await status(gate, peer="192.0.2.1") == 401  # no key at all
    assert await status(gate, headers=wrong[0], peer="192.0.2.2") == 401
    time.forward(60)
    assert await status(gate, headers=wrong[0], peer="192.0.2.1") == 401


async def test_wrong_keys_are_counted_by_the_client_of_a_trusted_proxy_only(make_gate: MakeGate, admin: NewKey) -> None:
    gate = make_gate(trusted_proxies=("10.0.0.7",))

    def wrong(client: str) -> dict[str, str]:
        return {"Authorization": "Bearer qo_x_y", "X-Forwarded-For": client}

    behind = [await status(gate, headers=wrong(f"192.0.2.{n}"), peer="10.0.0.7") for n in range(20)]
    beside = [await status(gate, headers=wrong(f"192.0.2.{n}"), peer="10.0.0.8") for n in range(11)]
    caller = await gate.who(request(headers=bearer(admin) | {"X-Forwarded-For": "192.0.2.1"}, peer="10.0.0.7"))

    assert behind == [401] * 20
    assert beside == [401] * 10 + [429]
    assert caller.address == "192.0.2.1"


async def test_signing_in_counts_wrong_keys_too(gate: Gate, admin: NewKey) -> None:
    async def sign_in(text: str) -> int:
        try:
            await gate.caller_with_key(request("POST", "/api/session"), text)
        except Refused as refused:
            return refused.status
        return 200

    assert [await sign_in("qo_x_y") for _ in range(11)] == [401] * 10 + [429]
    assert await sign_in(admin.text) == 200
