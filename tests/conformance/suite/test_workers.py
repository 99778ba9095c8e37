"""The worker registry: who is alive, for which tasks, with what they bring along."""

from __future__ import annotations

import pytest

from qo.job import moment
from qo.store.contract import Store
from qo.values import TaskOptions, WorkerInfo
from tests.conformance.suite.harness import (
    NOW,
    SECOND,
    acquire,
    at,
    claim,
    group_status,
    ids,
    limit,
    line,
    register,
    start,
    submit,
    submit_all,
    succeed,
)

pytestmark = pytest.mark.small_bounds


async def test_a_registered_worker_is_listed_with_what_it_does(store: Store) -> None:
    await register(store, "w1", "build", "mail", capacity=4, host="h1", pid=7, lifetime_ms=30_000)
    await start(store, "a", task="build", worker="w1")

    (worker,) = await at(store, NOW).workers()

    assert worker == WorkerInfo(
        name="w1",
        tasks=("build", "mail"),
        capacity=4,
        running=1,
        registered_at=moment(NOW),
        heard_at=moment(NOW),
        expires_at=moment(NOW + 30_000),
        host="h1",
        pid=7,
    )


async def test_workers_are_listed_by_name(store: Store) -> None:
    for name in ("w2", "w10", "w1"):
        await register(store, name, "work")

    assert [worker.name for worker in await at(store, NOW).workers()] == ["w1", "w10", "w2"]


async def test_a_worker_that_is_not_renewed_is_no_longer_listed(store: Store) -> None:
    await register(store, "w1", "work", lifetime_ms=30_000)

    alive, gone = await at(store, NOW + 29_999).workers(), await at(store, NOW + 30_000).workers()

    assert ([worker.name for worker in alive], gone) == (["w1"], ())


async def test_a_renewal_keeps_a_worker_alive_for_its_own_lifetime(store: Store) -> None:
    await register(store, "w1", "work", lifetime_ms=30_000)

    await at(store, NOW + 20 * SECOND).renew([], worker="w1")

    (worker,) = await at(store, NOW + 40 * SECOND).workers()
    assert worker.expires_at == moment(NOW + 50 * SECOND)


async def test_a_renewal_of_a_worker_nobody_knows_adds_none(store: Store) -> None:
    await at(store, NOW).renew([], worker="stranger")

    assert await at(store, NOW).workers() == ()


async def test_a_worker_without_tasks_is_gone(store: Store) -> None:
    await register(store, "w1", "work")

    await register(store, "w1")

    assert await at(store, NOW).workers() == ()


async def test_a_worker_that_says_goodbye_keeps_its_leases_until_it_gives_them_back(store: Store) -> None:
    await register(store, "w1", "work")
    await submit(store, "a")
    (lease,) = await claim(store, worker="w1")

    await register(store, "w1")

    assert [one.job.id for one in await store.leases(worker="w1")] == ["a"]
    assert not (await succeed(store, lease))[0].lost


async def test_a_worker_need_not_be_registered_to_claim(store: Store) -> None:
    await submit(store, "a")

    assert ids(await claim(store, worker="unknown")) == ["a"]


async def test_the_groups_of_a_task_are_those_of_the_newest_worker(store: Store) -> None:
    await register(store, "w1", TaskOptions(name="work", groups=("gpu",)))
    first = await submit(store, "a")

    await register(store, "w2", TaskOptions(name="work", groups=("api",)))
    second = await submit(store, "b")

    assert "gpu" in first.groups
    assert "api" in second.groups
    assert "gpu" not in second.groups


async def test_a_tasks_groups_limit_its_jobs(store: Store) -> None:
    await register(store, "w1", TaskOptions(name="work", groups=("gpu",)))
    await limit(store, "gpu", 1)
    await submit_all(store, "abc")

    claimed = await claim(store, capacity=9)

    assert (ids(claimed), claimed[0].slots) == (["a"], {"gpu": 0})


async def test_jobs_parked_in_a_group_that_their_task_no_longer_names_go_on(store: Store) -> None:
    await register(store, "w1", TaskOptions(name="work", groups=("gpu",)))
    await limit(store, "gpu", 0)
    await submit_all(store, "abc")
    blocked = await claim(store, capacity=9)

    await register(store, "w2", "work")

    assert blocked == []
    assert (await group_status(store, "gpu")).waiting == 0
    assert await line(store) == ["a", "b", "c"]
    assert ids(await claim(store, capacity=9)) == ["a", "b", "c"]


async def test_jobs_that_name_the_group_themselves_stay_parked(store: Store) -> None:
    await register(store, "w1", TaskOptions(name="work", groups=("gpu",)))
    await limit(store, "gpu", 0)
    await submit(store, "own", groups=("gpu",))
    await submit(store, "tasks")

    await register(store, "w2", "work")

    assert ids(await claim(store, capacity=9)) == ["tasks"]


async def test_a_group_that_a_task_gains_counts_for_jobs_already_in_line(store: Store) -> None:
    await limit(store, "gpu", 1)
    await submit_all(store, "abc")

    await register(store, "w1", TaskOptions(name="work", groups=("gpu",)))

    assert ids(await claim(store, capacity=9)) == ["a"]


async def test_a_running_job_keeps_the_slots_it_took_when_its_tasks_groups_change(store: Store) -> None:
    await register(store, "w1", TaskOptions(name="work", groups=("gpu",)))
    await limit(store, "gpu", 1)
    await submit_all(store, "ab")
    (lease,) = await claim(store, capacity=9)

    await register(store, "w2", TaskOptions(name="work", groups=("api",)))
    still = (await group_status(store, "gpu")).active
    await succeed(store, lease)

    assert still == 1
    assert (await group_status(store, "gpu")).active == 0


async def test_once_a_worker_has_started_a_freed_slot_is_left_for_the_job_before_the_caller(store: Store) -> None:
    await limit(store, "gpu", 1)
    grant = await acquire(store, "holds", "gpu")
    await submit(store, "job", groups=("gpu",))
    await acquire(store, "caller", "gpu")

    await register(store, "w1", "work")
    await at(store, NOW).release([("holds", grant.token)])

    assert (await group_status(store, "gpu")).active == 0
    assert ids(await claim(store)) == ["job"]
