"""What a receiver of signed calls can rely on."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from notifying import NOW, SECRET

from qo.errors import InvalidValue
from qo.runtime.notifier import signature, verify


def signed(body: bytes = b"{}", *, at: datetime = NOW) -> dict[str, str]:
    timestamp = str(int(at.timestamp()))
    return {"Qo-Timestamp": timestamp, "Qo-Signature": signature(SECRET, timestamp, body)}


def test_a_signature_is_a_documented_hmac():
    # printf '1767323045.{}' | openssl dgst -sha256 -hmac webhook-s3cret
    assert signature(SECRET, "1767323045", b"{}") == (
        "v1=c104e6bdfa18f116615e8738927cfc31da4363d7202f738df21e884afe208196"
    )


def test_header_names_are_found_in_any_case():
    assert verify(SECRET, {name.upper(): value for name, value in signed().items()}, b"{}", now=NOW)
    assert verify(SECRET, {name.lower(): value for name, value in signed().items()}, b"{}", now=NOW)


@pytest.mark.parametrize(("seconds_off", "fresh"), [(0, True), (300, True), (-300, True), (301, False), (-301, False)])
def test_a_signature_is_good_for_five_minutes_either_way(seconds_off, fresh):
    assert verify(SECRET, signed(), b"{}", now=NOW + timedelta(seconds=seconds_off)) is fresh


def test_another_tolerance_can_be_asked_for():
    assert not verify(SECRET, signed(), b"{}", now=NOW + timedelta(seconds=11), tolerance_secs=10)


@pytest.mark.parametrize(
    "changes",
    [
        {"Qo-Signature": ""},
        {"Qo-Signature": "v1="},
        {"Qo-Signature": signed()["Qo-Signature"].removeprefix("v1=")},
        {"Qo-Signature": signed()["Qo-Signature"].replace("v1", "v2")},
        {"Qo-Signature": "v1=é\udcff"},
        {"Qo-Timestamp": str(int(NOW.timestamp()) + 1)},
        {"Qo-Timestamp": ""},
    ],
)
def test_a_missing_changed_or_malformed_header_is_no_signature(changes):
    assert verify(SECRET, signed(), b"{}", now=NOW)
    assert not verify(SECRET, signed() | changes, b"{}", now=NOW)
    assert not verify(SECRET, {}, b"{}", now=NOW)


@pytest.mark.parametrize("timestamp", ["", "now", "١٧٦٧٣٢٣٠٤٥", " 1767323045", "1767323045.0", "-1", "9" * 5000])
def test_a_signed_time_that_is_no_time_is_no_signature(timestamp):
    headers = {"Qo-Timestamp": timestamp, "Qo-Signature": signature(SECRET, timestamp, b"{}")}

    assert not verify(SECRET, headers, b"{}", now=NOW)


def test_an_empty_secret_signs_and_verifies_nothing():
    with pytest.raises(InvalidValue, match="secret is empty"):
        verify("", signed(), b"{}", now=NOW)
