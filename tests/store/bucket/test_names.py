"""Urls of buckets, and the keys of slots: what is refused, and that no name reaches another's key."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qo.errors import SettingsError
from qo.store.bucket.address import parse_bucket_url
from qo.store.bucket.keys import MAX_SLOTS, encoded, group_folder, limit_key, slot_key, slot_of
from qo.store.bucket.room import slots_to_try

WITHOUT_THE_DRIVER = """
import sys
sys.modules["obstore"] = None
import qo.store.bucket
"""


def test_a_url_names_bucket_prefix_and_endpoint() -> None:
    address = parse_bucket_url("s3://limits/team/a/?endpoint=http://127.0.0.1:9000&region=eu-west-1")

    assert (address.bucket, address.prefix, address.options) == ("limits", "team/a", {"region": "eu-west-1"})
    assert address.plain_http
    assert str(address) == "s3://limits/team/a at http://127.0.0.1:9000"


@pytest.mark.parametrize("url", ["s3://limits", "gs://limits/x", "az://limits/x/y", "s3://limits/?endpoint=https://h"])
def test_plain_http_is_spoken_only_to_an_endpoint_that_asks_for_it(url: str) -> None:
    assert not parse_bucket_url(url).plain_http


def test_the_endpoint_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")

    assert parse_bucket_url("s3://limits").plain_http
    assert not parse_bucket_url("s3://limits?endpoint=https://elsewhere").plain_http


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3:///prefix",
        "s4://bucket",
        "file:///tmp",
        "s3://user:secret@bucket/x",
        "s3://bucket/..",
        "s3://bucket/a/../b",
        "s3://bucket/a/%2e%2e/b",
        "s3://bucket/a//b",
        "s3://bucket/a b",
        "s3://bucket/é",
        "s3://bucket/x#y",
        "s3://bucket?endpoint=ftp://secret",
        "s3://bucket?endpoint=http://user:secret@host",
        "s3://bucket?secret",
        "s3://bucket?password=secret",
        "gs://bucket?region=secret",
    ],
)
def test_a_url_that_is_not_understood_is_refused_without_telling_its_secrets(url: str) -> None:
    with pytest.raises(SettingsError, match=r"concurrency\.store") as refused:
        parse_bucket_url(url)

    assert "secret" not in str(refused.value).replace("secret_access_key", "")


def test_secrets_of_a_url_are_in_no_text_of_the_address() -> None:
    address = parse_bucket_url("s3://limits?secret_access_key=hidden&access_key_id=hidden")

    assert "hidden" not in f"{address} {address!r}"


def test_usual_names_are_readable_in_the_bucket() -> None:
    assert slot_key("provider:ollama", 3) == "concurrency/provider:ollama/slots/3"
    assert limit_key("call_external-api.v2") == "concurrency/call_external-api.v2/limit"


@given(st.text(min_size=1, max_size=250), st.text(min_size=1, max_size=250))
def test_two_names_never_share_a_key(one: str, other: str) -> None:
    assert (encoded(one) == encoded(other)) == (one == other)


ODD_NAMES = ["..", ".", "a/b", "a/slots/0", "../other", "a%2Fb", "a=2Fb", "~", "\\", "é/ü", "a b", "💥" * 250]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_name_is_one_part_of_a_key_and_no_step(name: str) -> None:
    part = encoded(name)

    assert part.isascii()
    assert not part.startswith(".")
    assert not set("/%\\ ?#&") & set(part)
    assert len(slot_key(name, MAX_SLOTS)) < 600


@given(st.text(max_size=20))
def test_only_a_plain_number_is_a_slot(text: str) -> None:
    found = slot_of("g", f"{group_folder('g')}/slots/{text}")

    assert found is None or str(found) == text


def test_below_the_limit_every_free_slot_may_be_tried() -> None:
    assert slots_to_try(4, {1, 3}) == [0, 2]


@given(st.integers(0, 6), st.sets(st.integers(0, 9)))
def test_contenders_who_saw_the_same_fill_the_group_and_never_overfill_it(limit: int, held: set[int]) -> None:
    candidates = slots_to_try(limit, held)

    assert len(held | set(candidates)) <= max(limit, len(held))
    assert bool(candidates) == (len(held) < limit)


def test_without_its_driver_the_error_says_what_to_install() -> None:
    told = subprocess.run([sys.executable, "-c", WITHOUT_THE_DRIVER], capture_output=True, text=True).stderr

    assert "SettingsError" in told
    assert "install it with: pip install 'qo-queue[s3]'." in told
