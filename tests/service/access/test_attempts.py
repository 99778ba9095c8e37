"""How many wrong keys an address may send in a minute."""

from __future__ import annotations

import pytest

from qo.service.access.attempts import Attempts
from tests.service.access.staging import Time


@pytest.fixture
def attempts(time: Time) -> Attempts:
    return Attempts(lambda: time.monotonic)


def count(attempts: Attempts, times: int, address: str = "192.0.2.1") -> list[int | None]:
    return [attempts.count_wrong_key(address) for _ in range(times)]


def test_the_eleventh_wrong_key_of_a_minute_is_too_many(attempts: Attempts) -> None:
    assert count(attempts, 12) == [None] * 10 + [60, 60]


@pytest.mark.parametrize(("early_seconds", "too_many"), [(0.001, True), (0, False)])
def test_a_caller_that_waits_as_long_as_told_may_be_wrong_again(
    attempts: Attempts, time: Time, early_seconds: float, too_many: bool
) -> None:
    for _ in range(10):
        count(attempts, 1)
        time.forward(2)
    (retry_after,) = count(attempts, 1)
    assert retry_after == 42  # the oldest of the last ten came 18 s ago

    time.forward(retry_after - early_seconds)

    assert (count(attempts, 1) != [None]) is too_many


def test_ten_wrong_keys_a_minute_are_never_too_many(attempts: Attempts, time: Time) -> None:
    for _ in range(100):
        assert count(attempts, 1) == [None]
        time.forward(6)


def test_a_flood_is_too_many_for_as_long_as_it_lasts(attempts: Attempts, time: Time) -> None:
    count(attempts, 10)

    for _ in range(200):
        time.forward(1)
        assert count(attempts, 1) != [None]


def test_addresses_are_counted_apart(attempts: Attempts) -> None:
    count(attempts, 11)

    assert count(attempts, 1, "192.0.2.2") == [None]


def test_the_addresses_of_one_ipv6_network_are_counted_together(attempts: Attempts) -> None:
    for number in range(10):
        assert count(attempts, 1, f"2001:db8:0:1::{number:x}") == [None]

    assert count(attempts, 1, "2001:db8:0:1:ffff::1") == [60]
    assert count(attempts, 1, "2001:db8:0:2::1") == [None]


def test_the_table_is_bounded_and_forgets_the_oldest(time: Time) -> None:
    attempts = Attempts(lambda: time.monotonic, most_addresses=3)
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.3"):
        count(attempts, 10, address)
    too_many = count(attempts, 1, "192.0.2.1")  # it is now the newest
    count(attempts, 1, "192.0.2.4")

    assert too_many == [60]
    assert len(attempts) == 3
    assert count(attempts, 1, "192.0.2.1") == [60]
    assert count(attempts, 1, "192.0.2.2") == [None]  # forgotten


def test_some_thousand_addresses_are_kept(attempts: Attempts) -> None:
    for number in range(10_000):
        count(attempts, 1, f"10.0.{number >> 8}.{number & 255}")

    assert 1000 <= len(attempts) <= 5000


def test_a_caller_without_an_ip_address_is_counted_too(attempts: Attempts) -> None:
    assert count(attempts, 11, "unknown")[-1] == 60
