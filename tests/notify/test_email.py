"""What an e-mail says, whom it reaches, and what is tried again when a mail server does not take it."""

from __future__ import annotations

import asyncio

import pytest
from local_servers import PATIENCE_SECS, Mailbox, Stalling, listening, mail_server
from notify_fixtures import (  # noqa: F401 - asked for by name
    closed_port_fixture,
    errors_fixture,
    notifier_fixture,
    pauses_fixture,
)
from notifying import LOGIN, NOT_DELIVERED, NOTICE, NOW, mail_settings


async def test_an_e_mail_says_what_waits_and_that_a_machine_wrote_it(notifier):
    mailbox = Mailbox()
    async with mail_server(mailbox) as port:
        await notifier(**mail_settings(port)).send(NOTICE)

    [message] = mailbox.messages
    assert message["Subject"] == "qo: job j1 waits for your confirmation"
    assert (message["From"], message["To"]) == ("qo@example.com", "ann@example.com, bob@example.com")
    assert message["Date"].datetime == NOW
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["Message-ID"] == f"<{NOTICE.id}@example.com>"
    assert message.get_content_type() == "text/plain"
    assert message.get_content_charset() == "utf-8"
    assert message.get_content().replace("\r\n", "\n") == (
        f"{NOTICE.message}\n\nJob: j1\nTask: build\nUser: u1\nTime: 2026-01-02 03:04 UTC\n"
        "confirm_before: 2026-01-02T15:04:05Z\n"
    )
    assert mailbox.recipients == [["ann@example.com", "bob@example.com"]]
    assert mailbox.envelopes[0].mail_from == "qo@example.com"


async def test_an_address_listed_twice_gets_one_mail(notifier, errors):
    mailbox = Mailbox()
    async with mail_server(mailbox) as port:
        await notifier(**mail_settings(port) | {"email_to": ("ann@example.com",) * 2}).send(NOTICE)

    assert mailbox.recipients == [["ann@example.com"]]


async def test_every_repeat_of_an_e_mail_has_the_same_message_id(notifier, pauses, errors):
    mailbox = Mailbox()
    mailbox.data_answers = ["451 later-s3cret", "421 busy-s3cret"]
    async with mail_server(mailbox) as port:
        await notifier(**mail_settings(port)).send(NOTICE)
        await notifier(**mail_settings(port)).send(NOTICE)

    assert pauses == [1, 2]
    assert [message["Message-ID"] for message in mailbox.messages] == [f"<{NOTICE.id}@example.com>"] * 2
    assert errors() == []


async def test_mail_that_the_server_rejects_is_not_repeated(notifier, pauses, errors):
    mailbox = Mailbox()
    mailbox.data_answers = ["554 spam-s3cret"]
    async with mail_server(mailbox) as port:
        await notifier(**mail_settings(port)).send(NOTICE)

    assert pauses == []
    assert errors() == [f"{NOT_DELIVERED} e-mail through smtp://127.0.0.1:{port}: the server answered 554."]


async def test_a_recipient_refused_for_good_is_named_and_the_others_get_the_mail_once(notifier, pauses, errors):
    mailbox = Mailbox()
    mailbox.refusals = {"bob@example.com": ["550 unknown-s3cret"]}
    async with mail_server(mailbox) as port:
        await notifier(**mail_settings(port)).send(NOTICE)

    assert mailbox.recipients == [["ann@example.com"]]
    assert pauses == []
    assert errors() == [
        f"{NOT_DELIVERED} e-mail through smtp://127.0.0.1:{port}: the server refused the recipient bob@example.com."
    ]


async def test_a_recipient_refused_for_now_is_tried_again_alone(notifier, pauses, errors):
    mailbox = Mailbox()
    mailbox.refusals = {"bob@example.com": ["451 greylisted"]}
    async with mail_server(mailbox) as port:
        await notifier(**mail_settings(port)).send(NOTICE)

    assert mailbox.recipients == [["ann@example.com"], ["bob@example.com"]]
    assert pauses == [1]
    assert errors() == []


async def test_a_server_that_gives_up_among_the_recipients_has_reached_none_of_them(notifier, errors):
    mailbox = Mailbox()
    mailbox.refusals = {"bob@example.com": ["421 shutting down"]}
    async with mail_server(mailbox) as port:
        await notifier(**mail_settings(port)).send(NOTICE)

    assert mailbox.recipients == [["ann@example.com", "bob@example.com"]]
    assert errors() == []


async def test_a_server_that_is_slow_to_say_goodbye_has_the_mail_all_the_same(notifier, errors):
    released = asyncio.Event()

    class Lingering(Mailbox):
        async def handle_QUIT(self, server, session, envelope) -> str:
            await released.wait()
            return "221 Bye"

    mailbox = Lingering()
    async with mail_server(mailbox) as port:
        await notifier(**mail_settings(port), attempts=1).send(NOTICE)
        released.set()

    assert len(mailbox.messages) == 1
    assert errors() == []


async def test_a_mail_server_that_is_down_is_tried_again_then_logged(closed_port, notifier, pauses, errors):
    await notifier(**mail_settings(closed_port, login=LOGIN)).send(NOTICE)

    assert pauses == [1, 2]
    assert errors() == [
        f"{NOT_DELIVERED} e-mail through smtp://127.0.0.1:{closed_port}: the connection failed (Connection refused)."
    ]


@pytest.mark.parametrize("greeting", [b"", b"220-hello\r\n", b"220 hello\r\n"])
async def test_a_stalling_mail_server_holds_an_attempt_only_for_its_time(notifier, errors, greeting):
    reached, left = asyncio.Event(), asyncio.Event()
    async with listening(lambda: Stalling(reached, left, greeting)) as port:
        await notifier(**mail_settings(port), attempts=1, timeout_secs=0.2).send(NOTICE)
        async with asyncio.timeout(PATIENCE_SECS):
            await left.wait()

    assert errors() == [
        f"{NOT_DELIVERED} e-mail through smtp://127.0.0.1:{port}: there was no answer within 0.2 seconds."
    ]


async def test_a_mail_server_that_talks_garbage_is_a_plain_failure(notifier, errors):
    async with listening(lambda: Stalling(asyncio.Event(), asyncio.Event(), b"\xff\x00 s3cret\r\n")) as port:
        await notifier(**mail_settings(port)).send(NOTICE)

    assert len(errors()) == 1
