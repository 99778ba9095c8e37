"""What no answer and no log line contains."""

from __future__ import annotations

import asyncio
import logging

import pytest

from qo.service.access.gate import Gate
from qo.service.access.keys import Keys, NewKey
from qo.service.access.refused import Refused
from tests.service.access.gate.asking import LOCAL_COOKIE, answer, bearer
from tests.service.access.requests import request


async def test_no_refusal_and_no_log_line_repeats_a_key_a_cookie_or_a_host(
    gate: Gate, keys: Keys, admin: NewKey, cookie: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    value = cookie["Cookie"].partition(f"{LOCAL_COOKIE}=")[2]
    viewer = await keys.create("viewer")
    await keys.revoke(viewer.id)
    found = [
        await answer(gate, headers=bearer(viewer)),
        await answer(gate, headers={"Authorization": f"Basic {admin.text}"}),
        await answer(gate, "POST", headers=cookie),
        await answer(gate, headers={"Cookie": f"{LOCAL_COOKIE}={value}x"}),
        await answer(gate, host="<script>"),
        *[await answer(gate, headers={"Authorization": admin.text}) for _ in range(12)],
    ]
    shown = [caplog.text, *(f"{each!r} {vars(each)}" for each in found)]

    assert all(isinstance(each, Refused) for each in found)
    assert {each.status for each in found if isinstance(each, Refused)} == {401, 403, 421, 429}
    hidden = (viewer.text.split("_", 2)[2], admin.text.split("_", 2)[2], value, "<script>")
    assert not [text for text in shown if any(secret in text for secret in hidden)]


async def test_many_requests_at_once_are_each_their_own_caller(gate: Gate, keys: Keys) -> None:
    made = [await keys.create("user", user=f"u{number}") for number in range(20)]

    callers = await asyncio.gather(*(gate.who(request(headers=bearer(key))) for key in made))

    assert [caller.user for caller in callers] == [f"u{number}" for number in range(20)]
