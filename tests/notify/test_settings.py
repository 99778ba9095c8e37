"""Which settings of [notify] make a notifier, and which are refused, without showing a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qo.errors import SettingsError
from qo.notify.notifier import Notifier
from qo.settings import NotifySettings, load_settings
from tests.notify.notifying import PASSWORD, SECRET

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
    (
        {"webhook_url": "https://example.com", "webhook_secret": "whsec_s3cret!"},
        "notify.webhook_secret is not base64 after whsec_; "
        "expected a long random text, or none for calls without a signature.",
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
        {"smtp_url": "smtp://mail.example.com"},
        f"notify.email_from is not set; {ADDRESS_EXPECTED}, because notify.smtp_url is set.",
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
def test_half_or_wrongly_configured_channels_are_refused_without_showing_a_secret(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SettingsError) as refusal:
        Notifier(NotifySettings(**settings))

    assert str(refusal.value) == sentence
    assert "s3c" not in sentence


@pytest.mark.parametrize(
    ("settings", "channels"),
    [
        ({}, []),
        (MAIL, ["e-mail to ann@example.com through smtp://mail.example.com:587"]),
        ({**MAIL, "email_to": ()}, []),
        ({**MAIL, "smtp_url": "smtps://u:p@[::1]:465/"}, ["e-mail to ann@example.com through smtps://[::1]:465"]),
        ({"webhook_url": "https://example.com"}, ["the webhook at https://example.com:443"]),
        (
            {"webhook_url": "http://10.0.0.1:8080/hook", "webhook_secret": SECRET},
            ["the webhook at http://10.0.0.1:8080"],
        ),
        ({"webhook_url": "http://u:p@localhost/hook"}, ["the webhook at http://localhost:80"]),
        ({"webhook_url": "http://u:p@[::1]:80/hook"}, ["the webhook at http://[::1]:80"]),
        (
            {"webhook_url": "https://u:p@example.com/hook", **MAIL},
            ["the webhook at https://example.com:443", "e-mail to ann@example.com through smtp://mail.example.com:587"],
        ),
    ],
)
def test_whole_channels_are_accepted(
    settings: dict[str, str | tuple[str, ...]] | dict[str, str], channels: list[str]
) -> None:
    notifier = Notifier(NotifySettings(**settings))

    assert [channel.name for channel in notifier.channels()] == channels


@pytest.mark.parametrize("recipients", [(), ("ann@example.com",)])
def test_a_contact_takes_the_place_of_the_recipients_and_the_log_does_not_name_it(recipients: tuple[str, ...]) -> None:
    settings: dict[str, Any] = {**MAIL, "email_to": recipients, "webhook_url": "https://example.com"}
    notifier = Notifier(NotifySettings(**settings))

    assert [channel.name for channel in notifier.channels("bob@example.com")] == [
        "the webhook at https://example.com:443",
        "e-mail to the job's contact through smtp://mail.example.com:587",
    ]


def test_without_a_mail_server_a_contact_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    notifier = Notifier(NotifySettings(webhook_url="https://example.com"))

    for _ in range(2):
        channels = notifier.channels("bob@example.com")

    assert [channel.name for channel in channels] == ["the webhook at https://example.com:443"]
    assert caplog.messages == [
        "a job has a contact, but no e-mail can be sent; set notify.smtp_url and notify.email_from"
    ]


def test_the_section_is_read_from_the_file(tmp_path: Path) -> None:
    (tmp_path / ".qo.toml").write_text('[notify]\nemail_to = ["ann@example.com"]\nattempts = 5')

    settings = load_settings(directory=tmp_path, environ={"QO_NOTIFY__WEBHOOK_URL": "https://example.com"})

    expected = NotifySettings(email_to=("ann@example.com",), attempts=5, webhook_url="https://example.com")
    assert settings.notify == expected


def test_printed_settings_show_no_secret() -> None:
    settings = NotifySettings(webhook_url="https://h/s3cret", webhook_secret=SECRET, smtp_url=f"smtp://u:{PASSWORD}@h")

    assert "s3cret" not in f"{settings!r} {settings} {settings.__rich_repr__()}"
    assert "webhook_secret='(hidden)'" in repr(settings)
    assert "webhook_secret=None" in repr(NotifySettings())
