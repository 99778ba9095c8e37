"""How a receiver knows that a webhook call comes from its own qo, and is fresh.

    Qo-Timestamp: 1767225600                     seconds since 1970
    Qo-Signature: v1=<hex of HMAC-SHA256(secret, timestamp + "." + body)>

The body's `id` (also in `Qo-Notice-Id`, which is not signed) is the same in every repeat of a notice.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from datetime import datetime

from qo.errors import InvalidValue

TIMESTAMP_HEADER = "Qo-Timestamp"
SIGNATURE_HEADER = "Qo-Signature"
TIMESTAMP = re.compile("[0-9]{1,12}")


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """The value of `Qo-Signature` for this body, sent at this time."""
    if not secret:
        # With an empty key anybody could sign: most likely a variable that was never set.
        raise InvalidValue("secret is empty; use the text that notify.webhook_secret has.")
    return "v1=" + hmac.digest(secret.encode(), timestamp.encode() + b"." + body, "sha256").hex()


def verify(secret: str, headers: Mapping[str, str], body: bytes, *, now: datetime, tolerance_secs: float = 300) -> bool:
    """Whether these headers (names in any case) sign this body, as received, at most `tolerance_secs` from `now`.

    Missing or malformed headers are False. Takes the same time wherever a wrong signature differs.
    A call can be repeated inside the tolerance: drop those whose body has an `id` seen before.
    """
    given = {name.lower(): value for name, value in headers.items()}
    timestamp = given.get(TIMESTAMP_HEADER.lower(), "")
    if not TIMESTAMP.fullmatch(timestamp):
        return False
    expected = signature(secret, timestamp, body)
    received = given.get(SIGNATURE_HEADER.lower(), "")
    authentic = hmac.compare_digest(expected.encode(), received.encode(errors="replace"))
    return authentic and abs(now.timestamp() - int(timestamp)) <= tolerance_secs
