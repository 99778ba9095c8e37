"""`kill -9` in the middle of operations, for real: nothing lost, nothing doubled, no slot leaked."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import apsw
from invariants import broken_invariants
from sqlite_snapshot import snapshot

from qo.job import State
from qo.store.base import HANDED_OVER_LEASE_MS
from qo.store.sqlite import SQLiteStore
from qo.store.values import Outcome

KILLS = 200
LEASE_MS = 400
TASKS = ("build", "mail")


async def test_two_processes_on_one_file_killed_200_times_lose_double_and_leak_nothing(tmp_path: Path) -> None:
    path, diary = tmp_path / "qo.db", tmp_path / "diary"
    store = await SQLiteStore.open(str(path))

    kills = 0
    async with killing(path, diary) as process:
        assert process.stdout is not None
        async for _ in process.stdout:
            kills += 1
            if kills % 10 == 0:
                assert broken_invariants(await snapshot(store)) == []
        assert await process.wait() == 0

    written = [line.split() for line in diary.read_text().splitlines()]
    assert kills == KILLS
    assert interrupted(written) >= KILLS // 4, "too few were killed in the middle of an operation to prove anything"
    await check_nothing_is_lost_or_doubled(store, written)
    await check_everything_is_freed_and_can_be_finished(store, written)
    await store.close()
    assert apsw.Connection(str(path)).execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@asynccontextmanager
async def killing(path: Path, diary: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """The program that keeps processes on the file and kills them; nothing of it outlives the test."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).parent / "killed_processes.py"),
        str(path),
        str(diary),
        str(KILLS),
        "1",
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def interrupted(written: list[list[str]]) -> int:
    """Operations that were begun and never answered, of those whose every answer is noted."""
    begun = sum(words[0] == "begin" for words in written)
    unnoted = sum(words in (["begin", "finish"], ["begin", "rule"], ["begin", "change"]) for words in written)
    answers = ("submitted", "claimed", "limited", "called", "reported", "tended")
    return begun - unnoted - sum(words[0] in answers for words in written)


def acknowledged(written: list[list[str]], word: str) -> list[str]:
    return [item for words in written if words[0] == word for item in words[1:]]


async def check_nothing_is_lost_or_doubled(store: SQLiteStore, written: list[list[str]]) -> None:
    jobs = {job.id: job for job in await store.jobs(limit=1_000_000)}
    submitted = acknowledged(written, "submitted")
    assert set(submitted) <= set(jobs)
    succeeded = Counter(acknowledged(written, "succeeded"))
    assert set(succeeded.values()) <= {1}
    assert all(jobs[job_id].state is State.SUCCEEDED for job_id in succeeded)
    tokens = acknowledged(written, "claimed")
    assert len(tokens) == len(set(tokens)) > 0
    assert len(submitted) > len(succeeded) > 0


async def check_everything_is_freed_and_can_be_finished(store: SQLiteStore, written: list[list[str]]) -> None:
    now = time.time_ns() // 1_000_000 + 2 * HANDED_OVER_LEASE_MS
    await store.catch_up(lease_ms=LEASE_MS, now=now)  # notes the gap, which delays expiry once
    now += LEASE_MS
    while (await store.catch_up(lease_ms=LEASE_MS, now=now)).more:
        pass
    for group in ("gpu", "mail"):
        await store.set_paused(group, False, now=now)
    state = await snapshot(store)
    assert (state["leases"], state["tickets"], state["slots"]) == ({}, {}, {})
    finished: Counter[str] = Counter()
    while claimed := (
        await store.claim(
            worker="last", tasks=TASKS, places=50, lease_ms=LEASE_MS, claim_id=f"last-{len(finished)}", now=now
        )
    ).leases:
        finished.update(lease.job.id for lease in claimed)
        await store.finish(
            [Outcome(job_id=lease.job.id, token=lease.token, state=State.SUCCEEDED) for lease in claimed], now=now
        )
    assert set(finished.values()) <= {1}
    assert {job.state for job in await store.jobs(limit=1_000_000)} == {State.SUCCEEDED}
    assert not set(finished) & set(acknowledged(written, "succeeded"))
