"""What a job keeps of its past: states and stages, attempts, and the first promise; and jobs counted by state."""

from __future__ import annotations

import pytest

from qo.job import LOST, REVOKED, Attempt, Job, JobError, JobHistory, Promise, Reached, State, moment
from qo.policy.job_history import KEPT_ATTEMPTS, KEPT_STATES
from qo.store.contract import Store
from qo.values import Advance, Keep, Lease, Outcome, UpkeepRules
from tests.conformance.suite.harness import (
    HOUR,
    LEASE,
    MINUTE,
    NOW,
    at,
    claim,
    fail,
    finish,
    limit,
    pass_time,
    start,
    submit,
    submit_all,
    succeed,
)


async def history(store: Store, job_id: str) -> JobHistory:
    found = (await store.job(job_id)).history
    assert found is not None
    return found


async def states(store: Store, job_id: str) -> list[tuple[str, int]]:
    return [(each.status, round(each.at.timestamp() * 1000) - NOW) for each in (await history(store, job_id)).states]


async def advance(store: Store, lease: Lease, stage: str, *, now: int) -> None:
    await at(store, now).advance([Advance(job_id=lease.job_id, token=lease.token, stage=stage)])


# --- states and stages ----------------------------------------------------------------------------------------


async def test_states_and_stages_are_kept_with_their_times(store: Store) -> None:
    await submit(store, "a", run_at_ms=NOW + 10)
    (lease,) = await claim(store, now=NOW + 10)
    await advance(store, lease, "code", now=NOW + 20)
    await advance(store, lease, "code", now=NOW + 25)
    await advance(store, lease, "checks", now=NOW + 30)
    await at(store, NOW + 40).finish([Outcome(job_id="a", token=lease.token, state=State.SUCCEEDED)])

    assert await states(store, "a") == [
        ("scheduled", 0),
        ("queued", 10),
        ("starting", 10),
        ("running", 20),
        ("code", 20),
        ("checks", 30),
        ("succeeded", 40),
    ]


async def test_a_job_that_waits_for_its_phase_says_so(store: Store) -> None:
    await submit(store, "first", parent="p", phase=1)
    await submit(store, "second", parent="p", phase=2)

    assert await states(store, "second") == [("waiting", 0)]


async def test_only_the_newest_states_are_kept(store: Store) -> None:
    lease = await start(store, "a")
    stages = [f"stage-{number}" for number in range(KEPT_STATES + 3)]
    for stage in stages:
        await advance(store, lease, stage, now=NOW)

    assert [status for status, _ in await states(store, "a")] == stages[-KEPT_STATES:]


async def test_lists_have_the_history_and_answers_to_changes_have_not(store: Store) -> None:
    submitted = await submit(store, "a")
    (listed,) = (await store.jobs()).jobs
    (named,) = (await store.jobs(ids=["a"])).jobs
    (changed,) = await at(store, NOW).set_priority(20, job_id="a")

    assert listed.history == named.history == JobHistory(states=(Reached("queued", moment(NOW)),))
    assert submitted.history is changed.history is None


# --- attempts -------------------------------------------------------------------------------------------------


async def test_attempts_are_kept_with_worker_slots_times_and_outcome(store: Store) -> None:
    await limit(store, "gpu", 2)
    await submit(store, "a", groups=("gpu",), max_attempts=3)
    (first,) = await claim(store, worker="w1")
    error = JobError(message="No.", debug_id="d1")
    await at(store, NOW + 5).finish(
        [Outcome(job_id="a", token=first.token, state=State.SCHEDULED, error=error, retry_after_ms=0)]
    )
    (second,) = await claim(store, worker="w2", now=NOW + 7)
    await at(store, NOW + 9).finish([Outcome(job_id="a", token=second.token, state=State.SUCCEEDED)])

    assert (await history(store, "a")).attempts == (
        Attempt(
            number=1,
            worker="w1",
            slots={"gpu": 0},
            started_at=moment(NOW),
            ended_at=moment(NOW + 5),
            outcome="scheduled",
            debug_id="d1",
        ),
        Attempt(
            number=2,
            worker="w2",
            slots={"gpu": 0},
            started_at=moment(NOW + 7),
            ended_at=moment(NOW + 9),
            outcome="succeeded",
        ),
    )


async def test_a_lost_and_a_revoked_lease_are_attempts_too(store: Store) -> None:
    await limit(store, "gpu", 1)
    await submit(store, "a", groups=("gpu",), max_attempts=5)
    await claim(store)
    await pass_time(store, since=NOW, until=NOW + LEASE)
    await claim(store, now=NOW + LEASE)
    await at(store, NOW + LEASE + 1).revoke("gpu", 0, force=True)

    outcomes = [(each.number, each.outcome, each.slots) for each in (await history(store, "a")).attempts]
    assert outcomes == [(1, LOST, {"gpu": 0}), (2, REVOKED, {"gpu": 0})]


async def test_a_job_that_is_handed_back_has_no_attempt_to_show(store: Store) -> None:
    lease = await start(store, "a")
    await finish(store, lease, State.QUEUED)

    assert (await history(store, "a")).attempts == ()
    assert [status for status, _ in await states(store, "a")] == ["queued", "starting", "queued"]


async def test_only_the_newest_attempts_are_kept(store: Store) -> None:
    await submit(store, "a", max_attempts=100)
    for _ in range(KEPT_ATTEMPTS + 2):
        (lease,) = await claim(store)
        await finish(store, lease, State.SCHEDULED, retry_after_ms=0)

    numbers = [each.number for each in (await history(store, "a")).attempts]
    assert numbers == list(range(3, KEPT_ATTEMPTS + 3))


# --- promises -------------------------------------------------------------------------------------------------


async def promised(store: Store, job_id: str) -> Promise | None:
    return (await history(store, job_id)).promise


async def test_the_first_promise_stays(store: Store) -> None:
    await submit(store, "a")
    await at(store, NOW + 1).note_promises({"a": (2_000, 5_000), "nobody": (0, 1)})
    await at(store, NOW + 2).note_promises({"a": (0, 1)})

    assert await promised(store, "a") == Promise(made_at=moment(NOW + 1), lower_bound=2.0, upper_bound=5.0)


async def test_only_a_job_in_line_that_never_started_is_promised_something(store: Store) -> None:
    await fail(store, await start(store, "failed"))
    await at(store, NOW).retry("failed")
    await start(store, "held")
    await submit(store, "later", run_at_ms=NOW + HOUR)
    jobs = ("failed", "held", "later")

    await at(store, NOW).note_promises(dict.fromkeys(jobs, (0, 1)))

    assert [await promised(store, job_id) for job_id in jobs] == [None, None, None]


@pytest.mark.parametrize(
    ("started_after", "name"), [(1_999, "missed"), (2_000, "kept"), (5_000, "kept"), (5_001, "missed")]
)
async def test_a_start_inside_the_promised_range_is_counted(store: Store, started_after: int, name: str) -> None:
    await submit_all(store, "ab")
    await at(store, NOW).note_promises({"a": (2_000, 5_000)})
    leases = await claim(store, capacity=2, now=NOW + started_after)
    await finish(store, leases[0], State.SCHEDULED, retry_after_ms=0)
    await claim(store, now=NOW + started_after)

    points = await store.series(prefix="promise:")

    assert [(point.name, point.count, point.total_ms) for point in points] == [(f"promise:{name}", 1, started_after)]


# --- counts and depth -----------------------------------------------------------------------------------------


async def test_jobs_are_counted_by_state(store: Store) -> None:
    await submit_all(store, ["q1", "q2"])
    await submit(store, "later", run_at_ms=NOW + HOUR)
    await submit(store, "waits", parent="p", phase=2)
    await succeed(store, await start(store, "done"))
    await fail(store, await start(store, "failed"))
    await start(store, "held")
    await at(store, NOW).cancel(job_id="q2")

    assert await store.counts() == {
        State.QUEUED: 1,
        State.SCHEDULED: 1,
        State.WAITING: 1,
        State.SUCCEEDED: 1,
        State.FAILED: 1,
        State.STARTING: 1,
        State.CANCELLED: 1,
    }


async def test_forgotten_jobs_are_not_counted(store: Store) -> None:
    await succeed(store, await start(store, "done"))
    await at(store, NOW + HOUR).upkeep(UpkeepRules(keep=Keep(ms=0, jobs=0, events=10, audit=10)))

    assert await store.counts() == {}


async def depth(store: Store) -> dict[int, int]:
    points = await store.series(prefix="depth")
    return {point.minute - NOW // MINUTE: point.count for point in points}


async def test_the_depth_of_the_line_is_kept_for_each_minute_that_changed_it(store: Store) -> None:
    await submit_all(store, "abc")
    await claim(store)
    await claim(store, now=NOW + 2 * MINUTE)
    await at(store, NOW + 3 * MINUTE).set_priority(20, job_id="c")

    assert await depth(store) == {0: 2, 2: 1}


async def test_the_depth_of_old_minutes_is_not_summed_up(store: Store) -> None:
    await submit(store, "a")
    await at(store, NOW + HOUR).upkeep(UpkeepRules(keep=Keep(ms=MINUTE, jobs=10, events=10, audit=10)))

    assert await depth(store) == {}
    assert [point.minute for point in await store.series(prefix="submitted")] == [0]


# --- traces ---------------------------------------------------------------------------------------------------


async def test_a_job_keeps_the_trace_it_was_submitted_in(store: Store) -> None:
    job: Job = await submit(store, "a", trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    (lease,) = await claim(store)

    assert job.trace == lease.job.trace == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
