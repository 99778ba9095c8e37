"""The content of an e-mail, its recipients, and which failed mails are repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiosmtpd.smtp import SMTP, Envelope, Session

from qo.notify.notifier import Notifier
from tests.notify.local_servers import PATIENCE_SECS, Mailbox, Stalling, listening, mail_server
from tests.notify.notifying import NOT_DELIVERED, NOTICE, NOW, Pauses, mail_settings

BOTH = ("ann@example.com", "bob@example.com")


async def test_an_e_mail_says_what_waits_and_that_a_machine_wrote_it(notifier: Callable[..., Notifier]) -> None:
    mailbox = Mailbox()
    async with mail_server(mailbox) as port:
        await notifier(**mail_settings(port)).send(NOTICE)

    [message] = mailbox.messages
    assert message["Subject"] == "qo: job j1 waits for your confirmation"
    assert (message["From"], message["To"]) == ("qo@example.com", "ann@example.com")
    assert message["Date"].datetime == NOW
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["Message-ID"] == f"<{NOTICE.id}@example.com>"
    assert message.get_content_type() == "text/plain"
    assert message.get_content_charset() == "utf-8"
    assert message.get_content().replace("\r\n", "\n") == (
        f"{NOTICE.message}\n\nJob: j1\nTask: build\nUser: u1\nTime: 2026-01-02 03:04 UTC\n"
        "confirm_before: 2026-01-02T15:04:05Z\n"
    )
    assert mailbox.recipients == ["ann@example.com"]
    assert mailbox.envelopes[0].mail_from == "qo@example.com"


async def test_every_recipient_gets_a_mail_of_its_own(notifier: Callable[..., Notifier]) -> None:
    mailbox = Mailbox()
    async with mail_server(mailbox) as port:
        await notifier(**mail_settings(port, to=(*BOTH, "ann@example.com"))).send(NOTICE)

    assert sorted(mailbox.recipients) == sorted(message["To"] for message in mailbox.messages) == [*BOTH]


async def test_a_contact_gets_the_mail_instead_of_the_recipients(
    notifier: Callable[..., Notifier], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="qo")
    mailbox = Mailbox()
    async with mail_server(mailbox) as port:
        await notifier(**mail_settings(port, to=BOTH)).send(NOTICE, contact="carl@example.com")

    assert mailbox.recipients == [message["To"] for message in mailbox.messages] == ["carl@example.com"]
    logged = [record.getMessage() for record in caplog.records if record.name == "qo.notify"]
    assert "the job's contact" in logged[0]
    assert "carl" not in str(logged)


async def test_every_repeat_of_an_e_mail_has_the_same_message_id(
    notifier: Callable[..., Notifier], pauses: Pauses, errors: Callable[[], list[str]]
) -> None:
    mailbox = Mailbox()
    mailbox.data_answers = ["451 later-s3cret", "421 busy-s3cret"]
    async with mail_server(mailbox) as port:
        await notifier(**mail_settings(port)).send(NOTICE)
        await notifier(**mail_settings(port)).send(NOTICE)

    assert pauses == [1, 2]
    assert [message["Message-ID"] for message in mailbox.messages] == [f"<{NOTICE.id}@example.com>"] * 2
    assert errors() == []


async def test_a_mail_that_the_server_rejects_is_not_repeated(
    notifier: Callable[..., Notifier], pauses: Pauses, errors: Callable[[], list[str]]
) -> None:
    mailbox = Mailbox()
    mailbox.data_answers = ["554 spam-s3cret"]
    async with mail_server(mailbox) as port:
        await notifier(**mail_settings(port)).send(NOTICE)

    assert pauses == []
    assert errors() == [
        f"{NOT_DELIVERED} e-mail to ann@example.com through smtp://127.0.0.1:{port}: the server answered 554."
    ]


async def test_a_recipient_refused_for_good_is_named_and_the_others_get_the_mail_once(
    notifier: Callable[..., Notifier], pauses: Pauses, errors: Callable[[], list[str]]
) -> None:
    mailbox = Mailbox()
    mailbox.refusals = {"bob@example.com": ["550 unknown-s3cret"]}
    async with mail_server(mailbox) as port:
        await notifier(**mail_settings(port, to=BOTH)).send(NOTICE)

    assert mailbox.recipients == ["ann@example.com"]
    assert pauses == []
    assert errors() == [
        f"{NOT_DELIVERED} e-mail to bob@example.com through smtp://127.0.0.1:{port}: "
        "the server answered 550 to the recipient."
    ]


@pytest.mark.parametrize("refusal", ["451 greylisted", "421 shutting down"])
async def test_a_recipient_refused_for_now_is_tried_again_alone(
    notifier: Callable[..., Notifier], pauses: Pauses, errors: Callable[[], list[str]], refusal: str
) -> None:
    mailbox = Mailbox()
    mailbox.refusals = {"bob@example.com": [refusal]}
    async with mail_server(mailbox) as port:
        await notifier(**mail_settings(port, to=BOTH)).send(NOTICE)

    assert sorted(mailbox.recipients) == sorted(BOTH)  # they go out beside each other
    assert pauses == [1]
    assert errors() == []


async def test_a_server_that_is_slow_to_say_goodbye_has_the_mail_all_the_same(
    notifier: Callable[..., Notifier], errors: Callable[[], list[str]]
) -> None:
    released = asyncio.Event()

    class Lingering(Mailbox):
        async def handle_QUIT(self, server: SMTP, session: Session, envelope: Envelope) -> str:
            await released.wait()
            return "221 Bye"

    mailbox = Lingering()
    async with mail_server(mailbox) as port:
        await notifier(**mail_settings(port), attempts=1).send(NOTICE)
        released.set()

    assert len(mailbox.messages) == 1
    assert errors() == []


@pytest.mark.parametrize("greeting", [b"", b"220-hello\r\n", b"220 hello\r\n"])
async def test_a_stalling_mail_server_holds_an_attempt_only_for_its_time(
    notifier: Callable[..., Notifier], errors: Callable[[], list[str]], greeting: bytes
) -> None:
    reached, left = asyncio.Event(), asyncio.Event()
    async with listening(lambda: Stalling(reached, left, greeting)) as port:
        await notifier(**mail_settings(port), attempts=1, timeout_secs=0.2).send(NOTICE)
        async with asyncio.timeout(PATIENCE_SECS):
            await left.wait()

    assert errors() == [
        f"{NOT_DELIVERED} e-mail to ann@example.com through smtp://127.0.0.1:{port}: "
        "there was no answer within 0.2 seconds."
    ]


async def test_a_mail_server_that_talks_garbage_is_a_plain_failure(
    notifier: Callable[..., Notifier], errors: Callable[[], list[str]]
) -> None:
    async with listening(lambda: Stalling(asyncio.Event(), asyncio.Event(), b"\xff\x00 s3cret\r\n")) as port:
        await notifier(**mail_settings(port)).send(NOTICE)

    assert len(errors()) == 1
