"""Suspects: jobs whose lease ran out, and how they are kept apart from their neighbours."""

from __future__ import annotations

import random
from typing import Any

import pytest

from qo.job import State
from qo.store.contract import Store
from qo.values import Lease, Suspicion
from tests.conformance.suite.harness import (
    DAY,
    LEASE,
    NOW,
    SECOND,
    acquire,
    active,
    ask_to_confirm,
    at,
    catch_up,
    claim,
    fail,
    group_status,
    hand_back,
    holders,
    ids,
    limit,
    line,
    numbered,
    pass_time,
    register,
    retry_later,
    state,
    submit,
    submit_all,
    succeed,
)

pytestmark = pytest.mark.small_bounds

LATER = NOW + LEASE
MUCH_LATER = LATER + LEASE


async def lose(store: Store, *, now: int = NOW) -> None:
    """Every lease runs out that was not renewed."""
    await pass_time(store, since=now, until=now + LEASE)


async def submit_suspects(store: Store, *job_ids: str, worker: str = "gone", **fields: Any) -> None:
    """Jobs that ran once, and whose worker is gone. The time is LATER then."""
    await submit_all(store, job_ids, **fields)
    taken = await claim(store, capacity=len(job_ids), worker=worker)
    assert ids(taken) == list(job_ids)
    await lose(store)


async def could_claim(store: Store, *, worker: str = "w1", now: int = LATER, suspects: int | None = None) -> bool:
    await catch_up(store, now=now)  # what is due may be a reason to claim, too
    waited = await at(store, now).wait_for_work(worker=worker, tasks=["work"], timeout_seconds=0, suspects=suspects)
    return waited.more


async def suspicion(store: Store, job_id: str) -> Suspicion:
    return (await store.blockers(job_id)).suspicion


# --- who is one -------------------------------------------------------------------------------------------------


async def test_a_job_whose_lease_ran_out_is_a_suspect_at_its_place(store: Store) -> None:
    await submit_suspects(store, "a", "b")
    await submit(store, "c", now=LATER)

    assert await line(store) == ["a", "b", "c"]
    assert [await suspicion(store, job_id) for job_id in "abc"] == [
        Suspicion.SUSPECT,
        Suspicion.SUSPECT,
        Suspicion.NONE,
    ]
    assert [job.suspicion for job in (await store.line(limit=3)).jobs] == [1, 1, 0]


async def test_a_lease_says_that_its_job_is_a_suspect(store: Store) -> None:
    await submit_suspects(store, "a")

    (lease,) = await claim(store, now=LATER, suspects=1)

    assert lease.suspicion is Suspicion.SUSPECT
    assert [one.suspicion for one in await store.leases()] == [Suspicion.SUSPECT]


async def test_a_job_whose_lease_was_revoked_or_handed_back_is_no_suspect(store: Store) -> None:
    await limit(store, "gpu", 5)
    await submit_all(store, ["revoked", "back"], groups=("gpu",))
    _, back = await claim(store, capacity=2)

    await at(store, NOW).revoke("gpu", 0, force=True)
    await hand_back(store, back)

    assert [await suspicion(store, job_id) for job_id in ("revoked", "back")] == [Suspicion.NONE, Suspicion.NONE]


@pytest.mark.parametrize("way", ["retry", "hand_back", "confirm", "revoke"])
async def test_a_run_that_ends_in_another_way_clears_a_suspect(store: Store, way: str) -> None:
    await limit(store, "gpu", 5)
    await submit_suspects(store, "a", groups=("gpu",))
    (lease,) = await claim(store, now=LATER, suspects=1)

    if way == "retry":
        await retry_later(store, lease, at=LATER, now=LATER)
        await catch_up(store, now=LATER)
    elif way == "hand_back":
        await hand_back(store, lease, now=LATER)
    elif way == "confirm":
        await ask_to_confirm(store, lease, now=LATER)
        await at(store, LATER).confirm("a")
    else:
        await at(store, LATER).revoke("gpu", 0, force=True)

    assert (await state(store, "a"), await suspicion(store, "a")) == (State.QUEUED, Suspicion.NONE)
    assert ids(await claim(store, now=LATER, suspects=0)) == ["a"]


async def test_a_job_that_failed_because_its_leases_ran_out_is_a_suspect_again_when_it_is_retried(store: Store) -> None:
    await submit_all(store, ["one", "two"], max_attempts=1)
    await claim(store, capacity=1)
    await lose(store)
    assert await state(store, "one") is State.FAILED

    await at(store, LATER).retry("one")

    assert await suspicion(store, "one") is Suspicion.LAST


async def test_a_job_that_failed_in_its_own_way_is_no_suspect_when_it_is_retried(store: Store) -> None:
    await submit_suspects(store, "a")
    (lease,) = await claim(store, now=LATER)
    await fail(store, lease, now=LATER)

    await at(store, LATER).retry("a")

    assert await suspicion(store, "a") is Suspicion.NONE


# --- how many at once -------------------------------------------------------------------------------------------


async def test_a_claim_takes_no_more_suspects_than_it_names(store: Store) -> None:
    await submit_suspects(store, "a", "b", "c")
    await submit_all(store, ["x", "y"], now=LATER)

    assert ids(await claim(store, capacity=4, now=LATER, suspects=2)) == ["a", "b", "x", "y"]
    assert ids(await claim(store, capacity=4, now=LATER, suspects=0)) == []
    assert ids(await claim(store, capacity=4, now=LATER, suspects=1)) == ["c"]


async def test_a_worker_that_may_take_no_suspect_waits(store: Store) -> None:
    await submit_suspects(store, "a")

    assert not await could_claim(store, suspects=0)
    assert await could_claim(store, suspects=1)
    await submit(store, "x", now=LATER)
    assert await could_claim(store, suspects=0)


async def test_a_suspect_that_lacks_a_group_is_parked_apart_from_innocent_jobs(store: Store) -> None:
    await submit_suspects(store, "a", groups=("gpu",))
    await limit(store, "gpu", 0, now=LATER)
    await submit(store, "x", now=LATER, groups=("gpu",))
    assert await claim(store, now=LATER, capacity=2) == []

    assert (await group_status(store, "gpu")).waiting == 2
    await limit(store, "gpu", 2, now=LATER)
    assert not await could_claim(store, suspects=0) or ids(await claim(store, now=LATER, suspects=0)) == ["x"]
    assert ids(await claim(store, now=LATER, suspects=1)) == ["a"]


async def test_suspects_stand_behind_the_gates_of_their_task(store: Store) -> None:
    await submit_suspects(store, "a", "b")
    await limit(store, "work", 1, now=LATER)

    assert ids(await claim(store, capacity=2, now=LATER)) == ["a"]
    assert not await could_claim(store)


async def test_a_caller_may_pass_a_suspect_but_not_an_innocent_job(store: Store) -> None:
    await submit_suspects(store, "a", groups=("gpu",))
    await limit(store, "gpu", 1, now=LATER)
    await register(store, "w1", "work", capacity=5, now=LATER)

    await acquire(store, "caller", "gpu", now=LATER)

    assert await holders(store, "gpu") == {0: "caller"}


# --- the last start ---------------------------------------------------------------------------------------------


async def submit_last_suspect(store: Store, job_id: str = "last", **fields: Any) -> None:
    await submit_suspects(store, job_id, max_attempts=2, **fields)


async def test_a_suspect_whose_next_start_is_its_last_is_taken_alone(store: Store) -> None:
    await submit_last_suspect(store)
    await submit_all(store, ["x", "y"], now=LATER)

    (lease,) = await claim(store, capacity=5, now=LATER, suspects=5)

    assert (lease.job_id, lease.suspicion) == ("last", Suspicion.LAST)
    assert not await could_claim(store)
    assert await claim(store, capacity=5, now=LATER) == []
    await succeed(store, lease, now=LATER)
    assert ids(await claim(store, capacity=5, now=LATER)) == ["x", "y"]


async def test_three_attempts_make_the_second_loss_the_one_before_the_last(store: Store) -> None:
    await submit_suspects(store, "a", "b", max_attempts=3)
    assert len(await claim(store, capacity=2, now=LATER, worker="gone")) == 2
    await lose(store, now=LATER)

    assert [await suspicion(store, job_id) for job_id in "ab"] == [Suspicion.LAST, Suspicion.LAST]
    assert ids(await claim(store, capacity=2, now=MUCH_LATER, worker="w1")) == ["a"]
    assert ids(await claim(store, capacity=2, now=MUCH_LATER, worker="w2")) == ["b"]


async def test_a_worker_that_runs_a_job_passes_a_last_suspect_by(store: Store) -> None:
    await submit_last_suspect(store)
    await submit_all(store, ["x", "y"], now=LATER)
    await submit(store, "o", task="other", now=LATER)
    assert ids(await claim(store, tasks=["other"], now=LATER)) == ["o"]

    assert ids(await claim(store, capacity=5, now=LATER)) == ["x", "y"]


async def test_a_worker_that_may_take_no_suspect_passes_a_last_suspect_by(store: Store) -> None:
    await submit_last_suspect(store)
    await submit(store, "x", now=LATER)

    assert ids(await claim(store, capacity=5, now=LATER, suspects=0)) == ["x"]


async def busy(store: Store, worker: str, jobs: int, *, now: int = LATER) -> list[Lease]:
    """A registered worker that runs so many jobs of another task."""
    await register(store, worker, "work", "other", capacity=9, now=now, lifetime_ms=DAY)
    await submit_all(store, numbered(worker, jobs), task="other", now=now)
    leases = await claim(store, capacity=jobs, tasks=["other"], worker=worker, now=now)
    assert len(leases) == jobs
    return leases


async def test_the_worker_with_the_fewest_jobs_becomes_empty_for_a_last_suspect(store: Store) -> None:
    await submit_last_suspect(store)
    few, many = await busy(store, "w2", 2), await busy(store, "w1", 3)
    await submit_all(store, ["x", "y", "z"], now=LATER)

    assert not await could_claim(store, worker="w2")
    assert ids(await claim(store, capacity=9, worker="w2", now=LATER)) == []
    assert await could_claim(store, worker="w1")
    assert ids(await claim(store, capacity=1, worker="w1", now=LATER)) == ["x"]
    await succeed(store, few[0], now=LATER)
    assert ids(await claim(store, capacity=9, worker="w2", now=LATER)) == []
    await succeed(store, few[1], now=LATER)
    assert await could_claim(store, worker="w2")
    assert ids(await claim(store, capacity=9, worker="w2", now=LATER)) == ["last"]
    assert len(many) == 3


async def test_of_several_workers_with_the_fewest_jobs_the_first_by_name_becomes_empty(store: Store) -> None:
    await submit_last_suspect(store)
    await busy(store, "w2", 1)
    await busy(store, "w1", 1)
    await submit_all(store, ["x", "y"], now=LATER)

    assert ids(await claim(store, worker="w1", now=LATER)) == []
    assert ids(await claim(store, worker="w2", now=LATER)) == ["x"]


async def test_jobs_before_a_last_suspect_are_taken_also_by_the_worker_that_becomes_empty(store: Store) -> None:
    await submit_last_suspect(store)
    await busy(store, "w1", 1)
    await submit(store, "sooner", now=LATER, priority=10)
    await submit(store, "behind", now=LATER)

    assert ids(await claim(store, capacity=9, worker="w1", now=LATER)) == ["sooner"]
    assert not await could_claim(store, worker="w1")


async def test_a_last_suspect_that_lacks_a_group_empties_no_worker(store: Store) -> None:
    await submit_last_suspect(store, groups=("gpu",))
    await busy(store, "w1", 1)
    await limit(store, "gpu", 0, now=LATER)
    await submit(store, "x", now=LATER)

    assert ids(await claim(store, capacity=9, worker="w1", now=LATER)) == ["x"]
    await submit(store, "y", now=LATER)
    await limit(store, "gpu", 1, now=LATER)
    assert ids(await claim(store, capacity=9, worker="w1", now=LATER)) == []
    await at(store, LATER).cancel(job_id="last")
    assert await could_claim(store, worker="w1")
    assert ids(await claim(store, capacity=9, worker="w1", now=LATER)) == ["y"]


async def test_a_worker_that_is_not_heard_of_for_a_lease_empties_itself_for_nobody(store: Store) -> None:
    await register(store, "dead", "work", capacity=9, lifetime_ms=DAY)
    await submit_last_suspect(store)
    await busy(store, "w1", 1)
    await submit(store, "x", now=LATER)

    assert ids(await claim(store, capacity=9, worker="w1", now=LATER)) == []


async def test_a_worker_that_does_not_handle_the_task_empties_itself_for_nobody(store: Store) -> None:
    await submit_last_suspect(store)
    await register(store, "w0", "else", capacity=9, now=LATER, lifetime_ms=DAY)
    await busy(store, "w1", 1)
    await submit(store, "x", now=LATER)

    assert ids(await claim(store, capacity=9, worker="w1", now=LATER)) == []


async def test_slots_are_not_left_for_jobs_of_a_worker_that_runs_a_last_suspect(store: Store) -> None:
    await submit_last_suspect(store)
    await register(store, "w1", "work", capacity=9, now=LATER, lifetime_ms=DAY)
    assert ids(await claim(store, capacity=9, now=LATER)) == ["last"]
    await limit(store, "gpu", 1, now=LATER)
    await submit(store, "x", now=LATER, groups=("gpu",))

    await acquire(store, "caller", "gpu", now=LATER)

    assert await holders(store, "gpu") == {0: "caller"}
    assert await active(store, "gpu") == 1


# --- jobs that kill their process --------------------------------------------------------------------------------


class CrashingWorker:
    """A worker process by its rule: how many suspects it takes, and that its end loses all its leases."""

    def __init__(self, store: Store, poison: set[str], number: int, now: int) -> None:
        self.store, self.poison, self.name, self.now = store, poison, f"w{number}", now
        self.allowance, self.ended_well = 1, 0

    async def run(self) -> bool:
        """Until a job kills it (True), or nothing is left."""
        await register(self.store, self.name, "work", capacity=100, now=self.now, lifetime_ms=30 * SECOND)
        while True:
            leases = await claim(self.store, capacity=100, worker=self.name, now=self.now, suspects=self.allowance)
            if any(lease.job_id in self.poison for lease in leases):
                return True
            if not leases:
                return False
            await succeed(self.store, *leases, now=self.now)
            for _ in [lease for lease in leases if lease.suspicion]:
                self.ended_well += 1
                if self.ended_well == self.allowance:
                    self.allowance, self.ended_well = 2 * self.allowance, 0


@pytest.mark.small_bounds(apply=False)
@pytest.mark.parametrize(("poisonous", "innocent"), [(1, 19), (3, 27), (5, 55)])
async def test_jobs_that_kill_their_process_fail_and_no_other_job_does(
    store: Store, poisonous: int, innocent: int
) -> None:
    jobs = numbered("job", poisonous + innocent)
    poison = set(random.Random(poisonous).sample(jobs, poisonous))
    await submit_all(store, jobs)

    crashes, now = 0, NOW
    while await CrashingWorker(store, poison, crashes, now).run():
        crashes += 1
        await pass_time(store, since=now, until=now + LEASE)
        now += LEASE

    failed = {job_id for job_id in jobs if await state(store, job_id) is State.FAILED}
    succeeded = {job_id for job_id in jobs if await state(store, job_id) is State.SUCCEEDED}
    assert (failed, len(succeeded)) == (poison, innocent)
    assert crashes <= 3 * poisonous
