"""The content of a webhook call, its signature, and which failed calls are repeated."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable
from datetime import timedelta

import pytest

import qo
from qo.notify.notifier import Notifier
from qo.notify.signing import verify
from qo.settings import NotifySettings
from tests.notify.local_servers import PATIENCE_SECS, Receiver, origin, serving
from tests.notify.notifying import NOT_DELIVERED, NOTICE, NOW, PASSWORD, SECRET, TOKEN_IN_PATH, Pauses


async def test_a_webhook_call_carries_the_notice_as_json(receiver: Receiver, notifier: Callable[..., Notifier]) -> None:
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
    assert receiver.headers[0]["webhook-id"] == NOTICE.id


async def test_a_webhook_call_is_signed_over_its_raw_body(
    receiver: Receiver, notifier: Callable[..., Notifier]
) -> None:
    await notifier(webhook_url=receiver.url, webhook_secret=SECRET).send(NOTICE)

    headers, body = receiver.headers[0], receiver.bodies[0]
    assert headers["webhook-timestamp"] == str(int(NOW.timestamp()))
    assert verify(SECRET, headers, body, now=NOW)
    assert not verify("another secret", headers, body, now=NOW)
    assert not verify(SECRET, headers, body + b" ", now=NOW)


async def test_without_a_secret_a_call_is_unsigned(receiver: Receiver, notifier: Callable[..., Notifier]) -> None:
    await notifier(webhook_url=receiver.url).send(NOTICE)

    assert "webhook-signature" not in receiver.headers[0]


async def test_a_login_in_the_webhook_address_becomes_basic_auth(
    receiver: Receiver, notifier: Callable[..., Notifier]
) -> None:
    await notifier(webhook_url=receiver.url.replace("//", f"//ann:{PASSWORD}%21@")).send(NOTICE)

    assert receiver.headers[0]["Authorization"] == "Basic " + b64encode(f"ann:{PASSWORD}!".encode()).decode()
    assert receiver.headers[0]["Host"] == f"127.0.0.1:{receiver.server_address[1]}"


# Calls that fail


@pytest.mark.parametrize("failure", [408, 429, 500, 503, "talk_garbage", "hang_up"])
async def test_a_call_that_may_succeed_later_is_repeated_with_growing_pauses(
    receiver: Receiver,
    notifier: Callable[..., Notifier],
    pauses: Pauses,
    errors: Callable[[], list[str]],
    failure: int | str,
) -> None:
    receiver.script = [failure, failure]

    await notifier(webhook_url=receiver.url, webhook_secret=SECRET).send(NOTICE)

    assert pauses == [1, 2]
    assert len(receiver.bodies) == 3
    assert len(set(receiver.bodies)) == 1
    assert {headers["webhook-id"] for headers in receiver.headers} == {NOTICE.id}
    assert errors() == []


async def test_every_repeat_of_a_call_is_signed_at_its_own_time(receiver: Receiver) -> None:
    receiver.script = [500]
    times = iter([NOW, NOW + timedelta(seconds=400)])
    settings = NotifySettings(webhook_url=receiver.url, webhook_secret=SECRET)

    await Notifier(settings, sleep=Pauses(), clock=lambda: next(times)).send(NOTICE)

    assert verify(SECRET, receiver.headers[1], receiver.bodies[1], now=NOW + timedelta(seconds=400))


@pytest.mark.parametrize("attempts", [1, 2, 8])
async def test_no_more_than_the_configured_attempts_are_made(
    receiver: Receiver,
    notifier: Callable[..., Notifier],
    pauses: Pauses,
    errors: Callable[[], list[str]],
    attempts: int,
) -> None:
    receiver.script = [500] * 20

    await notifier(webhook_url=receiver.url, attempts=attempts).send(NOTICE)

    assert len(receiver.bodies) == attempts
    assert pauses == [1, 2, 4, 8, 16, 30, 30][: attempts - 1]
    assert errors() == [f"{NOT_DELIVERED} the webhook at {origin(receiver)}: it answered 500."]


@pytest.mark.parametrize("status", [400, 401, 404, 410, 422])
async def test_a_call_that_the_receiver_rejects_is_not_repeated(
    receiver: Receiver, notifier: Callable[..., Notifier], errors: Callable[[], list[str]], status: int
) -> None:
    receiver.script = [status]

    await notifier(webhook_url=receiver.url, webhook_secret=SECRET).send(NOTICE)

    assert len(receiver.bodies) == 1
    assert errors() == [f"{NOT_DELIVERED} the webhook at {origin(receiver)}: it answered {status}."]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_never_followed(
    receiver: Receiver, notifier: Callable[..., Notifier], errors: Callable[[], list[str]], status: int
) -> None:
    with serving(Receiver()) as elsewhere:
        receiver.script = [status]
        receiver.location = elsewhere.url.replace("//", f"//u:{PASSWORD}@")

        await notifier(webhook_url=receiver.url, webhook_secret=SECRET).send(NOTICE)

        assert (len(receiver.bodies), len(elsewhere.bodies)) == (1, 0)
        assert errors() == [
            f"{NOT_DELIVERED} the webhook at {origin(receiver)}: it answered {status}, a redirect to "
            f"'{origin(elsewhere)}', and redirects are not followed; "
            "configure the final address as notify.webhook_url."
        ]


@pytest.mark.parametrize("location", ["/path-s3cret", "", "http://[", f"https://u:s3cret/x@{'h' * 60_000}/"])
async def test_a_redirect_to_a_strange_place_is_a_plain_failure(
    receiver: Receiver, notifier: Callable[..., Notifier], errors: Callable[[], list[str]], location: str
) -> None:
    receiver.script = [302]
    receiver.location = location

    await notifier(webhook_url=receiver.url).send(NOTICE)

    [sentence] = errors()
    assert "redirects are not followed" in sentence
    assert len(sentence) < 400


@pytest.mark.parametrize("silence", ["hang", "drip_a_header"])
async def test_an_attempt_ends_when_its_time_is_over_however_the_receiver_stalls(
    receiver: Receiver, notifier: Callable[..., Notifier], errors: Callable[[], list[str]], silence: str
) -> None:
    receiver.script = [silence, silence]

    await notifier(webhook_url=receiver.url, attempts=2, timeout_secs=0.2).send(NOTICE)

    assert await asyncio.to_thread(receiver.left.wait, PATIENCE_SECS)
    assert len(receiver.bodies) == 2
    assert errors() == [f"{NOT_DELIVERED} the webhook at {origin(receiver)}: there was no answer within 0.2 seconds."]


async def test_an_answers_body_is_not_waited_for(
    receiver: Receiver, notifier: Callable[..., Notifier], errors: Callable[[], list[str]]
) -> None:
    receiver.script = ["send_an_endless_body"]

    await notifier(webhook_url=receiver.url).send(NOTICE)

    assert await asyncio.to_thread(receiver.left.wait, PATIENCE_SECS)
    assert errors() == []
