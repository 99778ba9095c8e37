"""`qo doctor` says what is wrong, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import qo
from qo.cli.doctor import examine
from qo.service.access.keys import Keys
from qo.values import Registration, TaskOptions
from tests.cli.conftest import Call


async def findings(queue: qo.Queue) -> list[tuple[str, str]]:
    return [(each.about, each.wrong) for each in await examine(queue)]


async def test_nothing_is_wrong_with_a_new_queue() -> None:
    async with await qo.connect("memory://", settings={}) as queue:
        assert await examine(queue) == []


async def test_jobs_without_a_worker_are_named_with_their_task() -> None:
    async with await qo.connect("memory://", settings={}) as queue:
        await queue.submit("build")
        ((about, wrong),) = await findings(queue)
        assert (about, wrong) == ("workers", "No worker is running, and 1 job in line waits for one.")

        await queue.store.register(Registration(name="w", tasks=(TaskOptions(name="mail"),), capacity=1))
        ((_, wrong),) = await findings(queue)
        assert "task build" in wrong


@pytest.mark.parametrize(("ahead", "where"), [(60_000, "ahead of"), (-60_000, "behind")])
async def test_a_clock_that_differs_from_the_stores_is_named(ahead: int, where: str) -> None:
    async with await qo.connect("memory://", settings={}) as queue:
        real = queue.system.clock
        queue.store.clock = lambda: real() - ahead

        ((about, wrong),) = await findings(queue)

        assert about == "clock"
        assert f"60 s {where} the store's" in wrong


async def test_keys_that_are_missing_expire_soon_or_can_do_nothing_are_named() -> None:
    async with await qo.connect("memory://", settings={}) as queue:
        keys = Keys(queue.store, system=queue.system)
        await keys.create("viewer", expires_at=datetime.now(UTC) + timedelta(days=3))
        await keys.create("user", user="u1")

        said = [wrong for about, wrong in await findings(queue) if about == "keys"]

        assert len(said) == 3
        assert "role admin" in said[0]
        assert "expires at" in said[1]
        assert "user_tasks is empty" in said[2]


async def test_settings_that_contradict_each_other_are_named() -> None:
    server = {"default_tier": "gold", "public_url": "https://qo.example.com"}
    async with await qo.connect("memory://", settings={"server": server}) as queue:
        said = [wrong for about, wrong in await findings(queue) if about == "settings"]

    assert "'gold'" in said[0]
    assert "qo.example.com" in said[1]


def test_the_command_exits_with_1_where_something_is_wrong(
    call: Callable[..., Call], empty_store: None, tmp_path: Path
) -> None:
    assert call("doctor").code == 0
    call("submit", "build")

    sick = call("doctor", "--json")

    assert sick.code == 1
    assert [each["about"] for each in sick.json] == ["workers"]
