"""A notice as an e-mail."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP as SMTP_POLICY
from typing import Any

from qo.notify.address import Address, parse_address, refusal, shown
from qo.notify.attempt import Attempt, DeliveryFailed
from qo.notify.notice import Notice, one_line
from qo.policy.checks import PLAIN_ADDRESS
from qo.settings import NotifySettings

PORTS = {"smtp": 587, "smtps": 465}
URL_EXPECTED = "an address such as smtp://user:password@mail.example.com:587 or smtps://mail.example.com:465"
ADDRESS_EXPECTED = "a plain e-mail address such as ops@example.com"
MAX_SUBJECT_JOB_CHARACTERS = 100


class Email:
    """Sends notices as plain text to one recipient, so that a mail that was refused for one goes to all others once.

    With `smtp://`, STARTTLS is used where offered and demanded of every server that is not on this machine.
    """

    def __init__(
        self, server: Address, sender: str, recipient: str, *, clock: Callable[[], datetime], named: str | None = None
    ) -> None:
        self._server = server
        self._sender = sender
        self._recipient = recipient
        self._clock = clock
        self.name = f"e-mail to {named or recipient} through {server.origin}"

    def deliver(self, notice: Notice, attempt: Attempt) -> None:
        message = compose(notice, sender=self._sender, recipient=self._recipient, date=self._clock()).as_bytes()
        try:
            client = _Client(self._server, attempt)
            try:
                _encrypt(client, self._server)
                if self._server.user:
                    client.login(self._server.user, self._server.password)
                client.sendmail(self._sender, self._recipient, message)
                # A server that is slow to say goodbye has the mail, so nobody waits for that.
                with suppress(OSError):
                    client.putcmd("quit")
            finally:
                client.close()
        except smtplib.SMTPException as error:
            raise _failure(error) from None


class EmailSettings:
    """The server and the sender of `[notify]`, and the recipients of notices that are for nobody in particular."""

    def __init__(self, settings: NotifySettings, *, clock: Callable[[], datetime]) -> None:
        """Raises `SettingsError`."""
        self._server, self._sender = _checked_server(settings), _checked_sender(settings)
        self._clock = clock
        self.to_recipients = [self._to(recipient) for recipient in dict.fromkeys(settings.email_to)]

    def to_contact(self, address: str) -> Email:
        """To the address that came with a job, which the log must not show."""
        return self._to(address, named="the job's contact")

    def _to(self, recipient: str, *, named: str | None = None) -> Email:
        return Email(self._server, self._sender, recipient, clock=self._clock, named=named)


class _Client(smtplib.SMTP):
    """A client on a connection that the attempt can cut."""

    def __init__(self, server: Address, attempt: Attempt) -> None:
        self._server, self._attempt = server, attempt
        super().__init__(server.host)  # which connects; STARTTLS compares the certificate with this name

    def connect(self, *_: Any, **__: Any) -> tuple[int, bytes]:
        self.sock = self._attempt.connect(self._server)
        return self.getreply()


def _encrypt(client: smtplib.SMTP, server: Address) -> None:
    client.ehlo_or_helo_if_needed()
    if server.scheme == "smtps":
        return  # it was encrypted from its first byte
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


def _failure(error: smtplib.SMTPException) -> DeliveryFailed:
    """Shows only the server's codes: its words could repeat what it was sent."""
    match error:
        case smtplib.SMTPRecipientsRefused(recipients=recipients):
            [(code, _)] = recipients.values()
            return DeliveryFailed(f"the server answered {code} to the recipient", again=code < 500)
        case smtplib.SMTPAuthenticationError(smtp_code=code):
            return DeliveryFailed(f"the server answered {code} to the login", again=code < 500)
        case smtplib.SMTPResponseException(smtp_code=code):
            return DeliveryFailed(f"the server answered {code}", again=code < 500)
        case smtplib.SMTPServerDisconnected():
            return DeliveryFailed("the server closed the connection", again=True)
        case smtplib.SMTPNotSupportedError():
            return DeliveryFailed("the server offers no login, but notify.smtp_url has a user", again=False)
        case _:
            return DeliveryFailed(f"the server was not understood ({type(error).__name__})", again=False)


def compose(notice: Notice, *, sender: str, recipient: str, date: datetime) -> EmailMessage:
    """The same notice has the same Message-ID in every attempt."""
    message = EmailMessage(policy=SMTP_POLICY)
    message["From"] = sender
    message["To"] = recipient
    message["Subject"] = f"qo: job {_in_subject(notice.job_id)} waits for your confirmation"
    message["Date"] = date
    message["Message-ID"] = f"<{notice.id}@{sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"  # so that no holiday notice answers
    time = f"{notice.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    facts = {"Job": notice.job_id, "Task": notice.task, "User": notice.user, "Time": time}
    named = [*facts.items(), *notice.detail.items()]
    lines = [f"{one_line(name)}: {one_line(value)}" for name, value in named if value is not None]
    # Quoted-printable passes through servers that know only ASCII.
    message.set_content("\n".join([one_line(notice.message), "", *lines, ""]), cte="quoted-printable")
    return message


def _in_subject(job_id: str) -> str:
    """`=?` would begin an encoded word, in which a line break can hide."""
    text = " ".join(one_line(job_id).replace("=?", "= ?").split())
    return text if len(text) <= MAX_SUBJECT_JOB_CHARACTERS else text[: MAX_SUBJECT_JOB_CHARACTERS - 1] + "…"


def _checked_server(settings: NotifySettings) -> Address:
    if settings.smtp_url is None:
        because = "notify.email_to is set" if settings.email_to else "notify.email_from is set"
        raise refusal("smtp_url", "not set", f"{URL_EXPECTED}, because {because}")
    server = parse_address("smtp_url", settings.smtp_url, ports=PORTS, expected=URL_EXPECTED)
    without_secrets = shown(settings.smtp_url)
    if server.target != "/":
        raise refusal("smtp_url", f"{without_secrets} with a path", URL_EXPECTED)
    if bool(server.user) != bool(server.password):
        raise refusal("smtp_url", f"{without_secrets} with half a login", "a user and a password, or neither")
    if not (server.user + server.password).isascii():
        raise refusal("smtp_url", f"{without_secrets} with a login outside of ASCII", "a login in ASCII")
    return server


def _checked_sender(settings: NotifySettings) -> str:
    if settings.email_from is None:
        because = "notify.email_to is set" if settings.email_to else "notify.smtp_url is set"
        raise refusal("email_from", "not set", f"{ADDRESS_EXPECTED}, because {because}")
    fields = [("email_from", settings.email_from), *(("email_to", address) for address in settings.email_to)]
    for field, address in fields:
        if not PLAIN_ADDRESS.fullmatch(address):
            raise refusal(field, repr(address), ADDRESS_EXPECTED)
    return settings.email_from
