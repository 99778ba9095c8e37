"""The IP address that a request comes from."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.requests import Request

from qo.errors import SettingsError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
UNKNOWN = "unknown"


def networks(trusted_proxies: Iterable[str]) -> tuple[Network, ...]:
    """The proxies of the settings; a network such as 10.0.0.0/8 may stand among them. Raises `SettingsError`."""
    return tuple(map(_network, trusted_proxies))


def _network(text: str) -> Network:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise SettingsError(
            f"server.trusted_proxies has {text!r}; use IP addresses such as 10.0.0.7, or networks such as 10.0.0.0/8."
        ) from None


def peer_of(request: Request) -> Address | None:
    """The other end of the connection. None where it has no IP address."""
    return None if request.client is None else parsed_address(request.client.host)


def is_loopback(address: Address | None) -> bool:
    return address is not None and address.is_loopback


def address_of(request: Request, trusted: tuple[Network, ...]) -> str:
    """The address of the caller, for the audit trail and for counting wrong keys.

    X-Forwarded-For is believed only as far as trusted proxies wrote it: each adds its own client at the end, so the
    first one from the end that is no trusted proxy is the caller. Whatever stands before it may be invented.
    """
    peer = peer_of(request)
    if peer is None:
        return UNKNOWN
    caller = peer
    forwarded = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
    while forwarded and any(caller in network for network in trusted):
        client = parsed_address(forwarded.pop().strip())
        if client is None:
            break
        caller = client
    return str(caller)


def parsed_address(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
