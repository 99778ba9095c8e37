"""Open streams, the site that browsers see, and settings that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from qo.errors import SettingsError
from qo.service.access.gate import Gate
from qo.service.access.keys import Keys, NewKey
from qo.service.access.sessions import cookie_name
from qo.service.access.site import Site
from tests.service.access.gate.asking import LOCAL_COOKIE, MakeGate, bearer
from tests.service.access.requests import request
from tests.service.access.staging import Time


async def test_an_open_stream_notices_that_its_key_or_session_has_ended(
    gate: Gate, keys: Keys, admin: NewKey, cookie: dict[str, str], time: Time
) -> None:
    by_key = await gate.who(request(headers=bearer(admin)))
    by_cookie = await gate.who(request(headers=cookie))
    allowed = [await gate.is_still_allowed(caller) for caller in (by_key, by_cookie)]
    time.forward(12 * 3600)
    after_12_hours = [await gate.is_still_allowed(caller) for caller in (by_key, by_cookie)]
    await keys.revoke(admin.id)

    assert allowed == [True, True]
    assert after_12_hours == [True, False]
    assert not await gate.is_still_allowed(by_key)


async def test_an_open_stream_of_a_server_without_keys_ends_with_the_first_key(gate: Gate, keys: Keys) -> None:
    caller = await gate.who(request())
    before = await gate.is_still_allowed(caller)
    await keys.create("admin")

    assert before
    assert not await gate.is_still_allowed(caller)


@pytest.mark.parametrize(
    ("public_url", "scheme", "host", "root_path", "site"),
    [
        (None, "http", "localhost:8765", "", Site(scheme="http", host="localhost", port=8765)),
        (None, "http", "127.0.0.1", "/queue", Site(scheme="http", host="127.0.0.1", port=80, path="/queue")),
        (None, "https", "[::1]", "", Site(scheme="https", host="::1", port=443)),
        ("https://qo.example.com", "http", "x", "", Site(scheme="https", host="qo.example.com", port=443)),
        (
            "http://Qo.example.com:81/a/b/",
            "http",
            "x",
            "",
            Site(scheme="http", host="qo.example.com", port=81, path="/a/b"),
        ),
    ],
)
def test_the_site_is_that_of_public_url_or_of_the_request(
    make_gate: MakeGate, public_url: str | None, scheme: str, host: str, root_path: str, site: Site
) -> None:
    found = make_gate(public_url=public_url).site(request(scheme=scheme, host=host, root_path=root_path))

    assert found == site


def test_the_cookie_of_a_site_is_named_after_it(gate: Gate) -> None:
    site = gate.site(request())

    assert site is not None
    assert cookie_name(site) == LOCAL_COOKIE


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"public_url": "https://a:b:c"}, "server.public_url is 'https://a:b:c'; use an address such as"),
        ({"public_url": "https://[::1"}, "server.public_url is"),
        ({"public_url": "https://a:password@qo.example.com"}, "server.public_url is an address with a login; use"),
        ({"hosts": ("https://qo.example.com",)}, "server.hosts has 'https://qo.example.com'; use a name without"),
        ({"hosts": ("qo.example.com:443",)}, "server.hosts has 'qo.example.com:443'"),
        ({"trusted_proxies": ("proxy",)}, "server.trusted_proxies has 'proxy'"),
    ],
)
def test_settings_that_could_never_work_are_refused_at_the_start(
    make_gate: MakeGate, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        make_gate(**settings)

    assert sentence in str(refused.value)
    assert "password" not in str(refused.value)
