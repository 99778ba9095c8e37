"""Signed tokens, and the secrets that all servers share."""

from __future__ import annotations

import asyncio
from string import ascii_letters, digits

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qo.errors import StoreAway
from qo.service.access.signing import SigningSecret, decoded, encoded, signed, signed_struct, verified, verified_struct
from qo.store.contract import Store
from tests.service.access.staging import StagedStore, Time, away

SECRET = b"s" * 32
ALPHABET = ascii_letters + digits + "-_"


class Payload(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    name: str
    number: int


class Other(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    name: str


@given(st.binary(max_size=200))
def test_a_token_gives_its_payload_back(payload: bytes) -> None:
    token = signed(SECRET, payload)

    assert set(token) <= set(ALPHABET)
    assert verified(SECRET, token) == payload


@pytest.mark.parametrize("payload", [b"ab", b"abc", b"abcd"])  # each has another number of unused bits at its end
def test_every_other_character_at_every_place_makes_a_token_void(payload: bytes) -> None:
    token = signed(SECRET, payload)
    changed = [
        token[:place] + character + token[place + 1 :]
        for place in range(len(token))
        for character in ALPHABET
        if character != token[place]
    ]

    assert len(changed) == len(token) * 63
    assert [each for each in changed if verified(SECRET, each) is not None] == []


@pytest.mark.parametrize("payload", [b"ab", b"abc", b"abcd"])
def test_every_changed_bit_makes_a_token_void(payload: bytes) -> None:
    content = decoded(signed(SECRET, payload))
    assert content is not None

    for bit in range(len(content) * 8):
        flipped = int.from_bytes(content, "big") ^ 1 << bit
        assert verified(SECRET, encoded(flipped.to_bytes(len(content), "big"))) is None


@pytest.mark.parametrize("payload", [b"ab", b"abc", b"abcd"])
@pytest.mark.parametrize("added", ["A", "AA", "AAA", "AAAA", "=", "==", "\n", " ", "ü", "."])
def test_a_longer_token_is_void(payload: bytes, added: str) -> None:
    token = signed(SECRET, payload)

    assert verified(SECRET, token + added) is None
    assert verified(SECRET, added + token) is None


@given(st.binary(max_size=20), st.data())
def test_a_shorter_token_is_void(payload: bytes, data: st.DataObject) -> None:
    token = signed(SECRET, payload)

    assert verified(SECRET, token[: data.draw(st.integers(0, len(token) - 1))]) is None


@given(st.text(max_size=100))
def test_any_text_is_read_without_an_error(text: str) -> None:
    assert verified(SECRET, text) is None


def test_the_alphabet_of_plain_base64_is_not_understood() -> None:
    token = next(token for token in (signed(SECRET, b"%d" % number) for number in range(99)) if "-" in token)

    assert verified(SECRET, token.replace("-", "+")) is None


def test_a_token_of_another_secret_or_an_endless_one_is_void() -> None:
    assert verified(b"t" * 32, signed(SECRET, b"x")) is None
    assert verified(SECRET, signed(SECRET, b"x" * 5000)) is None


def test_a_signed_struct_of_another_shape_is_void() -> None:
    token = signed_struct(SECRET, Payload("a", 1))

    assert verified_struct(SECRET, token, Payload) == Payload("a", 1)
    assert verified_struct(SECRET, token, Other) is None
    assert verified_struct(SECRET, signed(SECRET, b"no json"), Payload) is None


# --- the secret -----------------------------------------------------------------------------------------------


async def test_a_secret_is_made_on_first_use_and_kept_for_later_servers(store: Store, time: Time) -> None:
    first = await SigningSecret(store, "secret:x", system=time.system).get()

    assert await SigningSecret(store, "secret:x", system=time.system).get() == first
    assert len(first) == 32


async def test_secrets_of_different_names_differ(store: Store, time: Time) -> None:
    secrets = [await SigningSecret(store, name, system=time.system).get() for name in ("secret:x", "secret:y")]

    assert len(set(secrets)) == 2


async def test_two_servers_that_make_the_secret_at_once_end_with_the_same(store: Store, time: Time) -> None:
    both_found_none = asyncio.Barrier(2)
    servers = [StagedStore(store), StagedStore(store)]

    async def meet() -> None:
        await both_found_none.wait()

    for each in servers:
        each.before_write = meet

    secrets = [SigningSecret(each.as_store, "secret:x", system=time.system) for each in servers]
    first = await asyncio.wait_for(asyncio.gather(*(each.get() for each in secrets)), 10)

    assert [each.writes for each in servers] == [["secret:x"], ["secret:x"]]  # both wanted to make it
    assert first[0] == first[1]
    time.forward(5)
    assert [await each.get() for each in secrets] == first


async def test_a_rotated_secret_counts_at_once_here_and_within_5_seconds_elsewhere(store: Store, time: Time) -> None:
    here, elsewhere = (SigningSecret(store, "secret:x", system=time.system) for _ in range(2))
    old = await here.get(), await elsewhere.get()

    await here.rotate()
    new = await here.get()
    time.forward(4.999)
    late = await elsewhere.get()
    time.forward(0.001)

    assert old == (late, late)
    assert new != late
    assert await elsewhere.get() == new


async def test_a_rotation_wins_over_one_that_came_in_between(store: Store, time: Time) -> None:
    staged = StagedStore(store)
    here, elsewhere = SigningSecret(staged.as_store, "x", system=time.system), SigningSecret(store, "x")
    seen = []

    async def rotate_elsewhere() -> None:
        staged.before_write = None
        await elsewhere.rotate()
        seen.append(await elsewhere.get())

    staged.before_write = rotate_elsewhere
    await here.rotate()

    assert staged.writes == ["x", "x"]
    assert seen != [await here.get()]


async def test_the_secret_is_read_once_in_5_seconds(staged: StagedStore, time: Time) -> None:
    secret = SigningSecret(staged.as_store, "secret:x", system=time.system)
    await secret.get()
    staged.reads = 0

    time.forward(4.9)
    await asyncio.gather(*(secret.get() for _ in range(20)))
    assert staged.reads == 0
    time.forward(0.1)
    await asyncio.gather(*(secret.get() for _ in range(20)))
    assert staged.reads == 1


async def test_without_a_store_there_is_no_secret(staged: StagedStore, time: Time) -> None:
    secret = SigningSecret(staged.as_store, "secret:x", system=time.system)
    staged.before_read = away

    with pytest.raises(StoreAway):
        await secret.get()
    staged.before_read = None
    assert await secret.get()
