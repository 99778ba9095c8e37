"""The slots of a group over time: which run gets which number."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qo.job import Job, State, moment
from qo.policy.estimates.forecast import forecast_line
from qo.policy.estimates.replay import NEVER
from qo.policy.estimates.situation import Situation
from qo.policy.estimates.timeline import MOST_EXPECTED, NOTE, EndedAttempt, Run, deal_out, timeline_of
from qo.settings import Settings
from qo.values import GroupStatus, InLine, Lease, Mean, SlotInfo, WorkerInfo

START_MS = 1_800_000_000_000
NOW = moment(START_MS)
GPU = ("global", "build", "gpu")


def run(job: str, starts: float, ends: float) -> Run:
    return Run(job=job, starts=starts, ends=ends)


def dealt(runs: list[Run], *, limit: int | None = 2, **frees_after: float) -> list[tuple[int, str]]:
    held = {int(slot.removeprefix("slot_")): after for slot, after in frees_after.items()}
    return [(slot, each.job) for slot, each in deal_out(runs, limit=limit, frees_after=held)]


# --- which slot -----------------------------------------------------------------------------------------------


def test_a_run_gets_the_lowest_number_that_is_free_when_it_starts() -> None:
    runs = [run("a", 0, 10), run("b", 0, 5), run("c", 5, 20), run("d", 10, 20)]

    assert dealt(runs) == [(0, "a"), (0, "d"), (1, "b"), (1, "c")]


def test_a_number_that_is_held_now_is_dealt_out_when_it_is_free() -> None:
    assert dealt([run("a", 0, 10), run("b", 3, 10)], slot_0=3) == [(0, "b"), (1, "a")]
    assert dealt([run("a", 4, 10)], slot_0=3, slot_1=4) == [(0, "a")]


def test_a_number_that_a_caller_keeps_is_never_dealt_out() -> None:
    assert dealt([run("a", 0, 10), run("b", 10, 20)], slot_0=NEVER) == [(1, "a"), (1, "b")]


def test_a_number_above_a_lowered_limit_is_not_used_again() -> None:
    assert dealt([run("a", 7, 10)], limit=2, slot_0=NEVER, slot_1=7, slot_2=5) == [(1, "a")]
    assert dealt([run("a", 5, 10)], limit=2, slot_0=NEVER, slot_1=7, slot_2=5) == []


def test_without_a_limit_there_is_always_one_more_number() -> None:
    runs = [run(str(number), 0, 10) for number in range(3)]

    assert dealt(runs, limit=None) == [(0, "0"), (1, "1"), (2, "2")]


def test_a_slot_has_at_most_so_many_runs() -> None:
    runs = [run(str(number), number, number + 1) for number in range(MOST_EXPECTED + 5)]

    assert len(dealt(runs, limit=1)) == MOST_EXPECTED


@given(
    times=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5)), max_size=30),
    held=st.dictionaries(st.integers(0, 4), st.one_of(st.integers(0, 10), st.just(NEVER)), max_size=4),
    limit=st.integers(1, 6),
)
def test_no_slot_has_two_at_once_and_a_lower_free_number_is_never_passed_over(
    times: list[tuple[int, int]], held: dict[int, float], limit: int
) -> None:
    runs = [run(str(number), start, start + lasts) for number, (start, lasts) in enumerate(times)]

    found = deal_out(runs, limit=limit, frees_after=held)

    busy: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for slot, after in held.items():
        busy[slot].append((0, after))
    by_job = {each.job: slot for slot, each in found}
    for each in sorted(runs, key=lambda one: one.starts):
        free = [slot for slot in range(limit) if not any(begin <= each.starts < end for begin, end in busy[slot])]
        assert by_job.get(each.job) == (free[0] if free else None)
        if free:
            busy[free[0]].append((each.starts, each.ends))


# --- the whole ------------------------------------------------------------------------------------------------


def in_line(job_id: str) -> InLine:
    return InLine(id=job_id, task="build", key=int(job_id.removeprefix("j")), groups=GPU)


def running(job_id: str, slot: int) -> Lease:
    job = Job(
        id=job_id,
        task="build",
        state=State.RUNNING,
        status="running",
        priority=50,
        groups=GPU,
        submitted_at=NOW,
        attempts=1,
        worker="w",
        started_at=NOW,
    )
    return Lease.of(job, token=str(START_MS * 1000 + slot), expires_at_ms=START_MS + 60_000, slots={"gpu": slot})


def held_by(holder: str, slot: int, *, token: str) -> SlotInfo:
    expires_at = moment(START_MS + 60_000)
    return SlotInfo(slot_id=slot, holder=holder, worker_id="w", expires_at=expires_at, token=token)


def gpu(*slots: SlotInfo) -> GroupStatus:
    return GroupStatus(group="gpu", limit=2, active=len(slots), slots=slots)


def a_situation(lease: Lease, status: GroupStatus) -> Situation:
    worker = WorkerInfo(
        name="w", tasks=("build",), capacity=5, running=1, registered_at=NOW, heard_at=NOW, expires_at=NOW
    )
    return Situation(
        now=START_MS / 1000,
        line=[in_line("j1"), in_line("j2")],
        leases=[lease],
        groups=[status],
        workers=[worker],
        means={"duration:task:build": Mean(value=60, square=3600, count=50)},
    )


def test_a_timeline_has_what_ran_what_holds_and_what_is_expected() -> None:
    lease = running("runs", 0)
    status = gpu(held_by("runs", 0, token=lease.token), held_by("caller", 1, token=str(START_MS * 1000 + 5_000)))
    ended = [
        EndedAttempt(
            job=job,
            worker="w",
            slots=slots,
            started_at=NOW - timedelta(minutes=minutes),
            ended_at=NOW - timedelta(minutes=minutes - 1),
            outcome="succeeded",
        )
        for job, slots, minutes in [("b", {"gpu": 1}, 3), ("a", {"gpu": 0}, 5), ("elsewhere", {"api": 0}, 9)]
    ]

    found = timeline_of(status, ended=ended, forecast=forecast_line(a_situation(lease, status), Settings()))

    assert found.since == NOW - timedelta(minutes=5)
    assert [(ran.slot, ran.job, ran.outcome) for ran in found.past] == [(0, "a", "succeeded"), (1, "b", "succeeded")]
    runs, caller = found.now
    assert (runs.slot, runs.holder, runs.worker, runs.since) == (0, "runs", "w", NOW)
    assert runs.ends_at is not None
    assert (runs.ends_at - NOW).total_seconds() == pytest.approx(60, rel=0.2)
    assert (caller.holder, caller.since, caller.ends_at) == ("caller", moment(START_MS + 5), None)
    # The caller keeps its slot, so both have to go through the other one.
    assert [(each.slot, each.job) for each in found.forecast] == [(0, "j1"), (0, "j2")]
    assert found.forecast[0].starts_at == runs.ends_at
    assert found.forecast[1].starts_at == found.forecast[0].ends_at
    assert found.note == NOTE


def test_a_job_that_started_since_the_replay_is_not_expected_once_more() -> None:
    lease = running("runs", 0)
    before = gpu(held_by("runs", 0, token=lease.token))
    forecast = forecast_line(a_situation(lease, before), Settings())
    now = gpu(*before.slots, held_by("j1", 1, token="5"))

    found = timeline_of(now, ended=(), forecast=forecast)

    assert [each.job for each in found.forecast] == ["j2"]
    assert found.now[1].ends_at is not None
    assert (found.since, found.past) == (None, [])
