"""Who is told, by which channels at once, and how sending ends early. Against real servers on this machine."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import timedelta

import pytest
from local_servers import PATIENCE_SECS, Mailbox, Stalling, listening, mail_server, origin
from notify_fixtures import (  # noqa: F401 - asked for by name
    closed_port_fixture,
    errors_fixture,
    notifier_fixture,
    pauses_fixture,
    receiver_fixture,
)
from notifying import NOT_DELIVERED, NOTICE, NOW, mail_settings

from qo.runtime.notifier import Notice, Notifier
from qo.settings import NotifySettings


def test_importing_the_notifier_leaves_the_clients_alone():
    program = "import sys, qo.runtime.notifier; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert "qo.runtime.notifier" in imported.split()
    assert {"http.client", "smtplib", "email"}.isdisjoint(imported.split())


async def test_nothing_configured_sends_nothing(notifier, errors):
    await notifier().send(NOTICE)

    assert errors() == []


async def test_both_channels_get_a_notice(receiver, notifier):
    mailbox = Mailbox()
    async with mail_server(mailbox) as port:
        await notifier(webhook_url=receiver.url, **mail_settings(port)).send(NOTICE)

    assert (len(receiver.bodies), len(mailbox.messages)) == (1, 1)


def test_the_id_of_a_notice_follows_from_what_it_says():
    def notice(**changes: object) -> Notice:
        return Notice(**{name: getattr(NOTICE, name) for name in NOTICE.__struct_fields__} | changes)

    assert notice().id == NOTICE.id
    assert notice(detail={"a": 1, "b": 2}).id == notice(detail={"b": 2, "a": 1}).id
    assert notice(at=NOW + timedelta(hours=11)).id != NOTICE.id


# One channel's failure is its own


async def test_a_failing_webhook_does_not_stop_the_e_mail(closed_port, notifier, errors):
    mailbox = Mailbox()
    async with mail_server(mailbox) as port:
        await notifier(webhook_url=f"http://127.0.0.1:{closed_port}", **mail_settings(port)).send(NOTICE)

    assert len(mailbox.messages) == 1
    assert len(errors()) == 1


async def test_a_failing_e_mail_does_not_stop_the_webhook(receiver, closed_port, notifier, errors):
    await notifier(webhook_url=receiver.url, **mail_settings(closed_port)).send(NOTICE)

    assert len(receiver.bodies) == 1
    assert len(errors()) == 1


async def test_a_notice_that_is_not_json_is_logged_not_raised(receiver, notifier, errors):
    notice = Notice(job_id="j1", task="t", user=None, message="m", at=NOW, detail={"s3cret": object()})

    await notifier(webhook_url=receiver.url).send(notice)

    assert errors() == [f"{NOT_DELIVERED} the webhook at {origin(receiver)}: an unexpected TypeError came up."]


# Sending is cancelled


async def test_cancelling_a_send_hangs_up_at_once(receiver, notifier):
    receiver.script = ["hang"]
    stalled, mail_left = asyncio.Event(), asyncio.Event()
    async with listening(lambda: Stalling(stalled, mail_left, b"220 hello\r\n")) as port:
        never = {"timeout_secs": 86_400}
        sending = asyncio.create_task(notifier(webhook_url=receiver.url, **mail_settings(port), **never).send(NOTICE))
        await asyncio.to_thread(receiver.reached.wait, PATIENCE_SECS)
        await stalled.wait()

        sending.cancel()

        with pytest.raises(asyncio.CancelledError):
            await sending
        assert await asyncio.to_thread(receiver.left.wait, PATIENCE_SECS)
        async with asyncio.timeout(PATIENCE_SECS):
            await mail_left.wait()


async def test_cancelling_during_a_pause_is_passed_on(closed_port):
    pausing = asyncio.Event()

    async def pause(_: float) -> None:
        pausing.set()
        await asyncio.Event().wait()

    notifier = Notifier(NotifySettings(webhook_url=f"http://127.0.0.1:{closed_port}"), sleep=pause)
    sending = asyncio.create_task(notifier.send(NOTICE))
    await pausing.wait()

    sending.cancel()

    with pytest.raises(asyncio.CancelledError):
        await sending
