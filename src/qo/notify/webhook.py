"""A notice as a signed HTTP call."""

from __future__ import annotations

import http.client
import sys
from base64 import b64encode
from collections.abc import Callable
from datetime import datetime

import msgspec

from qo.errors import InvalidValue
from qo.notify.address import Address, parse_address, refusal, shown
from qo.notify.attempt import Attempt, DeliveryFailed
from qo.notify.notice import Notice, one_line
from qo.notify.signing import ENCODED_KEY, call_headers, signing_key
from qo.settings import NotifySettings

PORTS = {"http": 80, "https": 443}
URL_EXPECTED = "an address such as https://example.com/hooks/qo"
SECRET_EXPECTED = "a long random text, or none for calls without a signature"
# Looked up, not imported: the package's front names all layers, so importing it from here would point upwards.
USER_AGENT = f"qo/{sys.modules['qo'].__version__}"
WORTH_ANOTHER_ATTEMPT = frozenset({408, 429})  # and everything from 500


class Webhook:
    """Posts notices to one address, which may be private: the operator chose it. Proxies are not used.

    Without a secret calls are unsigned. A user and password in the address become Basic auth.
    """

    def __init__(self, settings: NotifySettings, *, clock: Callable[[], datetime]) -> None:
        """Raises `SettingsError`."""
        self._address = _checked_address(settings)
        self._secret = settings.webhook_secret
        self._clock = clock
        self.name = f"the webhook at {self._address.origin}"

    def deliver(self, notice: Notice, attempt: Attempt) -> None:
        body = msgspec.json.encode({"id": notice.id, **msgspec.structs.asdict(notice)})
        connection = http.client.HTTPConnection(self._address.host, self._address.port)
        connection.default_port = PORTS[self._address.scheme]  # which the header Host leaves out
        connection.sock = attempt.connect(self._address)
        try:
            connection.request("POST", self._address.target, body, self._headers(notice.id, body))
            # Only the status counts; the body is left unread, so no receiver can make it long or slow.
            with connection.getresponse() as response:
                _check_answer(response.status, response.getheader("Location"))
        except http.client.HTTPException as error:
            raise DeliveryFailed(f"the answer was not HTTP ({type(error).__name__})", again=True) from None
        finally:
            connection.close()

    def _headers(self, notice_id: str, body: bytes) -> dict[str, str]:
        """No text that a user chose is in here, so nobody can inject a header."""
        headers = {
            "Content-Type": "application/json",
            "User-Agent": USER_AGENT,
            "Connection": "close",
            **call_headers(self._secret, notice_id, self._clock(), body),
        }
        if self._address.user or self._address.password:
            credentials = f"{self._address.user}:{self._address.password}".encode()
            headers["Authorization"] = f"Basic {b64encode(credentials).decode()}"
        return headers


def _check_answer(status: int, location: str | None) -> None:
    """Raises `DeliveryFailed` unless the notice was accepted."""
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        # Following one could lead the call, and its signature, to a place that the operator did not choose.
        towards = f" to {one_line(shown(location))}" if location and "://" in location else ""
        raise DeliveryFailed(
            f"it answered {status}, a redirect{towards}, and redirects are not followed; "
            "configure the final address as notify.webhook_url",
            again=False,
        )
    raise DeliveryFailed(f"it answered {status}", again=status in WORTH_ANOTHER_ATTEMPT or status >= 500)


def _checked_address(settings: NotifySettings) -> Address:
    if settings.webhook_url is None:
        raise refusal("webhook_url", "not set", f"{URL_EXPECTED}, because notify.webhook_secret is set")
    if settings.webhook_secret is not None:
        _check_secret(settings.webhook_secret)
    address = parse_address("webhook_url", settings.webhook_url, ports=PORTS, expected=URL_EXPECTED)
    if (address.user or address.password) and address.scheme == "http" and not address.is_loopback:
        raise refusal(
            "webhook_url",
            f"{shown(settings.webhook_url)} with a user and password",
            "https, because http would show them to the network",
        )
    return address


def _check_secret(secret: str) -> None:
    try:
        signing_key(secret)
    except InvalidValue:
        problem = "not base64 after whsec_" if secret.removeprefix(ENCODED_KEY) else "empty"
        raise refusal("webhook_secret", problem, SECRET_EXPECTED) from None
