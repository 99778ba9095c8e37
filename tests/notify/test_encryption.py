"""Certificates, STARTTLS and logins: a notice goes only to servers that prove who they are."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qo.notify.notifier import Notifier
from tests.notify.local_servers import Mailbox, Receiver, mail_server, serving
from tests.notify.notifying import LOGIN, NOT_DELIVERED, NOTICE, PASSWORD, SECRET, Pauses, mail_settings


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and self-signed certificate for this machine and for `mail.test`, in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        # In CI nobody reads the reason of a skip, and what was never tested would pass.
        give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        give_up("there is no openssl on the PATH to make a certificate with, so TLS stays untested here")
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

    def getaddrinfo(host: str, *arguments: Any, **options: Any) -> Any:
        return look_up("127.0.0.1" if host == "mail.test" else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return "mail.test"


# Webhook calls


async def test_https_is_used_with_a_certificate_that_is_trusted(
    notifier: Callable[..., Notifier], tls: ssl.SSLContext, trusted: None, errors: Callable[[], list[str]]
) -> None:
    with serving(Receiver()) as receiver:
        receiver.socket = tls.wrap_socket(receiver.socket, server_side=True)
        await notifier(webhook_url=receiver.url.replace("http", "https")).send(NOTICE)

        assert len(receiver.bodies) == 1
    assert errors() == []


async def test_a_certificate_that_is_not_trusted_gets_no_call(
    notifier: Callable[..., Notifier], tls: ssl.SSLContext, pauses: Pauses, errors: Callable[[], list[str]]
) -> None:
    with serving(Receiver()) as receiver:
        receiver.socket = tls.wrap_socket(receiver.socket, server_side=True)
        await notifier(webhook_url=receiver.url.replace("http", "https"), webhook_secret=SECRET).send(NOTICE)

        assert receiver.bodies == []
    assert pauses == []
    assert "its certificate is not trusted (self-signed certificate)" in errors()[0]


# Mail


async def test_mail_is_encrypted_and_logged_in_where_the_server_offers_it(
    notifier: Callable[..., Notifier], tls: ssl.SSLContext, errors: Callable[[], list[str]]
) -> None:
    mailbox = Mailbox()
    options: dict[str, Any] = {"tls_context": tls, "auth_required": True, "authenticator": mailbox.authenticate}
    async with mail_server(mailbox, **options) as port:
        await notifier(**mail_settings(port, login=LOGIN)).send(NOTICE)

    assert errors() == []
    assert mailbox.encrypted == [True]
    assert mailbox.logins == ["ann@example.com"]


async def test_on_this_machine_mail_may_go_unencrypted(
    notifier: Callable[..., Notifier], errors: Callable[[], list[str]]
) -> None:
    mailbox = Mailbox()
    options: dict[str, Any] = {"auth_require_tls": False, "authenticator": mailbox.authenticate}
    async with mail_server(mailbox, **options) as port:
        await notifier(**mail_settings(port, login=LOGIN)).send(NOTICE)

    assert errors() == []
    assert (mailbox.encrypted, mailbox.logins) == ([False], ["ann@example.com"])


async def test_a_server_elsewhere_gets_nothing_without_starttls(
    remote_name: str, notifier: Callable[..., Notifier], pauses: Pauses, errors: Callable[[], list[str]]
) -> None:
    mailbox = Mailbox()
    options: dict[str, Any] = {"auth_require_tls": False, "authenticator": mailbox.authenticate}
    async with mail_server(mailbox, **options) as port:
        await notifier(**mail_settings(port, host=remote_name, login=LOGIN)).send(NOTICE)

    assert (mailbox.logins, mailbox.envelopes, pauses) == ([], [], [])
    assert "the server offers no STARTTLS, and mail goes unencrypted only to this machine" in errors()[0]


async def test_a_server_elsewhere_with_a_trusted_certificate_gets_the_mail(
    remote_name: str,
    notifier: Callable[..., Notifier],
    tls: ssl.SSLContext,
    trusted: None,
    errors: Callable[[], list[str]],
) -> None:
    mailbox = Mailbox()
    options: dict[str, Any] = {"tls_context": tls, "require_starttls": True, "authenticator": mailbox.authenticate}
    async with mail_server(mailbox, **options) as port:
        await notifier(**mail_settings(port, host=remote_name, login=LOGIN)).send(NOTICE)

    assert errors() == []
    assert mailbox.encrypted == [True]


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
async def test_a_server_elsewhere_with_another_certificate_gets_nothing(
    remote_name: str,
    notifier: Callable[..., Notifier],
    tls: ssl.SSLContext,
    pauses: Pauses,
    errors: Callable[[], list[str]],
    scheme: str,
) -> None:
    mailbox = Mailbox()
    options: dict[str, Any] = {"tls": tls} if scheme == "smtps" else {"tls_context": tls}
    async with mail_server(mailbox, authenticator=mailbox.authenticate, **options) as port:
        await notifier(**mail_settings(port, host=remote_name, login=LOGIN, scheme=scheme)).send(NOTICE)

    assert (mailbox.logins, mailbox.envelopes, pauses) == ([], [], [])
    assert "its certificate is not trusted (self-signed certificate)" in errors()[0]


async def test_smtps_is_encrypted_from_the_first_byte(
    notifier: Callable[..., Notifier], tls: ssl.SSLContext, trusted: None, errors: Callable[[], list[str]]
) -> None:
    mailbox = Mailbox()
    options: dict[str, Any] = {"auth_require_tls": False, "authenticator": mailbox.authenticate}
    async with mail_server(mailbox, tls=tls, **options) as port:
        await notifier(**mail_settings(port, login=LOGIN, scheme="smtps")).send(NOTICE)

    assert errors() == []
    assert mailbox.logins == ["ann@example.com"]
    assert len(mailbox.messages) == 1


async def test_a_refused_login_is_not_repeated(
    notifier: Callable[..., Notifier], pauses: Pauses, errors: Callable[[], list[str]]
) -> None:
    mailbox = Mailbox()
    options: dict[str, Any] = {"auth_require_tls": False, "authenticator": mailbox.authenticate}
    async with mail_server(mailbox, **options) as port:
        await notifier(**mail_settings(port, login=f"ann:not-{PASSWORD}@")).send(NOTICE)

    assert pauses == []
    assert errors() == [
        f"{NOT_DELIVERED} e-mail to ann@example.com through smtp://127.0.0.1:{port}: "
        "the server answered 535 to the login."
    ]


async def test_a_login_for_a_server_that_offers_none_is_not_repeated(
    notifier: Callable[..., Notifier], pauses: Pauses, errors: Callable[[], list[str]]
) -> None:
    async with mail_server(Mailbox(), auth_exclude_mechanism=["LOGIN", "PLAIN"]) as port:
        await notifier(**mail_settings(port, login=LOGIN)).send(NOTICE)

    assert pauses == []
    assert "the server offers no login, but notify.smtp_url has a user" in errors()[0]
