"""A file that several connections and processes use at once: waking each other, the cap, and making it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import apsw
import pytest

from qo.errors import StoreUnavailable
from qo.store.sqlite import SQLiteStore
from qo.store.sqlite import store as store_module
from qo.store.sqlite.operations.is_claimable import is_claimable
from qo.values import Claimed
from tests.conformance.suite.harness import submission, submit
from tests.processes import Process, program


async def test_a_waiting_worker_is_woken_by_a_submit_through_another_connection(tmp_path: Path) -> None:
    waiter = await SQLiteStore.open(str(tmp_path / "qo.db"))
    other = await SQLiteStore.open(str(tmp_path / "qo.db"))
    woken = asyncio.create_task(waiter.wait_for_work(worker="w", tasks=["work"], timeout_seconds=30))
    await asyncio.sleep(0)

    await submit(other, "a", now=None)

    assert (await woken).more
    await waiter.close()
    await other.close()


async def test_waiting_for_work_ends_without_any_when_the_time_is_up(store: SQLiteStore) -> None:
    await submit(store, "a", task="another", now=None)

    assert await store.wait_for_work(worker="w", tasks=["work"], timeout_seconds=0.05) == Claimed()


async def test_waiting_on_a_memory_store_does_not_wake_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    store = await SQLiteStore.open(":memory:")
    looks: list[int] = []
    really = is_claimable

    def noted(db: apsw.Connection, *, worker: str, tasks: Sequence[str], suspects: int | None, now: int) -> bool:
        looks.append(now)
        return really(db, worker=worker, tasks=tasks, suspects=suspects, now=now)

    monkeypatch.setattr(store_module, "is_claimable", noted)

    assert await store.wait_for_work(worker="w", tasks=["work"], timeout_seconds=0.25) == Claimed()

    assert 1 <= len(looks) <= 5  # at once, and every tenth of a second for what time itself brings
    await store.close()


@pytest.mark.parametrize("path", ["qo.db", ":memory:"])
async def test_who_waits_on_a_store_that_is_closed_is_told(tmp_path: Path, path: str) -> None:
    store = await SQLiteStore.open(path if path == ":memory:" else str(tmp_path / path))
    waiting = asyncio.create_task(store.events(0, timeout_seconds=30))
    await asyncio.sleep(0.02)

    await store.close()

    with pytest.raises(StoreUnavailable, match="is closed"):
        await waiting
    with pytest.raises(StoreUnavailable, match="is closed"):
        await store.jobs()


async def test_followers_are_woken_by_an_event(store: SQLiteStore) -> None:
    after = (await store.events(None)).cursor
    woken = asyncio.create_task(store.events(after, timeout_seconds=30))
    await asyncio.sleep(0)

    await submit(store, "a")

    assert (await woken).events
    assert [event.subject for event in (await store.events(after)).events] == ["a"]


SUBMIT_AT_THE_CAP = """
import asyncio, sys
from qo.store.sqlite import SQLiteStore
from qo.store.sqlite.operations import read_groups as watching
from qo.values import Accepted, Submission

async def main(path, name):
    store = await SQLiteStore.open(path)
    sys.stdin.readline()
    answers = await asyncio.gather(
        *(store.submit([Submission(id=f"{name}-{n}", task="work", cap=100)]) for n in range(25))
    )
    print(sum(isinstance(answer, Accepted) for (answer,) in answers))
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_hundred_submits_from_four_processes_at_99_of_100_admit_exactly_one(store: SQLiteStore) -> None:
    await store.submit([submission(f"job-{number}") for number in range(99)])
    commands = [program(SUBMIT_AT_THE_CAP, store.path, f"process-{number}") for number in range(4)]

    outputs = [process.output() for process in await run_at_once(commands)]

    assert sorted(outputs) == ["0\n", "0\n", "0\n", "1\n"]
    assert (await store.line(limit=0)).queued == 100


async def run_at_once(commands: list[list[str]]) -> list[Process]:
    """Start them, let all go on together, and wait for their ends."""
    with ExitStack() as until_the_end:
        processes = [until_the_end.enter_context(Process(command)) for command in commands]
        for process in processes:
            process.say("go")
        await asyncio.gather(*(process.ended() for process in processes))
    return processes


OPEN_AND_SUBMIT = """
import asyncio, sys
from qo.store.sqlite import SQLiteStore
from qo.values import Submission

async def main(path, name):
    sys.stdin.readline()
    store = await SQLiteStore.open(path)
    await store.submit([Submission(id=name, task="work")])
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_many_processes_may_make_the_same_new_file_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "qo.db")

    processes = await run_at_once([program(OPEN_AND_SUBMIT, path, f"process-{number}") for number in range(6)])

    store = await SQLiteStore.open(path)
    assert [process.ends() for process in processes] == [0] * 6
    assert (await store.line(limit=0)).queued == 6
    await store.close()
