"""API keys: which text is a valid key, for how long, and what the store keeps of it."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from qo.errors import InvalidValue
from qo.ids import new_id
from qo.service.access.caller import Role
from qo.service.access.keys import Keys, NewKey
from qo.store.contract import Store
from tests.service.access.staging import StagedStore, Time, away


def secret_of(key: NewKey) -> str:
    return key.text.split("_", 2)[2]


async def test_a_key_is_found_by_its_text(keys: Keys, time: Time) -> None:
    until = time.now + timedelta(days=90)

    made = await keys.create(Role.USER, user="ada", project="p1", expires_at=until)
    key = await keys.find(made.text)

    assert key is not None
    assert made.text == f"qo_{made.id}_{secret_of(made)}"
    assert (key.id, key.role, key.user, key.project) == (made.id, Role.USER, "ada", "p1")
    assert (key.created_at, key.expires_at, key.revoked_at) == (time.now, until, None)


async def test_the_store_has_of_a_secret_only_its_sha_256(keys: Keys, store: Store) -> None:
    made = await keys.create("admin")

    kept = msgspec.json.encode(await store.records()).decode()

    assert hashlib.sha256(secret_of(made).encode()).hexdigest() in kept
    assert secret_of(made) not in kept


async def test_a_key_of_the_real_system_has_a_secret_of_32_bytes_of_its_own(store: Store) -> None:
    made = [await Keys(store).create("admin") for _ in range(20)]

    assert {len(secret_of(key)) for key in made} == {43}
    assert len({secret_of(key) for key in made}) == 20


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"role": "boss"}, "role is 'boss'; use admin, viewer or user."),
        ({"role": None}, "role is None; use admin, viewer or user."),
        ({"role": "user"}, "user is missing; a key of role user acts for one user, so name that user."),
        (
            {"role": "viewer", "user": "ada"},
            "user is 'ada'; only a key of role user has one, and this one has role viewer.",
        ),
        (
            {"role": "admin", "project": "p1"},
            "project is 'p1'; only a key of role user has one, and this one has role admin.",
        ),
        ({"role": "user", "user": ""}, "user is empty; use 1 to 200 characters."),
        ({"role": "user", "user": "ada", "project": "\n"}, "project is '\\n', which has a control character"),
        ({"role": "admin", "expires_at": 90}, "expires_at is 90; give a datetime with a time zone"),
        (
            {"role": "admin", "expires_at": datetime(2099, 1, 1)},  # noqa: DTZ001 - without a zone on purpose
            "give a datetime with a time zone",
        ),
        (
            {"role": "admin", "expires_at": Time().now},
            "expires_at is 2030-03-17T17:46:40+00:00, which has passed; give a time in the future.",
        ),
    ],
)
async def test_a_key_that_makes_no_sense_is_refused_and_not_made(
    keys: Keys, fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        await keys.create(**fields)

    assert sentence in str(refused.value)
    assert await keys.list() == ()


async def test_an_id_that_is_taken_makes_no_second_key(store: Store, time: Time) -> None:
    keys = Keys(store, system=msgspec.structs.replace(time.system, new_id=lambda: "same"))
    first = await keys.create("viewer")

    with pytest.raises(InvalidValue, match="'same' already"):
        await keys.create("admin")

    assert [key.role for key in await keys.list()] == [Role.VIEWER]
    assert await keys.find(first.text) is not None


async def test_the_list_has_all_keys_by_age(keys: Keys) -> None:
    made = [await keys.create(role) for role in ("admin", "viewer")]
    made.append(await keys.create("user", user="ada"))
    await keys.revoke(made[0].id)

    assert {key.id for key in await keys.list()} == {key.id for key in made}
    assert [key.id for key in await keys.list()] == sorted(key.id for key in made)


@pytest.mark.parametrize(
    "change",
    [
        lambda text, other: "",
        lambda text, other: "qo",
        lambda text, other: "qo__",
        lambda text, other: text[:-1],
        lambda text, other: text + "A",
        lambda text, other: text + " ",
        lambda text, other: text[:-1] + ("A" if text[-1] != "A" else "B"),
        lambda text, other: text.upper(),
        lambda text, other: text.removeprefix("qo_"),
        lambda text, other: "pk" + text.removeprefix("qo"),
        lambda text, other: "_".join([*text.split("_", 2)[:2], ""]),
        lambda text, other: "_".join([*text.split("_", 2)[:2], other.split("_", 2)[2]]),
        lambda text, other: f"qo_{new_id()}_{text.split('_', 2)[2]}",
        lambda text, other: f"qo__{text.split('_', 2)[2]}",
        lambda text, other: "_".join([*text.split("_", 2)[:2], "0" * 64]),
        lambda text, other: "qo_ü_\udfff",
        lambda text, other: "qo_" + "A" * 100_000,
    ],
)
async def test_any_other_text_is_no_key(keys: Keys, change: Callable[[str, str], str]) -> None:
    made, other = await keys.create("admin"), await keys.create("viewer")

    assert await keys.find(change(made.text, other.text)) is None
    assert await keys.find(made.text) is not None


async def test_the_stored_digest_is_no_key(keys: Keys) -> None:
    made = await keys.create("admin")

    assert await keys.find(f"qo_{made.id}_{hashlib.sha256(secret_of(made).encode()).hexdigest()}") is None


async def test_an_unknown_id_costs_what_a_wrong_secret_costs(
    keys: Keys, staged: StagedStore, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await keys.create("admin")
    compared: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def noted(one: str, other: str) -> bool:
        compared.append((len(one), len(other)))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", noted)
    costs = []
    for text in (f"qo_{made.id}_{'A' * 43}", f"qo_{new_id()}_{'A' * 43}"):
        time.forward(5)
        compared, staged.reads = [], 0
        assert await keys.find(text) is None
        costs.append((compared, staged.reads))

    assert costs[0] == costs[1]
    assert set(costs[0][0]) == {(64, 64)}


async def test_a_key_is_valid_until_the_moment_it_expires(keys: Keys, time: Time) -> None:
    made = await keys.create("admin", expires_at=time.now + timedelta(seconds=10))

    time.forward(9.999)
    before = await keys.find(made.text), await keys.named(made.id)
    time.forward(0.001)
    after = await keys.find(made.text), await keys.named(made.id)

    assert None not in before
    assert after == (None, None)


async def test_a_key_is_found_by_its_id_for_a_session(keys: Keys) -> None:
    made = await keys.create("viewer")

    key = await keys.named(made.id)

    assert key is not None
    assert key.role is Role.VIEWER
    assert await keys.named("nobody") is None


async def test_no_log_line_and_no_repr_has_a_secret(
    keys: Keys, staged: StagedStore, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made = await keys.create("admin")
    staged.before_write = away
    key = await keys.find(made.text)
    await keys.find(made.text + "x")
    await keys.close()
    shown = [repr(made), str(made), repr(key), repr(await keys.list()), caplog.text, *map(repr, vars(keys).values())]

    assert caplog.text
    assert not [text for text in shown if secret_of(made) in text]
    assert made.id in repr(made)
