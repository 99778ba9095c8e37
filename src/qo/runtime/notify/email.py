"""A notice as an e-mail."""

from __future__ import annotations

import re
import smtplib
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP as SMTP_POLICY
from typing import Any

from qo.runtime.notify.address import Address, parse_address, refusal, shown
from qo.runtime.notify.attempt import Attempt, DeliveryFailed, network_failure
from qo.runtime.notify.notice import Notice, one_line
from qo.settings import NotifySettings

PORTS = {"smtp": 587, "smtps": 465}
URL_EXPECTED = "an address such as smtp://user:password@mail.example.com:587 or smtps://mail.example.com:465"
ADDRESS_EXPECTED = "a plain e-mail address such as ops@example.com"
PLAIN_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9.-]+")
MAX_SUBJECT_JOB_CHARACTERS = 100


class Email:
    """Sends notices as plain text through one server.

    With `smtp://`, STARTTLS is used where offered and demanded of every server that is not on this machine.
    """

    def __init__(self, settings: NotifySettings, *, clock: Callable[[], datetime]) -> None:
        """Raises `SettingsError`."""
        self._server = _checked_server(settings)
        self._sender = _checked_sender(settings)
        self._recipients = tuple(dict.fromkeys(settings.email_to))
        self._clock = clock
        self.name = f"e-mail through {self._server.origin}"

    def prepare(self, notice: Notice) -> Callable[[Attempt], None]:
        message = compose(notice, sender=self._sender, recipients=self._recipients, date=self._clock())
        return _Mail(self._server, self._sender, self._recipients, message.as_bytes()).deliver


def compose(notice: Notice, *, sender: str, recipients: tuple[str, ...], date: datetime) -> EmailMessage:
    """The same notice has the same Message-ID in every attempt."""
    message = EmailMessage(policy=SMTP_POLICY)
    message["From"] = sender
    message["To"] = ", ".join(recipients)
    message["Subject"] = f"qo: job {_in_subject(notice.job_id)} waits for your confirmation"
    message["Date"] = date
    message["Message-ID"] = f"<{notice.id}@{sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"  # so that no holiday notice answers
    time = f"{notice.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    facts = [("Job", notice.job_id), ("Task", notice.task), ("User", notice.user), ("Time", time)]
    told = ((name, value) for name, value in [*facts, *notice.detail.items()] if value is not None)
    lines = (f"{one_line(name)}: {one_line(value)}" for name, value in told)
    # Quoted-printable passes through servers that know only ASCII.
    message.set_content("\n".join([one_line(notice.message), "", *lines, ""]), cte="quoted-printable")
    return message


def _in_subject(job_id: str) -> str:
    """`=?` would begin an encoded word, in which a line break can hide."""
    text = " ".join(one_line(job_id).replace("=?", "= ?").split())
    return text if len(text) <= MAX_SUBJECT_JOB_CHARACTERS else text[: MAX_SUBJECT_JOB_CHARACTERS - 1] + "…"


class _Mail:
    """One message on its way. An attempt goes only to those whom no earlier one has reached."""

    def __init__(self, server: Address, sender: str, recipients: tuple[str, ...], message: bytes) -> None:
        self._server = server
        self._sender = sender
        self._message = message
        self._waiting = list(recipients)
        self._refused: list[str] = []

    def deliver(self, attempt: Attempt) -> None:
        try:
            client = _connect(self._server, attempt)
            try:
                self._hand_over(client)
                _say_goodbye(client)
            finally:
                client.close()
        except smtplib.SMTPAuthenticationError as error:
            again = error.smtp_code < 500
            raise DeliveryFailed(f"the server answered {error.smtp_code} to the login", again=again) from None
        except smtplib.SMTPResponseException as error:
            # Only the code: what a server says in words could repeat what it was sent.
            again = error.smtp_code < 500
            raise DeliveryFailed(f"the server answered {error.smtp_code}", again=again) from None
        except smtplib.SMTPServerDisconnected:
            raise DeliveryFailed("the server closed the connection", again=True) from None
        except smtplib.SMTPNotSupportedError:
            raise DeliveryFailed("the server offers no login, but notify.smtp_url has a user", again=False) from None
        except smtplib.SMTPException as error:
            raise DeliveryFailed(f"the server was not understood ({type(error).__name__})", again=False) from None
        except TimeoutError:
            raise
        except OSError as error:
            raise network_failure(error) from None
        if self._waiting or self._refused:
            addresses = ", ".join([*self._refused, *self._waiting])
            raise DeliveryFailed(f"the server refused the recipient {addresses}", again=bool(self._waiting))

    def _hand_over(self, client: smtplib.SMTP) -> None:
        try:
            refused = client.sendmail(self._sender, self._waiting, self._message)
        except smtplib.SMTPRecipientsRefused as error:
            # Nobody got it. Those whom the server had not judged when it gave up are worth another attempt.
            refused = {address: error.recipients.get(address, (421, b"")) for address in self._waiting}
        self._refused += [address for address, (code, _) in refused.items() if code >= 500]
        self._waiting = [address for address, (code, _) in refused.items() if code < 500]


def _say_goodbye(client: smtplib.SMTP) -> None:
    """Without waiting for the answer: a server that has the message but is slow here must not get it twice."""
    try:
        client.putcmd("quit")
    except OSError:
        pass  # it has hung up, and has the message all the same


class _Client(smtplib.SMTP):
    """Shows itself to the attempt before it connects, which it does while it is being made."""

    def __init__(self, attempt: Attempt, **options: Any) -> None:
        self._attempt = attempt
        attempt.uses(self)
        try:
            super().__init__(**options)
        except BaseException:
            self.close()
            raise

    def getreply(self) -> tuple[int, bytes]:
        self._attempt.go_on()
        return super().getreply()


class _TlsClient(_Client, smtplib.SMTP_SSL):
    pass


def _connect(server: Address, attempt: Attempt) -> smtplib.SMTP:
    """A client that is encrypted, unless the server is on this machine, and logged in where a user is given."""
    options = {"host": server.host, "port": server.port, "timeout": attempt.socket_timeout_secs}
    if server.scheme == "smtps":
        client: smtplib.SMTP = _TlsClient(attempt, context=ssl.create_default_context(), **options)
    else:
        client = _Client(attempt, **options)
    try:
        client.ehlo_or_helo_if_needed()
        if server.scheme == "smtp":
            _encrypt(client, server)
        if server.user:
            client.login(server.user, server.password)
    except BaseException:
        client.close()
        raise
    return client


def _encrypt(client: smtplib.SMTP, server: Address) -> None:
    if client.has_extn("starttls"):
        context = ssl.create_default_context()
        if server.is_loopback:
            # Mail servers come with a certificate that nobody signed. Checking it here would protect
            # nothing, because on this machine the same mail may also go unencrypted.
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        client.starttls(context=context)
    elif not server.is_loopback:
        raise DeliveryFailed(
            "the server offers no STARTTLS, and mail goes unencrypted only to this machine; "
            "use an smtps:// address or another server as notify.smtp_url",
            again=False,
        )


def _checked_server(settings: NotifySettings) -> Address:
    if settings.smtp_url is None:
        because = "notify.email_to is set" if settings.email_to else "notify.email_from is set"
        raise refusal("smtp_url", "not set", f"{URL_EXPECTED}, because {because}")
    server = parse_address("smtp_url", settings.smtp_url, ports=PORTS, expected=URL_EXPECTED)
    if server.target != "/":
        raise refusal("smtp_url", f"{shown(settings.smtp_url)} with a path", URL_EXPECTED)
    if bool(server.user) != bool(server.password):
        raise refusal("smtp_url", f"{shown(settings.smtp_url)} with half a login", "a user and a password, or neither")
    if not (server.user + server.password).isascii():
        raise refusal("smtp_url", f"{shown(settings.smtp_url)} with a login outside of ASCII", "a login in ASCII")
    return server


def _checked_sender(settings: NotifySettings) -> str:
    if not settings.email_to:
        raise refusal("email_to", "empty", "a list such as ['ops@example.com'], or no other e-mail setting")
    if settings.email_from is None:
        raise refusal("email_from", "not set", f"{ADDRESS_EXPECTED}, because notify.email_to is set")
    fields = [("email_from", settings.email_from), *(("email_to", address) for address in settings.email_to)]
    for field, address in fields:
        if not PLAIN_ADDRESS.fullmatch(address):
            raise refusal(field, repr(address), ADDRESS_EXPECTED)
    return settings.email_from
