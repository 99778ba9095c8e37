"""Webhook signatures after the Standard Webhooks specification (standardwebhooks.com).

    webhook-id: 5f0c…                  the notice's id, the same in every repeat
    webhook-timestamp: 1767225600      seconds since 1970
    webhook-signature: v1,<base64 of HMAC-SHA256(key, id + "." + timestamp + "." + body)>

A secret that begins with `whsec_` is the key in base64. Any other text is the key itself.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime

from qo.clock import system_now
from qo.errors import InvalidValue
from qo.policy.checks import check_seconds, shown

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"
ENCODED_KEY = "whsec_"
TIMESTAMP = re.compile("[0-9]{1,12}")


def call_headers(secret: str | None, notice_id: str, sent_at: datetime, body: bytes) -> dict[str, str]:
    """The headers of a call, unsigned without a secret. Raises `InvalidValue` for a secret that is no key."""
    headers = {ID_HEADER: notice_id, TIMESTAMP_HEADER: str(int(sent_at.timestamp()))}
    if secret is not None:
        headers[SIGNATURE_HEADER] = signature_of(signing_key(secret), notice_id, headers[TIMESTAMP_HEADER], body)
    return headers


def verify(
    secret: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: datetime | None = None,
    tolerance_secs: float = 300,
) -> bool:
    """Whether these headers (names in any case) sign this body, as received, at most `tolerance_secs` from `now`, which
    is this machine's time unless it is given.

    Returns False for missing or malformed headers, and raises `InvalidValue` for a secret that is no key. The time
    it takes does not depend on where a wrong signature differs. A call can be repeated inside the tolerance: drop
    calls whose `webhook-id` was seen before.
    """
    _check_call(secret, headers, body, now=now)
    check_seconds("tolerance_secs", tolerance_secs)
    key = signing_key(secret)
    given = {name.lower(): value for name, value in headers.items()}
    timestamp = given.get(TIMESTAMP_HEADER, "")
    if not TIMESTAMP.fullmatch(timestamp):
        return False
    expected = signature_of(key, given.get(ID_HEADER, ""), timestamp, body).encode()
    # Several signatures, parted by spaces, are how the specification lets a sender change its secret.
    received = given.get(SIGNATURE_HEADER, "").encode(errors="replace").split(b" ")
    authentic = any(hmac.compare_digest(expected, one) for one in received)
    return authentic and abs((now or system_now()).timestamp() - int(timestamp)) <= tolerance_secs


def _check_call(secret: object, headers: object, body: object, *, now: object) -> None:
    if not isinstance(secret, str) or not secret:
        raise InvalidValue("secret is empty or no text; give the text that is set as notify.webhook_secret.")
    if not isinstance(headers, Mapping) or not all(isinstance(text, str) for pair in headers.items() for text in pair):
        raise InvalidValue(f"headers is {shown(headers)}; give a mapping of header names to texts.")
    if not isinstance(body, bytes):
        raise InvalidValue(f"body is {shown(body)}; give the bytes of the request as they were received.")
    if now is not None and (not isinstance(now, datetime) or now.utcoffset() is None):
        raise InvalidValue(f"now is {shown(now)}; give a datetime with a time zone, such as UTC, or leave it out.")


def signing_key(secret: str) -> bytes:
    """The key that a secret stands for. Raises `InvalidValue`."""
    key = secret.encode()
    if secret.startswith(ENCODED_KEY):
        encoded = secret.removeprefix(ENCODED_KEY)
        padding = "=" * (-len(encoded) % 4)  # which the specification's own libraries do without
        try:
            key = b64decode(encoded + padding, validate=True)
        except ValueError:
            raise InvalidValue("secret begins with whsec_, but what follows is not base64.") from None
    if not key:
        # With an empty key anybody could sign: most likely a variable that was never set.
        raise InvalidValue("secret is empty; use the text that notify.webhook_secret has.")
    return key


def signature_of(key: bytes, notice_id: str, timestamp: str, body: bytes) -> str:
    # A received id may hold anything; one that no sender can have written signs nothing.
    signed = f"{notice_id}.{timestamp}.".encode(errors="replace") + body
    return "v1," + b64encode(hmac.digest(key, signed, "sha256")).decode()
