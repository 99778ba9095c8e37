"""Changes that a page of another site made a browser send."""

from __future__ import annotations

from itertools import product

import pytest

from qo.service.access.gate import Gate
from qo.service.access.keys import Keys
from qo.service.access.refused import Refused
from qo.service.access.sessions import Sessions
from tests.service.access.gate.asking import LOCAL_COOKIE, OURS, MakeGate, bearer, status
from tests.service.access.requests import request
from tests.service.access.staging import Time

FETCH_SITES = [None, "same-origin", "same-site", "cross-site", "none"]
ORIGINS = [None, OURS, "http://evil.example", "null"]


def expected_status(
    *, method: str, credentials: str, fetch_site: str | None, origin: str | None, has_csrf: bool
) -> int:
    """The rules of HTTP.md, sentence by sentence."""
    if credentials == "wrong key":
        return 401
    if credentials != "key" and method not in ("GET", "HEAD", "OPTIONS"):
        if fetch_site is not None and fetch_site != "same-origin":
            return 403
        if origin is not None and origin != OURS:
            return 403
        if credentials == "cookie" and fetch_site is None and origin is None:
            return 403
        if credentials == "cookie" and not has_csrf:
            return 403
    return 401 if credentials == "nothing" else 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("credentials", ["no keys", "nothing", "key", "wrong key", "cookie"])
async def test_a_change_is_refused_unless_a_page_of_ours_or_a_program_sent_it(
    keys: Keys, sessions: Sessions, time: Time, make_gate: MakeGate, method: str, credentials: str
) -> None:
    authority: dict[str, str] = {}
    if credentials != "no keys":
        made = await keys.create("admin")
        value = await sessions.make(made.id, time.now)
        authority = {
            "nothing": {},
            "key": bearer(made),
            "wrong key": {"Authorization": "Basic YTpi"},
            "cookie": {"Cookie": f"{LOCAL_COOKIE}={value}"},
        }[credentials]

    for fetch_site, origin, has_csrf in product(FETCH_SITES, ORIGINS, [False, True]):
        optional = {"Sec-Fetch-Site": fetch_site, "Origin": origin, "X-Qo-Csrf": "1" if has_csrf else None}
        headers = authority | {name: value for name, value in optional.items() if value is not None}
        expected = expected_status(
            method=method, credentials=credentials, fetch_site=fetch_site, origin=origin, has_csrf=has_csrf
        )
        gate = make_gate()  # another one each time, because wrong keys are counted
        assert await status(gate, method, headers=headers) == expected, headers


@pytest.mark.parametrize("authorization", ["Basic YTpi", "nonsense", "Bearer"])
async def test_without_keys_only_a_bearer_shows_that_no_page_sent_a_change(gate: Gate, authorization: str) -> None:
    # Browsers send other schemes by themselves, for addresses like http://user:password@localhost.
    evil = {"Origin": "http://evil.example"}

    assert await status(gate, "POST", headers=evil | {"Authorization": authorization}) == 403
    assert await status(gate, "POST", headers=evil | {"Authorization": "Bearer x"}) == 200


@pytest.mark.parametrize("value", ["", "0", "anything"])
async def test_the_csrf_header_may_have_any_value(gate: Gate, cookie: dict[str, str], value: str) -> None:
    assert await status(gate, "POST", headers=cookie | {"Origin": OURS, "X-Qo-Csrf": value}) == 200


ORIGINS_OF_REQUESTS = [
    ("http", "localhost:8765", "http://localhost:8765", True),
    ("http", "localhost:8765", "HTTP://LocalHost:8765", True),
    ("http", "localhost:8765", "https://localhost:8765", False),
    ("http", "localhost:8765", "http://localhost:8766", False),
    ("http", "localhost:8765", "http://localhost", False),
    ("http", "localhost:8765", "http://127.0.0.1:8765", False),
    ("http", "localhost:8765", "http://localhost:8765.evil.example", False),
    ("http", "localhost:8765", "http://localhost:8765@evil.example", False),
    ("http", "localhost:8765", "localhost:8765", False),
    ("http", "localhost:8765", "", False),
    ("http", "localhost", "http://localhost", True),
    ("http", "localhost", "http://localhost:80", True),
    ("https", "localhost", "https://localhost", True),
    ("https", "localhost", "https://localhost:443", True),
    ("https", "localhost", "http://localhost", False),
    ("http", "[::1]:8765", "http://[::1]:8765", True),
    ("http", "[0:0::1]:8765", "http://[::1]:8765", True),
]


@pytest.mark.parametrize(("scheme", "host", "origin", "is_ours"), ORIGINS_OF_REQUESTS)
async def test_without_a_public_url_ours_is_what_the_request_names(
    gate: Gate, scheme: str, host: str, origin: str, is_ours: bool
) -> None:
    found = await status(gate, "POST", headers={"Origin": origin}, scheme=scheme, host=host)

    assert found == (200 if is_ours else 403)


@pytest.mark.parametrize(
    ("origin", "is_ours"),
    [
        ("https://qo.example.com", True),
        ("https://qo.example.com:443", True),
        ("http://qo.example.com", False),
        ("https://qo.example.com:8443", False),
        ("http://localhost:8765", False),
        ("https://example.com", False),
    ],
)
async def test_with_a_public_url_ours_is_that_alone(make_gate: MakeGate, origin: str, is_ours: bool) -> None:
    gate = make_gate(public_url="https://qo.example.com/queue/", hosts=("qo.example.com",))

    for host in ("qo.example.com", "localhost:8765"):
        assert await status(gate, "POST", headers={"Origin": origin}, host=host) == (200 if is_ours else 403)


async def test_one_foreign_value_among_several_is_enough(gate: Gate) -> None:
    for name, ours, foreign in (
        ("Origin", OURS, "http://evil.example"),
        ("Sec-Fetch-Site", "same-origin", "cross-site"),
    ):
        assert await status(gate, "POST", headers=[(name, ours), (name, foreign)]) == 403
        assert await status(gate, "POST", headers=[(name, ours), (name, ours)]) == 200


def test_a_sign_in_is_checked_for_forgery_before_there_is_a_key(gate: Gate) -> None:
    gate.check_forgery(request("POST", "/api/session", {"Origin": OURS}))
    with pytest.raises(Refused) as refused:
        gate.check_forgery(request("POST", "/api/session", {"Origin": "http://evil.example"}))

    assert refused.value.status == 403
