"""Servers on this machine for a notifier to call: a receiver of webhook calls, and mail servers."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.notify.notifying import PASSWORD, TOKEN_IN_PATH

PATIENCE_SECS = 30  # limits a wait for something that never happens; nothing takes that long


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


def origin(receiver: Receiver) -> str:
    return f"http://127.0.0.1:{receiver.server_address[1]}"


# Mail servers


class Mailbox:
    """Takes mail. `refusals` holds the answers to each recipient's next RCPT commands."""

    def __init__(self) -> None:
        self.envelopes: list[Envelope] = []
        self.logins: list[str] = []
        self.encrypted: list[bool] = []
        self.data_answers: list[str] = []
        self.refusals: dict[str, list[str]] = {}

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.refusals.get(address):
            return self.refusals[address].pop(0)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.data_answers:
            return self.data_answers.pop(0)
        self.envelopes.append(envelope)
        self.encrypted.append(session.ssl is not None)
        return "250 OK"

    def authenticate(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, login: LoginPassword
    ) -> AuthResult:
        self.logins.append(login.login.decode())
        return AuthResult(success=login.password.decode() == PASSWORD, handled=False)

    @property
    def messages(self) -> list[EmailMessage]:
        return [message_in(envelope) for envelope in self.envelopes]

    @property
    def recipients(self) -> list[str]:
        return [address for envelope in self.envelopes for address in envelope.rcpt_tos]


def message_in(envelope: Envelope) -> EmailMessage:
    assert isinstance(envelope.content, bytes)
    return message_from_bytes(envelope.content, policy=policy.default)


@asynccontextmanager
async def mail_server(mailbox: Mailbox, *, tls: ssl.SSLContext | None = None, **options: Any) -> AsyncIterator[int]:
    """Serves in the test's own event loop, on the port it yields. (aiosmtpd's Controller cannot choose one.)"""
    async with listening(lambda: SMTP(mailbox, hostname="localhost", **options), tls=tls) as port:
        yield port


@asynccontextmanager
async def listening(
    protocol: Callable[[], asyncio.Protocol], *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
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


class Stalling(asyncio.Protocol):
    """A mail server that takes the connection, says `greeting` and nothing more."""

    def __init__(self, reached: asyncio.Event, left: asyncio.Event, greeting: bytes) -> None:
        self.reached, self.left, self.greeting = reached, left, greeting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(self.greeting)
        self.reached.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.left.set()
