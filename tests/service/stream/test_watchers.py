"""How many streams a process opens, for whom they are counted, and what a caller beyond that is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from qo.service.stream.watchers import OPERATOR, Dropped, Owner, StreamRefused, Watchers, user_key, watch_token


class Opened(ExitStack):
    """Streams that stay open for the test."""

    def __init__(self, watchers: Watchers) -> None:
        super().__init__()
        self.watchers = watchers
        self.closed = 0

    def open(self, caller: Owner, count: int = 1) -> None:
        for _ in range(count):
            self.enter_context(self.watchers.place(caller, close=self._close))

    def refusal(self, caller: Owner) -> StreamRefused:
        with pytest.raises(StreamRefused) as refused:
            self.open(caller)
        return refused.value

    def _close(self) -> None:
        self.closed += 1


@pytest.fixture
def streams() -> Iterator[Opened]:
    watchers = Watchers()
    with Opened(watchers) as opened:
        yield opened
    assert watchers.open == 0
    assert not watchers._by_share  # noqa: SLF001 - nothing stays behind for callers who never come again


def tokens_of_different_addresses(count: int) -> Iterator[Owner]:
    return (watch_token(f"token-{number}", address=f"10.0.{number // 250}.{number % 250}") for number in range(count))


def test_a_process_opens_2000_streams(streams: Opened) -> None:
    streams.open(OPERATOR, 2000)

    refused = streams.refusal(OPERATOR)

    assert (refused.status, refused.retry_after) == (503, 10)
    assert "has 2000 open streams" in str(refused)
    assert streams.watchers.open == 2000
    assert streams.watchers.dropped == {Dropped.FULL: 1}


def test_the_last_200_streams_are_for_callers_with_a_key(streams: Opened) -> None:
    for caller in tokens_of_different_addresses(1800):
        streams.open(caller)

    assert streams.refusal(watch_token("one-more", address="192.0.2.1")).status == 503
    streams.open(OPERATOR, 199)
    streams.open(user_key("key-1"))
    assert streams.refusal(user_key("key-1")).status == 503


def test_a_user_key_has_20_streams_and_an_operator_is_not_counted(streams: Opened) -> None:
    streams.open(user_key("key-1"), 20)
    streams.open(OPERATOR, 100)

    refused = streams.refusal(user_key("key-1"))

    assert (refused.status, refused.retry_after) == (429, 10)
    assert str(refused) == (
        "This key has 20 open streams, which is the most it may have; close one of them, or try again in 10 seconds."
    )
    streams.open(user_key("key-2"))
    assert streams.watchers.dropped == {Dropped.TOO_MANY: 1}


def test_a_watch_link_has_5_streams_from_wherever_it_is_opened(streams: Opened) -> None:
    for number in range(5):
        streams.open(watch_token("secret-token", address=f"10.0.0.{number}"))

    refused = streams.refusal(watch_token("secret-token", address="10.0.0.9"))

    assert refused.status == 429
    assert "secret-token" not in str(refused)
    streams.open(watch_token("another", address="10.0.0.9"))


def test_an_address_has_50_streams_of_watch_links(streams: Opened) -> None:
    for number in range(50):
        streams.open(watch_token(f"token-{number}", address="10.0.0.1"))

    assert streams.refusal(watch_token("one-more", address="10.0.0.1")).status == 429
    streams.open(watch_token("one-more", address="10.0.0.2"))
    streams.open(user_key("key-1"))


def test_a_stream_that_ends_makes_room(streams: Opened) -> None:
    streams.open(user_key("key-1"), 19)
    for _ in range(3):
        with streams.watchers.place(user_key("key-1"), close=lambda: None):
            streams.refusal(user_key("key-1"))

    assert streams.watchers.open == 19


def test_a_refused_stream_counts_for_nobody(streams: Opened) -> None:
    for number in range(5):
        streams.open(watch_token("token", address=f"10.0.0.{number}"))
    for _ in range(100):
        streams.refusal(watch_token("token", address="10.0.0.9"))

    streams.open(watch_token("another", address="10.0.0.9"))
    assert streams.watchers.open == 6


def test_closing_all_ends_each_once_and_opens_no_more(streams: Opened) -> None:
    streams.open(OPERATOR, 3)
    streams.watchers.close_all()

    assert streams.closed == 3
    assert streams.refusal(OPERATOR).status == 503
