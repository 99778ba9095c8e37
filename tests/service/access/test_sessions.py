"""Browser sessions: the cookie, its name and header, and where a sign-in may lead."""

from __future__ import annotations

from datetime import timedelta
from http.cookies import SimpleCookie

import pytest

from qo.service.access.sessions import Session, Sessions, clear_cookie, cookie_name, safe_next, set_cookie
from qo.service.access.site import Site
from qo.service.access.watch_links import WatchLinks
from qo.store.contract import Store
from tests.service.access.staging import Time

TLS = Site(scheme="https", host="qo.example.com", port=443)
UNDER_A_PREFIX = Site(scheme="https", host="example.com", port=8443, path="/queue")
LOCAL = Site(scheme="http", host="localhost", port=8765)
LOCAL_UNDER_A_PREFIX = Site(scheme="http", host="localhost", port=9000, path="/queue")


async def test_a_cookie_stands_for_its_key_for_12_hours(store: Store, time: Time) -> None:
    sessions = Sessions(store, system=time.system)
    begin = time.now
    value = await sessions.make("k1", begin)

    expected = Session(key_id="k1", expires_at=begin + timedelta(hours=12))
    assert await sessions.read(value, begin) == expected
    assert await sessions.read(value, begin + timedelta(hours=12, milliseconds=-1)) == expected
    assert await sessions.read(value, begin + timedelta(hours=12)) is None


async def test_every_server_reads_the_cookies_of_all(store: Store, time: Time) -> None:
    value = await Sessions(store, system=time.system).make("k1", time.now)

    assert await Sessions(store, system=time.system).read(value, time.now) is not None


async def test_a_changed_cookie_is_void(store: Store, time: Time) -> None:
    sessions = Sessions(store, system=time.system)
    value = await sessions.make("k1", time.now)

    for place in range(len(value)):
        changed = value[:place] + ("A" if value[place] != "A" else "B") + value[place + 1 :]
        assert await sessions.read(changed, time.now) is None
    assert await sessions.read("", time.now) is None


async def test_a_watch_link_is_no_cookie(store: Store, time: Time) -> None:
    token = await WatchLinks(store, system=time.system).make("k1", time.now, time.now + timedelta(days=7))

    assert await Sessions(store, system=time.system).read(token, time.now) is None


@pytest.mark.parametrize(
    ("site", "name", "path", "secure"),
    [
        (TLS, "__Host-qo", "/", True),
        (UNDER_A_PREFIX, "__Secure-qo", "/queue", True),
        (LOCAL, "qo-8765", "/", False),
        (LOCAL_UNDER_A_PREFIX, "qo-9000", "/queue", False),
    ],
)
def test_the_header_of_a_cookie_follows_the_site(site: Site, name: str, path: str, secure: bool) -> None:
    header = set_cookie(site, "abc-_9")

    cookie = SimpleCookie(header)[name]
    assert cookie_name(site) == name
    assert cookie.value == "abc-_9"
    assert (cookie["path"], cookie["max-age"], cookie["samesite"]) == (path, "43200", "Strict")
    assert (bool(cookie["httponly"]), bool(cookie["secure"])) == (True, secure)
    assert not cookie["domain"]


def test_signing_out_makes_the_browser_forget_the_same_cookie() -> None:
    begun, ended = set_cookie(UNDER_A_PREFIX, "x"), clear_cookie(UNDER_A_PREFIX)

    assert ended == begun.replace("=x;", "=;").replace("Max-Age=43200", "Max-Age=0")


@pytest.mark.parametrize("path", ["/", "/jobs", "/jobs?status=queued#top", "/a//b", "/jobs/x%2Fwhy", "/ü"])
def test_a_path_of_ours_is_opened_after_sign_in(path: str) -> None:
    assert safe_next(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "jobs",
        "//evil.example",
        "///evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/jobs\\",
        "https://evil.example",
        "javascript:alert(1)",
        " /jobs",
        "/\t/evil.example",
        "/\n/evil.example",
        "/\r\nSet-Cookie: x=y",
        "/\x00",
        "/\x7f",
        "/\x85",
        None,
        7,
        ["/jobs"],
    ],
)
def test_anything_else_leads_to_the_first_page(path: object) -> None:
    assert safe_next(path) == "/"
