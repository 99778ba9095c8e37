"""Sending on several channels at once, failures of one of them, and cancelling. On real servers on this machine."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta

import pytest

from qo.notify.notice import Notice
from qo.notify.notifier import Notifier
from qo.settings import NotifySettings
from tests.notify.local_servers import PATIENCE_SECS, Mailbox, Receiver, Stalling, listening, mail_server, origin
from tests.notify.notifying import LOGIN, NOT_DELIVERED, NOTICE, NOW, PASSWORD, SECRET, Pauses, mail_settings


def test_importing_the_notifier_leaves_the_clients_alone() -> None:
    program = "import sys, qo.notify.notifier; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert "qo.notify.notifier" in imported.split()
    assert {"http.client", "smtplib", "email"}.isdisjoint(imported.split())


async def test_nothing_configured_sends_nothing(
    notifier: Callable[..., Notifier], errors: Callable[[], list[str]]
) -> None:
    await notifier().send(NOTICE)

    assert errors() == []


def test_the_id_of_a_notice_follows_from_what_it_says() -> None:
    def notice(**changes: object) -> Notice:
        return Notice(**{name: getattr(NOTICE, name) for name in NOTICE.__struct_fields__} | changes)

    assert notice().id == NOTICE.id
    assert notice(detail={"a": 1, "b": 2}).id == notice(detail={"b": 2, "a": 1}).id
    assert notice(at=NOW + timedelta(hours=11)).id != NOTICE.id


# One channel's failure is its own


async def test_a_webhook_that_is_down_is_tried_again_and_logged_and_the_e_mail_goes_out(
    closed_port: int, notifier: Callable[..., Notifier], pauses: Pauses, errors: Callable[[], list[str]]
) -> None:
    mailbox = Mailbox()
    webhook = {"webhook_url": f"http://ann:{PASSWORD}@127.0.0.1:{closed_port}/", "webhook_secret": SECRET}
    async with mail_server(mailbox) as port:
        await notifier(**webhook, **mail_settings(port)).send(NOTICE)

    assert len(mailbox.messages) == 1
    assert pauses == [1, 2]
    assert errors() == [
        f"{NOT_DELIVERED} the webhook at http://127.0.0.1:{closed_port}: the connection failed (Connection refused)."
    ]


async def test_a_mail_server_that_is_down_is_tried_again_and_logged_and_the_webhook_is_called(
    receiver: Receiver,
    closed_port: int,
    notifier: Callable[..., Notifier],
    pauses: Pauses,
    errors: Callable[[], list[str]],
) -> None:
    await notifier(webhook_url=receiver.url, **mail_settings(closed_port, login=LOGIN)).send(NOTICE)

    assert len(receiver.bodies) == 1
    assert pauses == [1, 2]
    assert errors() == [
        f"{NOT_DELIVERED} e-mail to ann@example.com through smtp://127.0.0.1:{closed_port}: "
        "the connection failed (Connection refused)."
    ]


async def test_a_notice_that_is_not_json_is_logged_not_raised(
    receiver: Receiver, notifier: Callable[..., Notifier], errors: Callable[[], list[str]]
) -> None:
    notice = Notice(job_id="j1", task="t", user=None, message="m", at=NOW, detail={"s3cret": object()})

    await notifier(webhook_url=receiver.url).send(notice)

    assert errors() == [f"{NOT_DELIVERED} the webhook at {origin(receiver)}: an unexpected TypeError came up."]


# Sending is cancelled


async def test_cancelling_a_send_hangs_up_at_once(receiver: Receiver, notifier: Callable[..., Notifier]) -> None:
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


async def test_cancelling_during_a_pause_is_passed_on(closed_port: int) -> None:
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
