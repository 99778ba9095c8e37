"""What a webhook call carries, and how its receiver can tell who sent it."""

from __future__ import annotations

import json
from base64 import b64encode

from notify_fixtures import notifier_fixture, pauses_fixture, receiver_fixture  # noqa: F401 - asked for by name
from notifying import NOTICE, NOW, PASSWORD, SECRET, TOKEN_IN_PATH

import qo
from qo.runtime.notifier import verify


async def test_a_webhook_call_carries_the_notice_as_json(receiver, notifier):
    await notifier(webhook_url=receiver.url).send(NOTICE)

    assert json.loads(receiver.bodies[0]) == {
        "id": NOTICE.id,
        "kind": "confirmation_reminder",
        "job_id": "j1",
        "task": "build",
        "user": "u1",
        "message": NOTICE.message,
        "at": "2026-01-02T03:04:05Z",
        "detail": {"confirm_before": "2026-01-02T15:04:05Z"},
    }
    assert receiver.targets == [f"/hooks/{TOKEN_IN_PATH}?key={TOKEN_IN_PATH}"]
    assert receiver.headers[0]["Content-Type"] == "application/json"
    assert receiver.headers[0]["User-Agent"] == f"qo/{qo.__version__}"
    assert receiver.headers[0]["Qo-Notice-Id"] == NOTICE.id


async def test_a_webhook_call_is_signed_over_its_raw_body(receiver, notifier):
    await notifier(webhook_url=receiver.url, webhook_secret=SECRET).send(NOTICE)

    headers, body = receiver.headers[0], receiver.bodies[0]
    assert headers["Qo-Timestamp"] == str(int(NOW.timestamp()))
    assert verify(SECRET, headers, body, now=NOW)
    assert not verify("another secret", headers, body, now=NOW)
    assert not verify(SECRET, headers, body + b" ", now=NOW)


async def test_without_a_secret_a_call_is_unsigned(receiver, notifier):
    await notifier(webhook_url=receiver.url).send(NOTICE)

    assert "Qo-Signature" not in receiver.headers[0]


async def test_a_login_in_the_webhook_address_becomes_basic_auth(receiver, notifier):
    await notifier(webhook_url=receiver.url.replace("//", f"//ann:{PASSWORD}%21@")).send(NOTICE)

    assert receiver.headers[0]["Authorization"] == "Basic " + b64encode(f"ann:{PASSWORD}!".encode()).decode()
    assert receiver.headers[0]["Host"] == f"127.0.0.1:{receiver.server_address[1]}"
