"""Small service data under a name, written only by whoever saw the newest version."""

from __future__ import annotations

import asyncio

import pytest

from qo.store.contract import Store
from qo.values import Record


async def test_a_record_that_is_not_there_has_version_zero(store: Store) -> None:
    assert (await store.records("key")).get("key", Record()) == Record(version=0, value=None)


@pytest.mark.parametrize("value", [{"a": [1, 2.5, None, True, "ü"]}, [], "text", 0, False, 1.5])
async def test_what_was_written_is_read(store: Store, value: object) -> None:
    assert await store.put_record("key", value, version=0)

    assert (await store.records("key")).get("key", Record()) == Record(version=1, value=value)


async def test_each_write_makes_a_new_version(store: Store) -> None:
    for version in range(4):
        assert await store.put_record("key", {"n": version}, version=version)

    assert (await store.records("key")).get("key", Record()) == Record(version=4, value={"n": 3})


@pytest.mark.parametrize("version", [0, 1, 3, 99])
async def test_whoever_saw_another_version_writes_nothing(store: Store, version: int) -> None:
    await store.put_record("key", "one", version=0)
    await store.put_record("key", "two", version=1)

    assert not await store.put_record("key", "late", version=version)
    assert (await store.records("key")).get("key", Record()) == Record(version=2, value="two")


async def test_a_record_is_removed_by_writing_none_and_can_be_made_again(store: Store) -> None:
    await store.put_record("key", "one", version=0)

    refused = await store.put_record("key", None, version=5)
    removed = await store.put_record("key", None, version=1)

    assert (refused, removed) == (False, True)
    assert (await store.records("key")).get("key", Record()) == Record()
    assert await store.put_record("key", "again", version=0)


async def test_of_many_writers_that_saw_the_same_version_one_wins(store: Store) -> None:
    await store.put_record("key", "start", version=0)

    won = await asyncio.gather(*(store.put_record("key", number, version=1) for number in range(30)))

    record = (await store.records("key")).get("key", Record())
    assert won.count(True) == 1
    assert (record.version, record.value) == (2, won.index(True))


async def test_records_are_found_by_the_beginning_of_their_names(store: Store) -> None:
    for name in ("keys/b", "keys/a", "keys_c", "keys%", "key", "sessions/a"):
        await store.put_record(name, name, version=0)

    found = await store.records(prefix="keys/")

    assert dict(found) == {"keys/a": Record(version=1, value="keys/a"), "keys/b": Record(version=1, value="keys/b")}
    assert set(await store.records(prefix="")) == {"keys/b", "keys/a", "keys_c", "keys%", "key", "sessions/a"}
    assert set(await store.records(prefix="keys_")) == {"keys_c"}
    assert set(await store.records(prefix="keys%")) == {"keys%"}
    assert await store.records(prefix="nothing") == {}


async def test_records_tell_nobody_and_are_no_jobs(store: Store) -> None:
    await store.put_record("key", "one", version=0)

    assert (await store.events(None)).cursor == 0
    assert (await store.jobs()).jobs == ()


async def test_a_record_that_does_not_exist_is_not_found_by_its_name(store: Store) -> None:
    assert await store.records("nothing") == {}
