"""`kill -9` in the middle of every writing operation, for real: nothing lost, nothing doubled, no slot leaked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from itertools import count
from pathlib import Path

import apsw

from qo.job import Job, State
from qo.policy.checks import OUTCOMES
from qo.policy.days import day_of
from qo.store.contract import HANDED_OVER_LEASE_MS, Store
from qo.store.paging import read_jobs
from qo.store.sqlite import SQLiteStore
from qo.values import Outcome, Record, UpkeepRules
from tests.conformance.invariants import broken_invariants
from tests.conformance.suite.harness import at
from tests.processes import Process
from tests.store.killed_processes import Diary, killing
from tests.store.sqlite.snapshot import snapshot
from tests.store.victim import (
    ALL_ERRORS_KEPT,
    COUNTER,
    ERRORS_KEPT,
    FEW_ERRORS_KEPT,
    LEASE_MS,
    OBSERVED,
    PAUSED,
    REMINDER_AGES_MS,
    RUN_SECONDS,
    TASKS,
    now_ms,
    reminder_name,
)

KILLS = 200
SEED = 1
LONGEST_RUN_SECONDS = 300
EVERYTHING = 1_000_000

READING = {
    "job", "payload", "jobs", "line", "positions", "parent", "blockers", "leases", "groups", "usage", "series", "audit",
    "observed", "events", "signals", "wait_for_work", "records", "workers", "counts",
}  # fmt: skip
OPERATIONS = {name for name in dir(Store) if not name.startswith("_") and callable(getattr(Store, name))}
# Whatever else a store can do writes, also what is added to it some day: that is then missing in the diary.
WRITING = OPERATIONS - READING - {"close"}
VARIANTS = {
    "finish": OUTCOMES,
    "cancel": {"job", "parent"},
    "set_priority": {"job", "parent"},
    "set_limits": {"set", "remove"},
    "upkeep": {"age", "fail", "remind", "forget"},
    "observe": {"averages", "errors"},
}
KINDS = {f"{name}:{variant}" if variant else name for name in WRITING for variant in VARIANTS.get(name, {""})}

# One entry a call in the audit. A cancel or a priority has one for each job, which may be none or many.
ENTERED_ONCE = {"retry": "retry", "confirm": "confirm", "move": "move", "set_tier": "tier", "revoke": "release"}


async def test_two_processes_on_one_file_killed_200_times_lose_double_and_leak_nothing(tmp_path: Path) -> None:
    path, diary_path = tmp_path / "qo.db", tmp_path / "diary"
    store = await SQLiteStore.open(str(path))

    with killing(path, diary_path, kills=KILLS, seed=SEED, kinds=KINDS) as process:
        async with asyncio.timeout(LONGEST_RUN_SECONDS):
            await check_invariants_while_it_kills(store, process)

    diary = Diary(diary_path)
    check_every_writing_operation_was_interrupted(diary)
    await check_no_job_is_lost_or_doubled(store, diary)
    await check_what_can_be_counted(store, diary)
    await check_parents_were_changed_whole(store)
    await check_averages(store)
    await check_estimate_errors(store, diary)
    await check_counter(store)
    await check_quota(store)
    await check_everything_is_freed_and_ends_once(store, diary)
    await store.close()
    assert apsw.Connection(str(path)).execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_line_of_the_diary_that_a_kill_cut_in_two_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "p1").write_text("p1 begin finish:failed\np1 answered finish:failed one fai")
    (tmp_path / "p2").write_text("p2 begin finish:failed\np2 answered finish:failed two failed\n")

    diary = Diary(tmp_path)

    assert diary.ended_as(State.FAILED) == ["two"]
    assert diary.interrupted() == {"finish:failed": 1}


# --- what was done --------------------------------------------------------------------------------------------


async def check_invariants_while_it_kills(store: SQLiteStore, process: Process) -> None:
    for number in range(KILLS):
        assert await process.line_with("killed") == f"killed {number}"
        if number % 10 == 0:
            assert broken_invariants(await snapshot(store)) == []
    assert await process.ended() == 0


def check_every_writing_operation_was_interrupted(diary: Diary) -> None:
    assert READING <= OPERATIONS, "these are no longer operations of a store"
    assert set(diary.kinds("begin")) == KINDS
    # What was always refused, lost or found nothing to do has written nothing in the middle of which to be killed.
    assert set(diary.kinds("answered")) == KINDS
    assert set(diary.acknowledged("finish")[1::2]) == OUTCOMES
    assert all(diary.acknowledged(upkeep) for upkeep in ("catch_up", "upkeep:age", "upkeep:fail", "upkeep:remind"))
    interrupted = diary.interrupted()
    assert set(interrupted) == KINDS
    assert interrupted.total() >= KILLS // 2, "too few were killed in the middle of an operation to prove anything"


# --- what must be there ---------------------------------------------------------------------------------------


async def all_jobs(store: SQLiteStore) -> dict[str, Job]:
    return {job.id: job for job in await read_jobs(store, limit=EVERYTHING)}


async def check_no_job_is_lost_or_doubled(store: SQLiteStore, diary: Diary) -> None:
    jobs = await all_jobs(store)
    submitted, succeeded, cancelled = (
        diary.acknowledged("submit"),
        diary.ended_as(State.SUCCEEDED),
        diary.ended_as(State.CANCELLED),
    )
    assert set(submitted) <= set(jobs)
    assert parts_of_batches(jobs) == []
    assert len(submitted) > len(succeeded) == len(set(succeeded)) > 0
    assert {jobs[job_id].state for job_id in succeeded} == {State.SUCCEEDED}
    assert {jobs[job_id].state for job_id in cancelled} == {State.CANCELLED}
    tokens = diary.acknowledged("claim")
    assert len(tokens) == len(set(tokens)) > 0
    await check_every_end_is_counted_once(store)


def parts_of_batches(jobs: Iterable[str]) -> list[str]:
    """The submits of which only some jobs are there; an id is batch/size/number."""
    sizes = Counter(job_id.rpartition("/")[0] for job_id in jobs)
    return [batch for batch, size in sizes.items() if int(batch.rpartition("/")[2]) != size]


async def check_every_end_is_counted_once(store: SQLiteStore) -> None:
    """The figures know of every end, also of those that no process lived to hear of."""
    states = Counter(job.state for job in (await all_jobs(store)).values())
    figures: Counter[str] = Counter()
    for point in await store.series():
        figures[point.name] += point.count
    assert figures["submitted"] == states.total()
    for final in (State.SUCCEEDED, State.CANCELLED):
        assert figures[f"ended:{final}"] == states[final]


async def check_what_can_be_counted(store: SQLiteStore, diary: Diary) -> None:
    """All that was answered is there; beyond it, only what was interrupted after it had been written."""
    audited = Counter(entry.action for entry in await store.audit(limit=EVERYTHING))
    written = Counter({operation: audited[action] for operation, action in ENTERED_ONCE.items()})
    written["observe:averages"] = (await store.observed([OBSERVED.name])).averages[OBSERVED.name].count
    written["put_record"] = (await store.records(COUNTER)).get(COUNTER, Record()).version
    answered, interrupted = diary.kinds("answered"), diary.interrupted()
    answered["put_record"] = diary.acknowledged("put_record").count("True")
    for operation, times in written.items():
        assert 0 < answered[operation] <= times <= answered[operation] + interrupted[operation], operation


async def check_parents_were_changed_whole(store: SQLiteStore) -> None:
    """A change of a parent is in the audit for each job that was unfinished then; `by` tells the calls apart."""
    jobs = await all_jobs(store)
    entries = await store.audit(limit=EVERYTHING)
    retried = {entry.subject for entry in entries if entry.action == "retry"}
    calls: dict[tuple[str, datetime, str | None], set[str]] = {}
    for entry in entries:
        if entry.by is not None:
            calls.setdefault((entry.by, entry.at, jobs[entry.subject].parent), set()).add(entry.subject)
    for (call, ended_at, parent), changed in calls.items():
        left_out = [job for job in jobs.values() if job.parent == parent and job.id not in changed | retried]
        assert all(job.finished_at is not None and job.finished_at <= ended_at for job in left_out), call


async def check_averages(store: SQLiteStore) -> None:
    """Every success moved the average of its run, in the same step."""
    averages = (await store.observed([RUN_SECONDS.name])).averages
    assert averages[RUN_SECONDS.name].count == len(await read_jobs(store, status=State.SUCCEEDED, limit=EVERYTHING))


async def check_estimate_errors(store: SQLiteStore, diary: Diary) -> None:
    """A process recorded two at a time, a whole number and that and a half, which are there together or not at all."""
    recorded = (await store.observed(tasks=[ALL_ERRORS_KEPT])).errors[ALL_ERRORS_KEPT]
    acknowledged = set(map(float, diary.acknowledged("observe:errors")))
    assert acknowledged
    assert acknowledged <= set(recorded)
    assert set(Counter(map(int, recorded)).values()) == {2}
    assert len(recorded) == len(set(recorded))
    assert len((await store.observed(tasks=[FEW_ERRORS_KEPT])).errors[FEW_ERRORS_KEPT]) == ERRORS_KEPT[FEW_ERRORS_KEPT]


async def check_counter(store: SQLiteStore) -> None:
    """Every process counted on from the version it had read, so the value is the version unless a put was lost."""
    record = (await store.records(COUNTER)).get(COUNTER, Record())
    assert record.value == record.version


async def check_quota(store: SQLiteStore) -> None:
    """Every job is charged to its day, and those that were cancelled in time and never started are not."""
    state = await snapshot(store)
    today = day_of(now_ms())  # of the days before, the store may have forgotten what was charged
    charged = Counter(
        (row["job"].user, row["quota_day"]) for row in state["jobs"].values() if row["quota_day"] is not None
    )
    refunded = [row["job"] for row in state["jobs"].values() if row["job"].user and row["quota_day"] is None]
    assert all(job.state is State.CANCELLED and job.started_at is None for job in refunded)
    assert {key: used for key, used in charged.items() if key[1] >= today} == {
        key: used for key, used in state["quota"].items() if key[1] >= today
    }


async def check_no_reminder_comes_twice(store: SQLiteStore, diary: Diary, *, now: int) -> None:
    handed_out = Counter(diary.acknowledged("upkeep:remind"))
    while reminders := (await at(store, now).upkeep(UpkeepRules(reminder_ages_ms=REMINDER_AGES_MS))).reminders:
        handed_out.update(map(reminder_name, reminders))
        assert set(handed_out.values()) == {1}
    assert set(handed_out.values()) == {1}


# --- closing --------------------------------------------------------------------------------------------------


async def check_everything_is_freed_and_ends_once(store: SQLiteStore, diary: Diary) -> None:
    now = now_ms() + 2 * HANDED_OVER_LEASE_MS
    await check_everything_is_freed(store, now=now)
    now += LEASE_MS
    await check_no_reminder_comes_twice(store, diary, now=now)
    for job in await read_jobs(store, status=State.FAILED, limit=EVERYTHING):
        await at(store, now).retry(job.id)
    for job in await read_jobs(store, status=State.CONFIRMING, limit=EVERYTHING):
        await at(store, now).confirm(job.id)
    finished = await finish_all(store, now=now)
    assert len(finished) == len(set(finished)) > 0
    assert not set(finished) & {*diary.ended_as(State.SUCCEEDED), *diary.ended_as(State.CANCELLED)}
    await cancel_phases_that_can_never_start(store, now=now)
    assert {job.state for job in (await all_jobs(store)).values()} == {State.SUCCEEDED, State.CANCELLED}
    await check_every_end_is_counted_once(store)
    assert broken_invariants(await snapshot(store)) == []


async def check_everything_is_freed(store: SQLiteStore, *, now: int) -> None:
    # Nobody renews any more, so at the second gap at the latest all leases are over.
    for look in (now, now + LEASE_MS, now + 2 * LEASE_MS):
        while (await at(store, look).catch_up()).more:
            pass
    for group in PAUSED:
        await at(store, now + LEASE_MS).set_paused(group, False)
    state = await snapshot(store)
    assert (state["leases"], state["tickets"], state["slots"]) == ({}, {}, {})


async def finish_all(store: SQLiteStore, *, now: int) -> list[str]:
    """Run every job that can start, with the limits as they were left; their ids, as often as they ran."""
    finished: list[str] = []
    for number in count():
        claimed = await at(store, now).claim(
            worker="last", tasks=TASKS, capacity=50, lease_ms=LEASE_MS, claim_id=f"last-{number}"
        )
        outcomes = [Outcome(job_id=lease.job.id, token=lease.token, state=State.SUCCEEDED) for lease in claimed.leases]
        await at(store, now).finish(outcomes)
        finished += [outcome.job_id for outcome in outcomes]
        if not outcomes and not claimed.more:
            break
    return finished


async def cancel_phases_that_can_never_start(store: SQLiteStore, *, now: int) -> None:
    """Nothing else may be left: a phase whose predecessor has succeeded was lost when that one was finished."""
    jobs = await all_jobs(store)
    phases = {(job.parent, job.phase): job.state for job in jobs.values()}
    waiting = [job for job in jobs.values() if job.state is State.WAITING]
    assert {phases[phase_before(job)] for job in waiting} <= {State.CANCELLED, State.WAITING}
    for job in waiting:
        await at(store, now).cancel(job_id=job.id)


def phase_before(job: Job) -> tuple[str | None, int]:
    assert job.phase is not None
    return job.parent, job.phase - 1
