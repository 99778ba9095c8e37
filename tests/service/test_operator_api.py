"""What operators do over HTTP: the line, limits, tiers, parents, figures."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from qo.errors import StoreAway
from qo.job import State
from qo.policy.checks import READINESS_TASK
from qo.values import Outcome
from tests.service.conftest import Service


async def test_a_job_is_moved_and_gets_another_priority(served: Service) -> None:
    for job_id in ("a", "b", "c"):
        await served.queue.submit("build", id=job_id)

    await served.client.post("/api/queue/c/move", json={"before": "a"})
    await served.client.patch("/api/queue/b/priority", json={"priority": "urgent"})

    line = (await served.client.get("/api/queue")).json()
    assert [(job["id"], job["position"]) for job in line["items"]] == [("b", 1), ("c", 2), ("a", 3)]


async def test_a_group_is_paused_and_resumed(served: Service) -> None:
    paused = await served.client.post("/api/queue/pause", json={"group": "build"})
    resumed = await served.client.post("/api/queue/resume", json={"group": "build"})

    assert (paused.json()["paused"], resumed.json()["paused"]) == (True, False)


async def test_a_limit_is_set_shown_and_removed(served: Service) -> None:
    path, group = "/api/concurrency/provider:a%2Fb", "provider:a/b"

    assert (await served.client.put(path, json={"limit": 3})).json()["limit"] == 3
    assert (await served.client.get(path)).json()["group"] == group
    assert [each["group"] for each in (await served.client.get("/api/concurrency")).json()] == [group]
    assert (await served.client.delete(path)).json()["limit"] is None


async def test_a_slot_is_taken_from_its_holder_only_with_force(served: Service) -> None:
    await served.queue.set_limit("api", 1)
    await served.queue.submit("build", id="one", groups=["api"])
    await served.queue.store.claim(worker="w", tasks=["build"], capacity=1, lease_ms=60_000, claim_id="c")

    alive = await served.client.delete("/api/concurrency/api/slots/0")
    taken = await served.client.delete("/api/concurrency/api/slots/0", params={"force": "true"})
    gone = await served.client.delete("/api/concurrency/api/slots/0")
    wrong = await served.client.delete("/api/concurrency/api/slots/x")

    assert [each.status_code for each in (alive, taken, gone, wrong)] == [409, 200, 404, 422]
    assert taken.json()["holder"] == "one"


async def test_a_tier_and_usage(served: Service) -> None:
    given = await served.client.put("/api/users/u%2F1/tier", json={"tier": "partner"})
    unknown = await served.client.put("/api/users/u1/tier", json={"tier": "gold"})

    assert given.json()["jobs_remaining"] == 50
    assert (await served.client.get("/api/usage/u%2F1")).json()["jobs_used"] == 0
    assert (unknown.status_code, unknown.json()["field"]) == (422, "tier")


async def test_a_parent_is_shown_changed_and_cancelled(served: Service) -> None:
    for phase in (1, 2):
        await served.queue.submit("build", parent="p", phase=phase, id=f"phase-{phase}")

    await served.client.patch("/api/parents/p/priority", json={"priority": 20})
    shown = (await served.client.get("/api/parents/p")).json()
    cancelled = (await served.client.post("/api/parents/p/cancel")).json()

    assert shown["priority"] == 20
    assert [job["id"] for job in shown["jobs"]] == ["phase-1", "phase-2"]
    assert {job["state"] for job in cancelled["items"]} == {"cancelled"}
    assert (await served.client.get("/api/parents/nobody")).status_code == 404


async def test_a_failed_job_is_retried_and_the_trail_says_by_whom(served: Service) -> None:
    await served.queue.submit("build", id="one")
    (lease,) = (
        await served.queue.store.claim(worker="w", tasks=["build"], capacity=1, lease_ms=60_000, claim_id="c")
    ).leases
    await served.queue.store.finish([Outcome(job_id="one", token=lease.token, state=State.FAILED)])

    retried = await served.client.post("/api/jobs/one/retry")
    confirmed = await served.client.post("/api/jobs/one/confirm")

    assert retried.json()["state"] == "queued"
    assert confirmed.status_code == 409
    trail = (await served.client.get("/api/audit", params={"target": "one"})).json()["items"]
    assert [(each["action"], each["by"]) for each in trail] == [("retry", "loopback")]


async def test_figures_and_workers(served: Service) -> None:
    await served.queue.submit("build")

    assert (await served.client.get("/api/analytics", params={"minutes": 5})).json()["waiting"] == 1
    assert (await served.client.get("/api/workers")).json() == []


async def test_starts_are_shown_against_what_was_promised(served: Service) -> None:
    await served.queue.submit("build", id="one", groups=["api"])
    await served.queue.set_limit("api", 1)
    await served.queue.store.note_promises({"one": (0, 60_000)})
    claimed = await served.queue.store.claim(worker="w", tasks=["build"], capacity=1, lease_ms=60_000, claim_id="c")
    await served.queue.store.finish(
        [Outcome(job_id="one", token=claimed.leases[0].token, state=State.SUCCEEDED, result=b"null")]
    )

    figures = (await served.client.get("/api/analytics", params={"starts": 10, "group": "quiet"})).json()
    without = (await served.client.get("/api/analytics")).json()

    assert [(start["job"], start["task"], start["kept"]) for start in figures["starts"]] == [("one", "build", True)]
    assert figures["promise"] == {"kept": 1, "missed": 0}
    assert figures["series"]["started"][-2:] in ([0, 1], [1, 0])  # a minute may end in between
    assert [group["group"] for group in figures["groups"]] == ["api", "quiet"]
    assert without["starts"] == []


async def test_health_and_readiness(served: Service) -> None:
    assert (await served.client.get("/healthz")).json() == {"status": "alive"}
    assert (await served.client.get("/readyz")).json() == {"status": "ready"}


async def test_the_task_that_readiness_asks_for_cannot_be_submitted(served: Service) -> None:
    one = await served.client.post("/api/jobs", json={"task": READINESS_TASK})
    (listed,) = (await served.client.post("/api/jobs", json=[{"task": READINESS_TASK}])).json()

    assert (one.status_code, one.json()["field"]) == (422, "task")
    assert (listed["status"], listed["field"]) == (422, "task")
    assert await served.queue.jobs() == []


async def test_a_store_that_is_away_makes_the_server_not_ready(served: Service) -> None:
    await served.queue.store.close()

    away = await served.client.get("/readyz")

    assert (away.status_code, away.json()["title"]) == (503, "unavailable")
    assert (away.headers["retry-after"], away.json()["retry_after"]) == ("1", 1)


@pytest.mark.parametrize("fails", [False, True])
async def test_the_store_is_asked_once_a_second_whether_it_is_ready_however_many_ask(
    served: Service, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    asked = 0
    claim = served.queue.store.claim

    async def counted(**given: Any) -> Any:
        nonlocal asked
        asked += 1
        if fails:
            raise StoreAway("The store is away; try again.")
        return await claim(**given)

    monkeypatch.setattr(served.queue.store, "claim", counted)
    seconds = [0.0]
    served.queue.system = msgspec.structs.replace(served.queue.system, monotonic=lambda: seconds[-1])
    for at in (100.0, 100.9, 101.1):
        seconds.append(at)
        answers = await asyncio.gather(*(served.client.get("/readyz") for _ in range(5)))
        assert {answer.status_code for answer in answers} == {503 if fails else 200}

    assert asked == 2
