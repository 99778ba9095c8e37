"""Several servers on one store: what each reads of the keys, when, and who wins a race."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from qo.errors import StoreAway
from qo.service.access.keys import KeyNotFound, Keys
from qo.store.contract import Store
from tests.service.access.staging import StagedStore, Time, away

Server = Callable[..., Keys]


async def test_a_revoked_key_is_void_at_once_here_and_within_3_seconds_elsewhere(
    keys: Keys, server: Server, time: Time
) -> None:
    made, other = await keys.create("admin"), server()
    assert await other.find(made.text) is not None

    revoked = await keys.revoke(made.id)
    time.forward(2.999)
    late = await other.find(made.text)
    time.forward(0.001)

    assert revoked.revoked_at is not None
    assert await keys.find(made.text) is None
    assert await keys.named(made.id) is None
    assert late is not None  # shows that what was read is used for so long, and no longer:
    assert await other.find(made.text) is None
    assert await other.named(made.id) is None


async def test_revoking_twice_changes_nothing(keys: Keys, time: Time) -> None:
    made = await keys.create("admin")
    first = await keys.revoke(made.id)
    time.forward(60)

    assert await keys.revoke(made.id) == first
    assert await keys.list() == (first,)


async def test_an_unknown_key_cannot_be_revoked(keys: Keys) -> None:
    with pytest.raises(KeyNotFound, match="There is no key 'nobody'; `qo keys list` shows the ids of all keys"):
        await keys.revoke("nobody")


async def test_a_use_that_is_noted_meanwhile_does_not_undo_a_revocation(
    keys: Keys, staged: StagedStore, server: Server, time: Time
) -> None:
    made = await keys.create("admin")
    other = server()
    staged.before_write = lambda: _once(staged, other.revoke(made.id))

    assert await keys.find(made.text) is not None
    await keys.close()  # its write comes after the revocation
    time.forward(3)

    assert staged.writes == [f"key:{made.id}"] * 2
    assert (await keys.list())[0].revoked_at is not None
    assert await keys.find(made.text) is None


async def test_a_use_that_is_noted_meanwhile_does_not_keep_a_key_from_being_revoked(
    keys: Keys, staged: StagedStore, server: Server
) -> None:
    made = await keys.create("admin")
    other = server()

    async def use() -> None:
        await other.find(made.text)
        await other.close()

    staged.before_write = lambda: _once(staged, use())
    await keys.revoke(made.id)

    (key,) = await keys.list()
    assert key.last_used_at is not None
    assert key.revoked_at is not None


async def _once(staged: StagedStore, step: Any) -> None:
    staged.before_write = None
    await step


async def test_keys_are_read_once_in_3_seconds_however_many_requests_come(
    keys: Keys, staged: StagedStore, server: Server, time: Time
) -> None:
    made = await server().create("admin")
    await keys.find(made.text)
    await keys.close()  # its last use is noted
    time.forward(3)
    staged.reads = 0

    found = await asyncio.gather(*(keys.find(made.text) for _ in range(50)))
    time.forward(2.9)
    found += [await keys.find(made.text)]

    assert None not in found
    assert staged.reads == 1


async def test_a_key_that_was_made_elsewhere_is_valid_within_a_second(keys: Keys, server: Server, time: Time) -> None:
    known = await keys.create("admin")
    assert await keys.find(known.text) is not None
    made = await server().create("viewer")

    time.forward(1)

    assert await keys.find(made.text) is not None


async def test_wrong_keys_make_the_store_read_once_a_second_at_most(
    keys: Keys, staged: StagedStore, time: Time
) -> None:
    made = await keys.create("admin")
    await keys.find(made.text)
    await keys.close()
    staged.reads = 0

    for _ in range(20):
        time.forward(0.125)
        assert await keys.find("qo_x_y") is None

    assert staged.reads == 2  # in 2.5 s


async def test_a_reading_that_began_before_a_change_does_not_bring_old_keys_back(
    keys: Keys, staged: StagedStore, time: Time
) -> None:
    made = await keys.create("admin")
    has_read, has_written = asyncio.Event(), asyncio.Event()

    async def hold_the_answer() -> None:
        staged.after_read, staged.after_write = None, note_the_write
        has_read.set()
        await has_written.wait()

    async def note_the_write() -> None:
        has_written.set()

    staged.after_read = hold_the_answer
    early = asyncio.create_task(keys.any())
    await has_read.wait()
    await asyncio.gather(early, keys.revoke(made.id))

    assert await keys.find(made.text) is None


async def test_without_a_store_no_key_is_found_and_none_is_taken_for_wrong(
    keys: Keys, staged: StagedStore, time: Time
) -> None:
    made = await keys.create("admin")
    assert await keys.find(made.text) is not None
    await keys.close()
    time.forward(3)
    staged.before_read = away

    with pytest.raises(StoreAway):
        await keys.find(made.text)
    staged.before_read = None
    assert await keys.find(made.text) is not None


async def test_the_first_key_counts_at_once_here_and_within_3_seconds_elsewhere(
    keys: Keys, server: Server, time: Time
) -> None:
    other = server()
    before = await keys.any(), await other.any()

    await keys.create("viewer")

    assert before == (False, False)
    assert await keys.any()
    time.forward(3)
    assert await other.any()


async def test_a_server_without_keys_looks_for_one_once_in_3_seconds_however_many_requests_come(
    keys: Keys, staged: StagedStore, time: Time
) -> None:
    for _ in range(100):
        assert not await keys.any()
        time.forward(0.02)

    assert staged.reads == 1


async def test_every_key_that_is_made_or_revoked_is_in_the_audit_trail(keys: Keys, store: Store) -> None:
    made = await keys.create("user", user="ada", by="ops")
    await keys.revoke(made.id, by="night")
    await keys.revoke(made.id, by="again")
    await keys.rotate_watch(by="ops")

    found = [(entry.by, entry.action, entry.subject, entry.detail) for entry in await store.audit()]
    assert found == [
        ("ops", "rotate_watch", "watch links", {}),
        ("night", "revoke_key", made.id, {"role": "user", "user": "ada"}),
        ("ops", "create_key", made.id, {"role": "user", "user": "ada"}),
    ]


async def test_a_use_of_a_key_is_not_in_the_audit_trail(keys: Keys, store: Store) -> None:
    made = await keys.create("admin")

    await keys.find(made.text)
    await keys.close()

    assert [entry.action for entry in await store.audit()] == ["create_key"]


async def test_a_server_whose_keys_are_all_void_still_has_keys(keys: Keys, time: Time) -> None:
    revoked = await keys.create("admin")
    await keys.create("admin", expires_at=time.now + timedelta(seconds=1))
    await keys.revoke(revoked.id)
    time.forward(10)

    assert await keys.any()
