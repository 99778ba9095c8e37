"""What holds for every text: redacting is final, known secrets never remain, and it never takes long."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qo.policy.redact.redact import redact

ANY_TEXT = st.text(st.characters(exclude_categories=()))
FRAGMENTS = st.sampled_from(
    [
        *"=:\\'\" \n\t,;&/~@.-_()[]{}<>`xS1\0\ud800éİ",
        *("password", "token", "api_key", "hunter2", "[secret]", "[address]", "--", "://", "::", "%40", "?key="),
        *("Bearer ", "Authorization: ", "Cookie:", "identified by ", "[parameters: ", "\n  ", "input_value="),
        *("/home/", "/root", "C:\\Users\\", "file://", "10.0.0.1", ":80", "fe80::", "00:11:22:33:44:55", "a.b"),
        *(".local", "version ", "sha256:", "deadbeef" * 5, "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dX3"),
        *(
            "ey" + "Jabcdefghijklm",
            "gh" + "p_" + "a1B2" * 9,
            "-----BEGIN PRIVATE " + "KEY-----",
            "-----END PRIVATE KEY-----",
        ),
    ]
)
TEXTS = st.lists(FRAGMENTS | ANY_TEXT, max_size=16).map("".join)


@given(text=TEXTS, secrets=st.lists(FRAGMENTS | ANY_TEXT, max_size=3))
def test_redacting_again_changes_nothing(text: str, secrets: list[str]) -> None:
    shown = redact(text, secrets=secrets)

    assert redact(shown, secrets=secrets) == shown


@given(text=TEXTS)
def test_a_text_that_was_not_made_to_confuse_settles(text: str) -> None:
    assert redact(text) != "[removed]" or text == "[removed]"


@given(text=TEXTS, secrets=st.lists(FRAGMENTS | ANY_TEXT.filter(bool), min_size=1, max_size=3), data=st.data())
def test_known_secrets_never_remain(text: str, secrets: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    planted = text[:at] + data.draw(st.sampled_from(secrets)) + text[at:]

    between_our_words = re.split(r"\[(?:secret|address|e-mail|removed)\]", redact(planted, secrets=secrets))

    assert not [(secret, piece) for secret in secrets for piece in between_our_words if secret in piece]


REPEATED = {
    "one letter": "a",
    "spaces": " ",
    "line ends": "\n",
    "words": "division by zero in line 3. ",
    "dashes": "-",
    "quotes": "'",
    "backslashes": "\\",
    "colons": ":",
    "names without values": "password_",
    "names and values": "password=x ",
    "names in capitals": "KEY_",
    "names and quotes": "password='",
    "escaped quotes": '\\"password\\": \\"a',
    "names and lines": "password\n  input_value",
    "options": " --password",
    "pairs": "('password', ",
    "headers": "cookie:\\",
    "schemes": "a://",
    "users in URLs": "a://a:a@",
    "users without hosts": "://a:a",
    "keys without end": "-----BEGIN PRIVATE ",
    "web tokens": " eyJabcdefghijk",
    "token beginnings": "sk-",
    "almost random": "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1d ",
    "random": "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dX3/",
    "home folders": "/home/a b C:\\Users\\a b ",
    "dots": "a.",
    "at signs": "a@",
    "addresses": "1.2.3.4 1:2::3 00:11:22:33:44:55 a.local ",
    "brackets": "token=(",
    "everything": "key=pass://a:b@1.2.3.4 /home/a 'token': input_value= a.local Bearer ~b eyJ [parameters:\n",
}
BEGINNINGS = ["password='", "password=", "Cookie: ", "https://a:", "https://", "token=[", "C:\\Users\\", "--token '"]
MEGABYTE = 1_000_000
SIZES = [pytest.param(MEGABYTE // 10, id="100 kB"), pytest.param(MEGABYTE, id="1 MB", marks=pytest.mark.nightly)]


def assert_takes_a_moment(text: str) -> None:
    """About half a second a megabyte, here with room for a slow machine. Growing with the square, it would be hours."""
    redact("password=x")  # compiles the patterns

    began = time.process_time()
    redact(text)

    assert time.process_time() - began < 0.5 + 2.0 * len(text) / MEGABYTE


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", REPEATED)
def test_a_long_text_takes_a_moment_whatever_is_in_it(kind: str, size: int) -> None:
    assert_takes_a_moment(REPEATED[kind] * (size // len(REPEATED[kind])))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("beginning", BEGINNINGS)
@pytest.mark.parametrize("unit", ["a", "\\", ",a", "a:", "@b", "'", "a/", "a "])
def test_a_long_value_takes_a_moment_whatever_is_in_it(beginning: str, unit: str, size: int) -> None:
    assert_takes_a_moment(beginning + unit * (size // len(unit)))
