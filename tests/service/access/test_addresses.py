"""The address that a request comes from, directly or through proxies."""

from __future__ import annotations

import pytest

from qo.errors import SettingsError
from qo.service.access.addresses import address_of, is_loopback, networks, peer_of
from tests.service.access.requests import request

PROXY, SECOND_PROXY, CLIENT, INVENTED = "10.0.0.7", "10.0.0.8", "192.0.2.1", "198.51.100.9"


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        (CLIENT, None, CLIENT),
        (CLIENT, INVENTED, CLIENT),  # not from a trusted proxy
        (PROXY, None, PROXY),
        (PROXY, "", PROXY),
        (PROXY, CLIENT, CLIENT),
        (PROXY, f"{INVENTED}, {CLIENT}", CLIENT),
        (PROXY, f"{INVENTED},{CLIENT},{SECOND_PROXY}", CLIENT),
        (PROXY, f"{PROXY}, {SECOND_PROXY}", PROXY),
        (PROXY, f"{CLIENT}, nonsense", PROXY),
        (PROXY, f"nonsense, {CLIENT}", CLIENT),
        (PROXY, "2001:db8::1", "2001:db8::1"),
        (PROXY, "2001:DB8:0::1", "2001:db8::1"),
        (f"::ffff:{PROXY}", f"::ffff:{CLIENT}", CLIENT),
        ("fd00::7", CLIENT, CLIENT),
        (None, CLIENT, "unknown"),
    ],
)
def test_forwarded_addresses_count_as_far_as_trusted_proxies_wrote_them(
    peer: str | None, forwarded: str | None, address: str
) -> None:
    trusted = networks([PROXY, SECOND_PROXY, "fd00::/8"])
    headers = {} if forwarded is None else {"X-Forwarded-For": forwarded}

    assert address_of(request(headers=headers, peer=peer), trusted) == address


def test_several_headers_are_one_list() -> None:
    headers = [("X-Forwarded-For", INVENTED), ("X-Forwarded-For", CLIENT)]

    assert address_of(request(headers=headers, peer=PROXY), networks([PROXY])) == CLIENT


def test_without_trusted_proxies_only_the_peer_counts() -> None:
    headers = {"X-Forwarded-For": INVENTED, "Forwarded": f"for={INVENTED}", "X-Real-IP": INVENTED}

    assert address_of(request(headers=headers, peer="127.0.0.1"), ()) == "127.0.0.1"


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("::", False),
        ("::ffff:10.0.0.1", False),
        ("localhost", False),
        (None, False),
    ],
)
def test_only_loopback_addresses_are_this_machine(peer: str | None, expected: bool) -> None:
    assert is_loopback(peer_of(request(peer=peer))) is expected


def test_a_proxy_that_is_no_address_is_refused_with_what_to_write() -> None:
    with pytest.raises(SettingsError, match=r"server.trusted_proxies has 'proxy'; use IP addresses such as 10.0.0.7"):
        networks(["10.0.0.1", "proxy"])
