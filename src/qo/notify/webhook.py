"""A notice as a signed HTTP call."""

from __future__ import annotations

import http.client
import ssl
import sys
from base64 import b64encode
from collections.abc import Callable
from datetime import datetime

import msgspec

from qo.runtime.notify.address import Address, parse_address, refusal, shown
from qo.runtime.notify.attempt import Attempt, DeliveryFailed, network_failure
from qo.runtime.notify.notice import Notice, one_line
from qo.runtime.notify.signing import SIGNATURE_HEADER, TIMESTAMP_HEADER, signature
from qo.settings import NotifySettings

PORTS = {"http": 80, "https": 443}
URL_EXPECTED = "an address such as https://example.com/hooks/qo"
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

    def prepare(self, notice: Notice) -> Callable[[Attempt], None]:
        body = msgspec.json.encode({"id": notice.id, **msgspec.structs.asdict(notice)})
        return lambda attempt: self._post(attempt, body, self._headers(notice.id, body))

    def _headers(self, notice_id: str, body: bytes) -> dict[str, str]:
        """Nothing that a user named is in here, so there is nothing to inject a header with."""
        timestamp = str(int(self._clock().timestamp()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": USER_AGENT,
            "Connection": "close",
            "Qo-Notice-Id": notice_id,
            TIMESTAMP_HEADER: timestamp,
        }
        if self._secret is not None:
            headers[SIGNATURE_HEADER] = signature(self._secret, timestamp, body)
        if self._address.user or self._address.password:
            credentials = f"{self._address.user}:{self._address.password}".encode()
            headers["Authorization"] = f"Basic {b64encode(credentials).decode()}"
        return headers

    def _post(self, attempt: Attempt, body: bytes, headers: dict[str, str]) -> None:
        connection = self._connection(attempt)
        attempt.uses(connection)
        try:
            connection.connect()
            attempt.go_on()
            connection.request("POST", self._address.target, body, headers)
            # The status says it all; the body is left unread, so no receiver can make it long or slow.
            with connection.getresponse() as response:
                check_answer(response.status, response.getheader("Location"))
        except http.client.HTTPException as error:
            raise DeliveryFailed(f"the answer was not HTTP ({type(error).__name__})", again=True) from None
        except TimeoutError:
            raise
        except OSError as error:
            raise network_failure(error) from None
        finally:
            connection.close()

    def _connection(self, attempt: Attempt) -> http.client.HTTPConnection:
        host, port, timeout = self._address.host, self._address.port, attempt.socket_timeout_secs
        if self._address.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=timeout)
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=ssl.create_default_context())


def check_answer(status: int, location: str | None) -> None:
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
    if settings.webhook_secret == "":
        raise refusal("webhook_secret", "empty", "a long random text, or none for calls without a signature")
    address = parse_address("webhook_url", settings.webhook_url, ports=PORTS, expected=URL_EXPECTED)
    if (address.user or address.password) and address.scheme == "http" and not address.is_loopback:
        raise refusal(
            "webhook_url",
            f"{shown(settings.webhook_url)} with a user and password",
            "https, because http would show them to the network",
        )
    return address
