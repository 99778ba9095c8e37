"""Signatures of webhook calls, as senders make and receivers verify them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from qo.errors import InvalidValue
from qo.notify.signing import call_headers, signature_of, signing_key, verify
from tests.notify.notifying import NOW, SECRET

ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
ENCODED = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PAYLOAD = b'{"test": 2432232314}'


def signed(body: bytes = b"{}", *, secret: str = SECRET) -> dict[str, str]:
    return call_headers(secret, ID, NOW, body)


def test_a_call_is_signed_as_the_specification_shows() -> None:
    """The example of Svix, whose scheme the specification took over and whose libraries verify it."""
    headers = call_headers(ENCODED, ID, datetime.fromtimestamp(1614265330, UTC), PAYLOAD)

    assert headers == {
        "webhook-id": ID,
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_a_secret_without_a_prefix_is_the_key_itself() -> None:
    # printf 'msg_p5jXN8AQM9LWM0D4loKWxJek.1767323045.{}' | openssl dgst -sha256 -hmac webhook-s3cret -binary | base64
    assert signed()["webhook-signature"] == "v1,tgLWvJkIboI36JohYTYyzB8Vg11utlt+pirQzfBI4hs="


@pytest.mark.parametrize("secret", [SECRET, ENCODED, "whsec_AQI", "whsec_AQI="])
def test_every_form_of_a_secret_signs_and_verifies(secret: str) -> None:
    assert verify(secret, signed(secret=secret), b"{}", now=NOW)
    assert not verify(secret, signed(secret="whsec_AQIB"), b"{}", now=NOW)


def test_one_good_signature_among_several_is_enough() -> None:
    good = signed()["webhook-signature"]

    assert verify(SECRET, signed() | {"webhook-signature": f"v1a,x v1,AAAA {good}"}, b"{}", now=NOW)
    assert not verify(SECRET, signed() | {"webhook-signature": "v1,AAAA v1,BBBB"}, b"{}", now=NOW)


def test_header_names_are_found_in_any_case() -> None:
    assert verify(SECRET, {name.upper(): value for name, value in signed().items()}, b"{}", now=NOW)
    assert verify(SECRET, {name.lower(): value for name, value in signed().items()}, b"{}", now=NOW)


@pytest.mark.parametrize(("seconds_off", "fresh"), [(0, True), (300, True), (-300, True), (301, False), (-301, False)])
def test_a_signature_is_good_for_five_minutes_either_way(seconds_off: int, fresh: bool) -> None:
    assert verify(SECRET, signed(), b"{}", now=NOW + timedelta(seconds=seconds_off)) is fresh


def test_another_tolerance_can_be_asked_for() -> None:
    assert not verify(SECRET, signed(), b"{}", now=NOW + timedelta(seconds=11), tolerance_secs=10)


@pytest.mark.parametrize(
    "changes",
    [
        {"webhook-id": "another"},
        {"webhook-id": "\udcff"},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,"},
        {"webhook-signature": signed()["webhook-signature"].removeprefix("v1,")},
        {"webhook-signature": signed()["webhook-signature"].replace("v1", "v2")},
        {"webhook-signature": "v1,é\udcff"},
        {"webhook-timestamp": str(int(NOW.timestamp()) + 1)},
        {"webhook-timestamp": ""},
    ],
)
def test_a_missing_changed_or_malformed_header_is_no_signature(changes: dict[str, str]) -> None:
    assert verify(SECRET, signed(), b"{}", now=NOW)
    assert not verify(SECRET, signed() | changes, b"{}", now=NOW)
    assert not verify(SECRET, {}, b"{}", now=NOW)


@pytest.mark.parametrize("timestamp", ["", "now", "١٧٦٧٣٢٣٠٤٥", " 1767323045", "1767323045.0", "-1", "9" * 5000])
def test_a_signed_time_that_is_no_time_is_no_signature(timestamp: str) -> None:
    signature = signature_of(signing_key(SECRET), ID, timestamp, b"{}")
    headers = {"webhook-id": ID, "webhook-timestamp": timestamp, "webhook-signature": signature}

    assert not verify(SECRET, headers, b"{}", now=NOW)


@pytest.mark.parametrize(("secret", "sentence"), [("", "empty"), ("whsec_", "empty"), ("whsec_?", "not base64")])
def test_a_secret_that_is_no_key_signs_and_verifies_nothing(secret: str, sentence: str) -> None:
    with pytest.raises(InvalidValue, match=sentence):
        verify(secret, signed(), b"{}", now=NOW)
    with pytest.raises(InvalidValue, match=sentence):
        signed(secret=secret)
