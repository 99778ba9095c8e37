"""What is left of a namespace when its jobs have ended and their retention has passed."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from qo.job import State
from qo.store.redis import RedisStore
from qo.values import (
    Average,
    Keep,
    Limit,
    Outcome,
    Registration,
    Source,
    Standing,
    Submission,
    TaskOptions,
    Ticket,
    UpkeepRules,
)
from tests.conformance.suite.harness import at
from tests.servers.redis import shared_server

NOON = 1_728_043_200_000
DAY_MS = 86_400_000
KEPT = {"averages", "counters", "events", "figures:0", "groups", "minutes", "schema", "tasks"}
"""sums over all time, the last event, the counters that tokens and places are drawn from, and what a worker said of its
task: its groups and its limit"""


async def forget_all(store: RedisStore, now: int) -> None:
    for _ in range(1000):
        if not (await at(store, now).upkeep(UpkeepRules(keep=Keep(ms=0, jobs=0, events=0, audit=0)))).more:
            return
    raise AssertionError("forgetting did not come to an end")


async def lead_a_life(store: RedisStore) -> None:
    """Jobs of many users, phases, delays, limits and callers; all of them end."""
    task = TaskOptions(name="work", groups=("shared",), limit=50)
    await at(store, NOON).register(Registration(name="w", tasks=(task,), capacity=50, lifetime_ms=1))
    tier = Standing(tier="partner", boost=2, user_limit=3, project_limit=3, daily_quota=2)
    submissions = [
        Submission(
            id=f"job-{number}",
            task="work",
            user=f"user-{number % 30}",
            project=f"project-{number % 7}",
            standing=tier,
            parent=f"parent-{number % 20}" if number % 20 < 8 else None,
            phase=number // 20 + 1 if number % 20 < 4 else None,
            groups=(f"own-{number % 5}",),
            limits=(Limit(group=f"own-{number % 5}", slots=4, source=Source.SUBMIT),),
            unique=f"unique-{number}",
            by="somebody",
        )
        for number in range(120)
    ]
    await at(store, NOON).submit(submissions)
    await at(store, NOON).acquire([Ticket(holder="caller", groups=("own-1", "elsewhere"), lease_ms=10_000)])
    await at(store, NOON).release([("caller", None)])
    average = Average(name="duration", first=1.0, weight=0.3)
    for day in range(40):
        now = NOON + day * DAY_MS
        while True:
            claimed = await at(store, now).claim(
                worker="w", tasks=["work"], capacity=50, lease_ms=300_000, claim_id=secrets.token_hex(4)
            )
            if not claimed.leases:
                break
            outcomes: list[dict[str, Any]] = [
                {"job_id": lease.job.id, "token": lease.token, "averages": (average,)} for lease in claimed.leases
            ]
            await at(store, now).finish([Outcome(state=State.SUCCEEDED, result=b"1", **each) for each in outcomes])


@pytest.mark.parametrize("kind", ["valkey", "redis"])
async def test_a_namespace_whose_jobs_are_forgotten_is_empty(kind: Any) -> None:
    store = await RedisStore.open(shared_server(kind).url, namespace=f"life-{secrets.token_hex(6)}")
    await lead_a_life(store)
    assert {job.state for job in (await store.jobs(limit=1000)).jobs} == {State.SUCCEEDED}
    await forget_all(store, NOON + 60 * DAY_MS)

    keys = await store.client.command("KEYS", f"{store.client.prefix}*")
    names = {key.decode().removeprefix(store.client.prefix) for key in keys}
    answers_that_expire = {name for name in names if name.startswith("reply:")}
    assert names - answers_that_expire == KEPT
    sums = {point.name for point in await store.series()}
    assert not [name for name in sums if "own-" in name], "what was counted of groups that are gone"
    await store.close()
