"""Which webhook calls are repeated, how often and how long, and what is logged of those given up."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from local_servers import PATIENCE_SECS, Receiver, origin, serving
from notify_fixtures import (  # noqa: F401 - asked for by name
    closed_port_fixture,
    errors_fixture,
    notifier_fixture,
    pauses_fixture,
    receiver_fixture,
)
from notifying import NOT_DELIVERED, NOTICE, NOW, PASSWORD, SECRET, Pauses

from qo.runtime.notifier import Notifier, verify
from qo.settings import NotifySettings


@pytest.mark.parametrize("failure", [408, 429, 500, 503, "talk_garbage", "hang_up"])
async def test_a_call_that_may_succeed_later_is_repeated_with_growing_pauses(
    receiver, notifier, pauses, errors, failure
):
    receiver.script = [failure, failure]

    await notifier(webhook_url=receiver.url, webhook_secret=SECRET).send(NOTICE)

    assert pauses == [1, 2]
    assert len(receiver.bodies) == 3
    assert errors() == []


async def test_every_repeat_of_a_call_has_the_same_id_and_body(receiver, notifier):
    receiver.script = [500, 500]

    await notifier(webhook_url=receiver.url).send(NOTICE)

    assert {headers["Qo-Notice-Id"] for headers in receiver.headers} == {NOTICE.id}
    assert len(set(receiver.bodies)) == 1


async def test_every_repeat_of_a_call_is_signed_at_its_own_time(receiver):
    receiver.script = [500]
    times = iter([NOW, NOW + timedelta(seconds=400)])
    settings = NotifySettings(webhook_url=receiver.url, webhook_secret=SECRET)

    await Notifier(settings, sleep=Pauses(), clock=lambda: next(times)).send(NOTICE)

    assert verify(SECRET, receiver.headers[1], receiver.bodies[1], now=NOW + timedelta(seconds=400))


@pytest.mark.parametrize("attempts", [1, 2, 8])
async def test_no_more_than_the_configured_attempts_are_made(receiver, notifier, pauses, errors, attempts):
    receiver.script = [500] * 20

    await notifier(webhook_url=receiver.url, attempts=attempts).send(NOTICE)

    assert len(receiver.bodies) == attempts
    assert pauses == [1, 2, 4, 8, 16, 30, 30][: attempts - 1]
    assert errors() == [f"{NOT_DELIVERED} the webhook at {origin(receiver)}: it answered 500."]


@pytest.mark.parametrize("status", [400, 401, 404, 410, 422])
async def test_a_call_that_the_receiver_rejects_is_not_repeated(receiver, notifier, errors, status):
    receiver.script = [status]

    await notifier(webhook_url=receiver.url, webhook_secret=SECRET).send(NOTICE)

    assert len(receiver.bodies) == 1
    assert errors() == [f"{NOT_DELIVERED} the webhook at {origin(receiver)}: it answered {status}."]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_never_followed(receiver, notifier, errors, status):
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
async def test_a_redirect_to_a_strange_place_is_a_plain_failure(receiver, notifier, errors, location):
    receiver.script = [302]
    receiver.location = location

    await notifier(webhook_url=receiver.url).send(NOTICE)

    [sentence] = errors()
    assert "redirects are not followed" in sentence
    assert len(sentence) < 400


@pytest.mark.parametrize("silence", ["hang", "drip_a_header"])
async def test_an_attempt_ends_when_its_time_is_over_however_the_receiver_stalls(receiver, notifier, errors, silence):
    receiver.script = [silence, silence]

    await notifier(webhook_url=receiver.url, attempts=2, timeout_secs=0.2).send(NOTICE)

    assert await asyncio.to_thread(receiver.left.wait, PATIENCE_SECS)
    assert len(receiver.bodies) == 2
    assert errors() == [f"{NOT_DELIVERED} the webhook at {origin(receiver)}: there was no answer within 0.2 seconds."]


async def test_an_answers_body_is_not_waited_for(receiver, notifier, errors):
    receiver.script = ["send_an_endless_body"]

    await notifier(webhook_url=receiver.url).send(NOTICE)

    assert await asyncio.to_thread(receiver.left.wait, PATIENCE_SECS)
    assert errors() == []


async def test_a_receiver_that_is_down_is_tried_again_then_logged(closed_port, notifier, pauses, errors):
    await notifier(webhook_url=f"http://ann:{PASSWORD}@127.0.0.1:{closed_port}/", webhook_secret=SECRET).send(NOTICE)

    assert pauses == [1, 2]
    assert errors() == [
        f"{NOT_DELIVERED} the webhook at http://127.0.0.1:{closed_port}: the connection failed (Connection refused)."
    ]
