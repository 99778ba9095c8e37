"""Who is told what, how often it is tried, and what never gets out. Against real servers on this machine."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword
from hypothesis import example, given
from hypothesis import strategies as st

import qo
from qo.errors import InvalidValue, SettingsError
from qo.runtime.notifier import Notice, Notifier, signature, verify
from qo.runtime.notify.email import compose
from qo.settings import NotifySettings, load_settings

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SECRET = "webhook-s3cret"
PASSWORD = "smtp-s3cret"
TOKEN_IN_PATH = "path-s3cret"
PATIENCE_SECS = 30  # how long a test waits for what must happen before it fails; nothing waits that long
NOTICE = Notice(
    job_id="j1",
    task="build",
    user="u1",
    message="Job j1 has waited 12 hours for somebody to confirm that it may go on – ça va?",
    at=NOW,
    detail={"confirm_before": "2026-01-02T15:04:05Z"},
)


class Pauses(list[float]):
    """Stands in for sleeping: remembers how long it would have been."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
def notifier(pauses: Pauses) -> Callable[..., Notifier]:
    def make(**settings: object) -> Notifier:
        settings.setdefault("timeout_secs", PATIENCE_SECS)
        return Notifier(NotifySettings(**settings), sleep=pauses, clock=lambda: NOW)

    return make


@pytest.fixture
def errors(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The sentences logged as errors so far. Whatever happened, no secret is in the log."""
    caplog.set_level(logging.DEBUG, logger="qo.notify")

    def logged() -> list[str]:
        records = [record for record in caplog.records if record.name == "qo.notify"]
        assert all("s3cret" not in record.getMessage() for record in records)
        assert all(record.exc_info is None for record in records)
        return [record.getMessage() for record in records if record.levelno == logging.ERROR]

    return logged


# A receiver of webhook calls


class Receiver(ThreadingHTTPServer):
    """Answers each call as scripted, then with 200, and remembers what came in."""

    daemon_threads = False  # so that closing waits for every call's thread, and a leaked connection shows

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Call)
        self.script: list[int | str] = []
        self.location = ""
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.targets: list[str] = []
        self.reached = threading.Event()
        self.left = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hooks/{TOKEN_IN_PATH}?key={TOKEN_IN_PATH}"


class _Call(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.headers.append(dict(self.headers))
        self.server.targets.append(self.path)
        self.server.reached.set()
        answer = self.server.script.pop(0) if self.server.script else 200
        if isinstance(answer, int):
            self.send_response(answer)
            if 300 <= answer < 400:
                self.send_header("Location", self.server.location)
            self.end_headers()
            self.wfile.write(b"echo-s3cret")
        else:
            getattr(self, answer)()

    def hang(self) -> None:
        self.rfile.read()  # until the caller hangs up
        self.server.left.set()

    def drip_a_header(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Endless: ")
        self._write_until_the_caller_leaves(pause_secs=0.01)

    def send_an_endless_body(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        self._write_until_the_caller_leaves()

    def _write_until_the_caller_leaves(self, pause_secs: float = 0.0) -> None:
        try:
            while True:
                self.wfile.write(b"x")
                self.server.left.wait(pause_secs)
        except OSError:
            self.server.left.set()

    def talk_garbage(self) -> None:
        self.wfile.write(b"\x00\xff garbage-s3cret\r\n\r\n")

    def hang_up(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(receiver: Receiver) -> Iterator[Receiver]:
    thread = threading.Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.shutdown()
        thread.join()
        receiver.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with serving(Receiver()) as receiver:
        yield receiver


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


# A mail server


class Mailbox:
    """Takes mail. `refusals` holds, per recipient, what the server says to its next RCPTs."""

    def __init__(self) -> None:
        self.envelopes: list[Envelope] = []
        self.logins: list[str] = []
        self.encrypted: list[bool] = []
        self.data_answers: list[str] = []
        self.refusals: dict[str, list[str]] = {}

    async def handle_RCPT(self, server, session, envelope, address, options) -> str:
        if self.refusals.get(address):
            return self.refusals[address].pop(0)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope) -> str:
        if self.data_answers:
            return self.data_answers.pop(0)
        self.envelopes.append(envelope)
        self.encrypted.append(session.ssl is not None)
        return "250 OK"

    def authenticate(self, server, session, envelope, mechanism, login: LoginPassword) -> AuthResult:
        self.logins.append(login.login.decode())
        return AuthResult(success=login.password.decode() == PASSWORD, handled=False)

    @property
    def messages(self) -> list[EmailMessage]:
        return [message_from_bytes(envelope.content, policy=policy.default) for envelope in self.envelopes]

    @property
    def recipients(self) -> list[list[str]]:
        return [envelope.rcpt_tos for envelope in self.envelopes]


@asynccontextmanager
async def mail_server(mailbox: Mailbox, *, tls: ssl.SSLContext | None = None, **options: object) -> AsyncIterator[int]:
    """Serves in the test's own event loop, on the port it yields. (aiosmtpd's Controller cannot choose one.)"""
    async with listening(lambda: SMTP(mailbox, hostname="localhost", **options), tls=tls) as port:
        yield port


@asynccontextmanager
async def listening(protocol: Callable[[], asyncio.Protocol], *, tls: ssl.SSLContext | None = None) -> AsyncIterator:
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0, ssl=tls)
    before = asyncio.all_tasks()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        sessions = asyncio.all_tasks() - before  # end when their client has hung up
        async with asyncio.timeout(PATIENCE_SECS):
            await asyncio.gather(*sessions, return_exceptions=True)
            await server.wait_closed()


def mail_settings(port: int, *, login: str = "", host: str = "127.0.0.1", scheme: str = "smtp") -> dict[str, object]:
    return {
        "smtp_url": f"{scheme}://{login}{host}:{port}",
        "email_from": "qo@example.com",
        "email_to": ("ann@example.com", "bob@example.com"),
    }


LOGIN = f"ann%40example.com:{PASSWORD}@"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and self-signed certificate for this machine and for `mail.test`, in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl on the PATH to make a certificate with, so TLS stays untested here")
    file = tmp_path_factory.mktemp("tls") / "self-signed.pem"
    names = "subjectAltName=IP:127.0.0.1,DNS:mail.test"
    command = f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=mail.test -addext {names} -out {file}"
    subprocess.run([*command.split(), "-keyout", f"{file}.key"], check=True, capture_output=True)
    file.write_text(file.read_text() + Path(f"{file}.key").read_text())
    return file


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))


@pytest.fixture
def remote_name(monkeypatch: pytest.MonkeyPatch) -> str:
    """A name that does not say that it is this machine, but leads here."""
    look_up = socket.getaddrinfo

    def getaddrinfo(host, *arguments, **options):
        return look_up("127.0.0.1" if host == "mail.test" else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return "mail.test"


# What is sent


async def test_nothing_configured_sends_nothing(notifier, errors):
    await notifier().send(NOTICE)

    assert errors() == []


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


async def test_https_is_used_with_a_certificate_that_is_trusted(notifier, tls, trusted, errors):
    with serving(Receiver()) as receiver:
        receiver.socket = tls.wrap_socket(receiver.socket, server_side=True)
        await notifier(webhook_url=receiver.url.replace("http", "https")).send(NOTICE)

        assert len(receiver.bodies) == 1
    assert errors() == []


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


# What is tried again


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


NOT_DELIVERED = "The confirmation reminder for job 'j1' was not delivered by"


def origin(receiver: Receiver) -> str:
    return f"http://127.0.0.1:{receiver.server_address[1]}"


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


async def test_a_certificate_that_is_not_trusted_gets_no_call(notifier, tls, pauses, errors):
    with serving(Receiver()) as receiver:
        receiver.socket = tls.wrap_socket(receiver.socket, server_side=True)
        await notifier(webhook_url=receiver.url.replace("http", "https"), webhook_secret=SECRET).send(NOTICE)

        assert receiver.bodies == []
    assert pauses == []
    assert "its certificate is not trusted (self-signed certificate)" in errors()[0]


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


async def test_an_address_listed_twice_gets_one_mail(notifier, errors):
    mailbox = Mailbox()
    async with mail_server(mailbox) as port:
        await notifier(**mail_settings(port) | {"email_to": ("ann@example.com",) * 2}).send(NOTICE)

    assert mailbox.recipients == [["ann@example.com"]]


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


class Stalling(asyncio.Protocol):
    """A mail server that takes the connection, says `greeting` and nothing more."""

    def __init__(self, reached: asyncio.Event, left: asyncio.Event, greeting: bytes) -> None:
        self.reached, self.left, self.greeting = reached, left, greeting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self.greeting)
        self.reached.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.left.set()


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


# Encryption and logins of the mail server


async def test_mail_is_encrypted_and_logged_in_where_the_server_offers_it(notifier, tls, errors):
    mailbox = Mailbox()
    options = {"tls_context": tls, "auth_required": True, "authenticator": mailbox.authenticate}
    async with mail_server(mailbox, **options) as port:
        await notifier(**mail_settings(port, login=LOGIN)).send(NOTICE)

    assert errors() == []
    assert mailbox.encrypted == [True]
    assert mailbox.logins == ["ann@example.com"]


async def test_on_this_machine_mail_may_go_unencrypted(notifier, errors):
    mailbox = Mailbox()
    options = {"auth_require_tls": False, "authenticator": mailbox.authenticate}
    async with mail_server(mailbox, **options) as port:
        await notifier(**mail_settings(port, login=LOGIN)).send(NOTICE)

    assert errors() == []
    assert (mailbox.encrypted, mailbox.logins) == ([False], ["ann@example.com"])


async def test_a_server_elsewhere_gets_nothing_without_starttls(remote_name, notifier, pauses, errors):
    mailbox = Mailbox()
    options = {"auth_require_tls": False, "authenticator": mailbox.authenticate}
    async with mail_server(mailbox, **options) as port:
        await notifier(**mail_settings(port, host=remote_name, login=LOGIN)).send(NOTICE)

    assert (mailbox.logins, mailbox.envelopes, pauses) == ([], [], [])
    assert "the server offers no STARTTLS, and mail goes unencrypted only to this machine" in errors()[0]


async def test_a_server_elsewhere_with_a_trusted_certificate_gets_the_mail(remote_name, notifier, tls, trusted, errors):
    mailbox = Mailbox()
    options = {"tls_context": tls, "require_starttls": True, "authenticator": mailbox.authenticate}
    async with mail_server(mailbox, **options) as port:
        await notifier(**mail_settings(port, host=remote_name, login=LOGIN)).send(NOTICE)

    assert errors() == []
    assert mailbox.encrypted == [True]


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
async def test_a_server_elsewhere_with_another_certificate_gets_nothing(
    remote_name, notifier, tls, pauses, errors, scheme
):
    mailbox = Mailbox()
    options = {"tls": tls} if scheme == "smtps" else {"tls_context": tls}
    async with mail_server(mailbox, authenticator=mailbox.authenticate, **options) as port:
        await notifier(**mail_settings(port, host=remote_name, login=LOGIN, scheme=scheme)).send(NOTICE)

    assert (mailbox.logins, mailbox.envelopes, pauses) == ([], [], [])
    assert "its certificate is not trusted (self-signed certificate)" in errors()[0]


async def test_smtps_is_encrypted_from_the_first_byte(notifier, tls, trusted, errors):
    mailbox = Mailbox()
    options = {"auth_require_tls": False, "authenticator": mailbox.authenticate}
    async with mail_server(mailbox, tls=tls, **options) as port:
        await notifier(**mail_settings(port, login=LOGIN, scheme="smtps")).send(NOTICE)

    assert errors() == []
    assert mailbox.logins == ["ann@example.com"]
    assert len(mailbox.messages) == 1


async def test_a_refused_login_is_not_repeated(notifier, pauses, errors):
    mailbox = Mailbox()
    options = {"auth_require_tls": False, "authenticator": mailbox.authenticate}
    async with mail_server(mailbox, **options) as port:
        await notifier(**mail_settings(port, login=f"ann:not-{PASSWORD}@")).send(NOTICE)

    assert pauses == []
    assert errors() == [
        f"{NOT_DELIVERED} e-mail through smtp://127.0.0.1:{port}: the server answered 535 to the login."
    ]


async def test_a_login_for_a_server_that_offers_none_is_not_repeated(notifier, pauses, errors):
    async with mail_server(Mailbox(), auth_exclude_mechanism=["LOGIN", "PLAIN"]) as port:
        await notifier(**mail_settings(port, login=LOGIN)).send(NOTICE)

    assert pauses == []
    assert "the server offers no login, but notify.smtp_url has a user" in errors()[0]


# Odd characters stay where they are

ODD = "a\r\nX-Evil: 1\n\n\x00\x85\u2028\u202e é 日本 🙂"


async def test_no_header_of_a_call_holds_what_a_user_named(receiver, notifier, errors):
    plain = Notice(job_id="j1", task="t", user="u", message="m", at=NOW)
    odd = Notice(job_id=ODD, task=ODD, user=ODD, message=ODD, at=NOW, detail={ODD: ODD})
    one = notifier(webhook_url=receiver.url)

    await one.send(plain)
    await one.send(odd)

    changing = {"Content-Length", "Qo-Notice-Id"}
    first, second = ({**headers, **dict.fromkeys(changing)} for headers in receiver.headers)
    assert first == second
    assert json.loads(receiver.bodies[1])["job_id"] == ODD


async def test_a_log_line_about_an_odd_job_is_one_line(closed_port, notifier, errors):
    odd = Notice(job_id=ODD, task=ODD, user=ODD, message=ODD, at=NOW)

    await notifier(webhook_url=f"http://127.0.0.1:{closed_port}").send(odd)

    assert len(errors()[0].splitlines()) == 1


HEADERS = ["From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted"]
HEADERS_OF_THE_BODY = ["Content-Type", "Content-Transfer-Encoding", "MIME-Version"]
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@given(job_id=text, task=text, detail=st.dictionaries(text, text, max_size=2))
@example(job_id=ODD, task=ODD, detail={ODD: ODD})
@example(job_id="=?utf-8?q?a=0D=0ABcc:_evil@example.com?=", task="", detail={})
@example(job_id="==??utf-8?q?a=0D=0ABcc:_evil@example.com?=", task="", detail={})
@example(job_id=" " * 200, task="", detail={})
@example(job_id="é " * 100, task=".\r\n.", detail={"Subject": "x"})
def test_whatever_a_job_is_called_its_e_mail_has_the_same_headers(job_id, task, detail):
    notice = Notice(job_id=job_id, task=task, user=None, message="m", at=NOW, detail=detail)

    sent = compose(notice, sender="qo@example.com", recipients=("ann@example.com",), date=NOW).as_bytes()

    head, _, _ = sent.partition(b"\r\n\r\n")
    received = message_from_bytes(sent, policy=policy.default)
    assert sent.isascii()
    assert max(map(len, sent.split(b"\r\n"))) < 998
    assert [line for line in head.split(b"\r\n") if not line.strip()] == []
    assert received.keys() == HEADERS + HEADERS_OF_THE_BODY
    assert received["Subject"].strip().startswith("qo: job ")
    assert received["Subject"].endswith("waits for your confirmation")
    assert len(received.get_content().splitlines()) == 5 + len(detail)


# Signatures, for receivers


def signed(body: bytes = b"{}", *, at: datetime = NOW) -> dict[str, str]:
    timestamp = str(int(at.timestamp()))
    return {"Qo-Timestamp": timestamp, "Qo-Signature": signature(SECRET, timestamp, body)}


def test_a_signature_is_a_documented_hmac():
    # printf '1767323045.{}' | openssl dgst -sha256 -hmac webhook-s3cret
    assert signature(SECRET, "1767323045", b"{}") == (
        "v1=c104e6bdfa18f116615e8738927cfc31da4363d7202f738df21e884afe208196"
    )


def test_header_names_are_found_in_any_case():
    assert verify(SECRET, {name.upper(): value for name, value in signed().items()}, b"{}", now=NOW)
    assert verify(SECRET, {name.lower(): value for name, value in signed().items()}, b"{}", now=NOW)


@pytest.mark.parametrize(("seconds_off", "fresh"), [(0, True), (300, True), (-300, True), (301, False), (-301, False)])
def test_a_signature_is_good_for_five_minutes_either_way(seconds_off, fresh):
    assert verify(SECRET, signed(), b"{}", now=NOW + timedelta(seconds=seconds_off)) is fresh


def test_another_tolerance_can_be_asked_for():
    assert not verify(SECRET, signed(), b"{}", now=NOW + timedelta(seconds=11), tolerance_secs=10)


@pytest.mark.parametrize(
    "changes",
    [
        {"Qo-Signature": ""},
        {"Qo-Signature": "v1="},
        {"Qo-Signature": signed()["Qo-Signature"].removeprefix("v1=")},
        {"Qo-Signature": signed()["Qo-Signature"].replace("v1", "v2")},
        {"Qo-Signature": "v1=é\udcff"},
        {"Qo-Timestamp": str(int(NOW.timestamp()) + 1)},
        {"Qo-Timestamp": ""},
    ],
)
def test_a_missing_changed_or_malformed_header_is_no_signature(changes):
    assert verify(SECRET, signed(), b"{}", now=NOW)
    assert not verify(SECRET, signed() | changes, b"{}", now=NOW)
    assert not verify(SECRET, {}, b"{}", now=NOW)


@pytest.mark.parametrize("timestamp", ["", "now", "١٧٦٧٣٢٣٠٤٥", " 1767323045", "1767323045.0", "-1", "9" * 5000])
def test_a_signed_time_that_is_no_time_is_no_signature(timestamp):
    headers = {"Qo-Timestamp": timestamp, "Qo-Signature": signature(SECRET, timestamp, b"{}")}

    assert not verify(SECRET, headers, b"{}", now=NOW)


def test_an_empty_secret_signs_and_verifies_nothing():
    with pytest.raises(InvalidValue, match="secret is empty"):
        verify("", signed(), b"{}", now=NOW)


# What is refused when the notifier is made

MAIL = {"smtp_url": "smtp://mail.example.com", "email_from": "qo@example.com", "email_to": ("ann@example.com",)}
WEBHOOK_EXPECTED = "expected an address such as https://example.com/hooks/qo"
SMTP_EXPECTED = "expected an address such as smtp://user:password@mail.example.com:587 or smtps://mail.example.com:465"
ADDRESS_EXPECTED = "expected a plain e-mail address such as ops@example.com"

REFUSED = [
    (
        {"webhook_secret": SECRET},
        f"notify.webhook_url is not set; {WEBHOOK_EXPECTED}, because notify.webhook_secret is set.",
    ),
    (
        {"webhook_url": "https://example.com", "webhook_secret": ""},
        "notify.webhook_secret is empty; expected a long random text, or none for calls without a signature.",
    ),
    ({"webhook_url": "ftp://u:s3cret@host/s3cret"}, f"notify.webhook_url is 'ftp://host'; {WEBHOOK_EXPECTED}."),
    ({"webhook_url": "host/s3cret"}, f'notify.webhook_url is text without "://"; {WEBHOOK_EXPECTED}.'),
    ({"webhook_url": "https:///s3cret"}, f"notify.webhook_url is 'https://'; {WEBHOOK_EXPECTED}."),
    ({"webhook_url": "https://host:99999/s3cret"}, f"notify.webhook_url is 'https://host:99999'; {WEBHOOK_EXPECTED}."),
    ({"webhook_url": "https://u:s3c/s3cret@host"}, f"notify.webhook_url is 'https://…'; {WEBHOOK_EXPECTED}."),
    ({"webhook_url": "https://a..b/s3cret"}, f"notify.webhook_url is 'https://a..b'; {WEBHOOK_EXPECTED}."),
    *(
        (
            {"webhook_url": url},
            "notify.webhook_url is text with spaces, control characters or letters outside of ASCII; "
            f"{WEBHOOK_EXPECTED}.",
        )
        for url in ["https://host/s3cret\r\nX-Evil: 1", "https://ho st/", "https://host/é", "https://host\n"]
    ),
    (
        {"webhook_url": "http://u:s3cret@example.com/"},
        "notify.webhook_url is 'http://example.com' with a user and password; "
        "expected https, because http would show them to the network.",
    ),
    (
        {**MAIL, "smtp_url": None},
        f"notify.smtp_url is not set; {SMTP_EXPECTED}, because notify.email_to is set.",
    ),
    (
        {"email_from": "qo@example.com"},
        f"notify.smtp_url is not set; {SMTP_EXPECTED}, because notify.email_from is set.",
    ),
    (
        {**MAIL, "email_from": None},
        f"notify.email_from is not set; {ADDRESS_EXPECTED}, because notify.email_to is set.",
    ),
    (
        {**MAIL, "email_to": ()},
        "notify.email_to is empty; expected a list such as ['ops@example.com'], or no other e-mail setting.",
    ),
    ({**MAIL, "smtp_url": "https://u:s3cret@host"}, f"notify.smtp_url is 'https://host'; {SMTP_EXPECTED}."),
    (
        {**MAIL, "smtp_url": "smtp://u:s3cret@host/s3cret"},
        f"notify.smtp_url is 'smtp://host' with a path; {SMTP_EXPECTED}.",
    ),
    (
        {**MAIL, "smtp_url": "smtp://s3cret@host"},
        "notify.smtp_url is 'smtp://host' with half a login; expected a user and a password, or neither.",
    ),
    (
        {**MAIL, "smtp_url": "smtp://u:s3cret%C3%A9@host"},
        "notify.smtp_url is 'smtp://host' with a login outside of ASCII; expected a login in ASCII.",
    ),
    ({**MAIL, "email_from": "qo"}, f"notify.email_from is 'qo'; {ADDRESS_EXPECTED}."),
    (
        {**MAIL, "email_to": ("ann@example.com", "x@y\r\nRCPT TO:<z@z>")},
        f"notify.email_to is 'x@y\\r\\nRCPT TO:<z@z>'; {ADDRESS_EXPECTED}.",
    ),
    ({**MAIL, "email_to": ("Ann <ann@y.z>",)}, f"notify.email_to is 'Ann <ann@y.z>'; {ADDRESS_EXPECTED}."),
]


@pytest.mark.parametrize(("settings", "sentence"), REFUSED)
def test_half_or_wrongly_configured_channels_are_refused_without_showing_a_secret(settings, sentence):
    with pytest.raises(SettingsError) as refusal:
        Notifier(NotifySettings(**settings))

    assert str(refusal.value) == sentence
    assert "s3c" not in sentence


@pytest.mark.parametrize(
    "settings",
    [
        {},
        MAIL,
        {**MAIL, "smtp_url": "smtps://u:p@[::1]:465/"},
        {"webhook_url": "https://example.com"},
        {"webhook_url": "http://10.0.0.1:8080/hook", "webhook_secret": SECRET},
        {"webhook_url": "http://u:p@localhost/hook"},
        {"webhook_url": "http://u:p@[::1]:80/hook"},
        {"webhook_url": "https://u:p@example.com/hook", **MAIL},
    ],
)
def test_whole_channels_are_accepted(settings):
    Notifier(NotifySettings(**settings))


def test_the_section_is_read_from_the_file(tmp_path):
    (tmp_path / ".qo.toml").write_text('[notify]\nemail_to = ["ann@example.com"]\nattempts = 5')

    settings = load_settings(directory=tmp_path, environ={"QO_NOTIFY__WEBHOOK_URL": "https://example.com"})

    expected = NotifySettings(email_to=("ann@example.com",), attempts=5, webhook_url="https://example.com")
    assert settings.notify == expected


def test_printed_settings_show_no_secret():
    settings = NotifySettings(webhook_url="https://h/s3cret", webhook_secret=SECRET, smtp_url=f"smtp://u:{PASSWORD}@h")

    assert "s3cret" not in f"{settings!r} {settings} {settings.__rich_repr__()}"
    assert "webhook_secret='(hidden)'" in repr(settings)
    assert "webhook_secret=None" in repr(NotifySettings())


def test_importing_the_notifier_leaves_the_clients_alone():
    program = "import sys, qo.runtime.notifier; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert {"http.client", "smtplib", "email"}.isdisjoint(imported.split())
