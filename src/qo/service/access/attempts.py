"""How many wrong keys came from an address in the last minute."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from math import ceil

WRONG_KEYS_A_MINUTE = 10
MINUTE_SECONDS = 60.0
MOST_ADDRESSES = 4096
"""Beyond that, the address whose last wrong key is the oldest is forgotten."""
IPV6_NETWORK_BITS = 64
"""One host has so many IPv6 addresses that only their network says where they belong."""


class Attempts:
    def __init__(self, monotonic: Callable[[], float], *, most_addresses: int = MOST_ADDRESSES) -> None:
        self._monotonic = monotonic
        self._most_addresses = most_addresses
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._times)

    def count_wrong_key(self, address: str) -> int | None:
        """Count a wrong key. Returns None, or when there were more than 10 in the last minute the seconds after
        which the next wrong key would not be too many."""
        now = self._monotonic()
        place = _network_of(address)
        times = self._times.setdefault(place, deque(maxlen=WRONG_KEYS_A_MINUTE))
        self._times.move_to_end(place)
        too_many = len(times) == WRONG_KEYS_A_MINUTE and now - times[0] < MINUTE_SECONDS
        times.append(now)
        while len(self._times) > self._most_addresses:
            self._times.popitem(last=False)
        return max(1, ceil(MINUTE_SECONDS - (now - times[0]))) if too_many else None


def _network_of(address: str) -> str:
    try:
        parsed = ip_address(address)
    except ValueError:
        return address  # of a caller without an IP address, such as one on a Unix socket
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    return str(IPv6Address(int(parsed) >> IPV6_NETWORK_BITS << IPV6_NETWORK_BITS))
