"""The audit trail over HTTP, and undo."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from qo.service.access.caller import Role
from qo.values import Limit, Source
from tests.service.conftest import Service


async def newest(served: Service, target: str) -> dict[str, Any]:
    found = (await served.client.get("/api/audit", params={"target": target, "limit": 1})).json()
    item: dict[str, Any] = found["items"][0]
    return item


async def ids_in_line(served: Service) -> list[str]:
    return [job["id"] for job in (await served.client.get("/api/queue")).json()["items"]]


async def undo(served: Service, audit_id: int) -> Any:
    return await served.client.post(f"/api/audit/{audit_id}/undo")


async def test_an_entry_says_who_with_which_role_from_where_and_what_it_changed(served: Service) -> None:
    await served.queue.submit("build", id="one")
    admin = await served.key(Role.ADMIN)

    changed = (await served.client.patch("/api/queue/one/priority", json={"priority": "high"}, headers=admin)).json()
    found = (await served.client.get("/api/audit", params={"target": "one"}, headers=admin)).json()["items"]

    (entry,) = found
    assert entry["by"] == admin["Authorization"].split("_")[1]
    assert (entry["role"], entry["address"]) == ("admin", "127.0.0.1")
    assert (entry["old"], entry["new"]) == ({"priority": 50}, {"priority": 20})
    assert entry["id"] == changed["audit_id"]


async def test_the_trail_comes_in_pages(served: Service) -> None:
    for number in range(5):
        await served.queue.pause(f"group-{number}")

    seen, after = [], None
    while True:
        params = {"limit": "2", **({} if after is None else {"after": after})}
        page = (await served.client.get("/api/audit", params=params)).json()
        seen += [entry["target"] for entry in page["items"]]
        after = page["next"]
        if after is None:
            break

    assert seen == [f"group-{number}" for number in (4, 3, 2, 1, 0)]


async def test_an_action_on_many_jobs_has_one_batch(served: Service) -> None:
    for job_id in ("a", "b"):
        await served.queue.submit("build", id=job_id)
    wanted = {"action": "cancel", "filter": {"task": "build"}}
    counted = (await served.client.post("/api/jobs/actions", json=wanted)).json()

    confirmed = wanted | {"confirm": counted["count"], "as_of": counted["as_of"]}
    done = (await served.client.post("/api/jobs/actions", json=confirmed)).json()

    entries = [await newest(served, job_id) for job_id in ("a", "b")]
    assert done["batch"] is not None
    assert {entry["batch"] for entry in entries} == {done["batch"]}


# --- undo -----------------------------------------------------------------------------------------------------


async def test_a_priority_goes_back(served: Service) -> None:
    await served.queue.submit("build", id="one")
    changed = (await served.client.patch("/api/queue/one/priority", json={"priority": "high"})).json()

    undone = (await undo(served, changed["audit_id"])).json()

    entry = await newest(served, "one")
    assert (await served.queue.get("one")).priority == 50
    assert (undone["undone"], undone["audit_id"]) == (changed["audit_id"], entry["id"])
    assert (entry["old"], entry["new"]) == ({"priority": 20}, {"priority": 50})


@pytest.mark.parametrize("job_id", ["a", "b", "c"])
async def test_a_move_goes_back_to_the_former_neighbour_and_priority(served: Service, job_id: str) -> None:
    for each in ("a", "b", "c"):
        await served.queue.submit("build", id=each)
    await served.queue.submit("build", id="urgent", priority="urgent")
    before = await ids_in_line(served)
    moved = (await served.client.post(f"/api/queue/{job_id}/move", json={"before": "urgent"})).json()
    assert await ids_in_line(served) != before

    answer = await undo(served, moved["audit_id"])

    assert answer.status_code == 200, answer.text
    assert await ids_in_line(served) == before
    assert (await served.queue.get(job_id)).priority == 50


async def test_a_move_of_the_only_job_of_its_priority_goes_back(served: Service) -> None:
    await served.queue.submit("build", id="urgent", priority="urgent")
    await served.queue.submit("build", id="normal")
    moved = (await served.client.post("/api/queue/urgent/move", json={"after": "normal"})).json()

    await undo(served, moved["audit_id"])

    assert await ids_in_line(served) == ["urgent", "normal"]
    assert (await served.queue.get("urgent")).priority == 10


async def test_a_limit_goes_back_to_its_number_and_source(served: Service) -> None:
    await served.queue.store.set_limits([Limit(group="api", slots=5, source=Source.CONFIGURATION)])
    changed = (await served.client.put("/api/concurrency/api", json={"limit": 2})).json()

    await undo(served, changed["audit_id"])

    status = await served.queue.limit("api")
    assert (status.limit, status.source) == (5, Source.CONFIGURATION)


async def test_a_first_limit_and_a_removed_one_go_back(served: Service) -> None:
    first = (await served.client.put("/api/concurrency/api", json={"limit": 2})).json()
    await undo(served, first["audit_id"])
    assert (await served.queue.limit("api")).limit is None

    await served.queue.set_limit("api", 7)
    removed = (await served.client.delete("/api/concurrency/api")).json()
    await undo(served, removed["audit_id"])
    assert (await served.queue.limit("api")).limit == 7


@pytest.mark.parametrize("action", ["pause", "resume"])
async def test_a_pause_and_a_resume_go_back(served: Service, action: str) -> None:
    if action == "resume":
        await served.queue.pause("api")
    changed = (await served.client.post(f"/api/queue/{action}", json={"group": "api"})).json()

    await undo(served, changed["audit_id"])

    assert (await served.queue.limit("api")).paused is (action == "resume")


async def test_what_was_changed_again_is_not_undone(served: Service) -> None:
    await served.queue.submit("build", id="one")
    first = (await served.client.patch("/api/queue/one/priority", json={"priority": "high"})).json()
    await served.client.patch("/api/queue/one/priority", json={"priority": "low"})

    answer = await undo(served, first["audit_id"])

    assert (answer.status_code, answer.json()["title"]) == (409, "Not undone")
    assert "changed again" in answer.json()["detail"]
    assert (await served.queue.get("one")).priority == 70


async def test_a_job_that_has_started_is_not_moved_back(served: Service) -> None:
    for job_id in ("a", "b"):
        await served.queue.submit("build", id=job_id)
    moved = (await served.client.post("/api/queue/b/move", json={"before": "a"})).json()
    await served.queue.store.claim(worker="w", tasks=["build"], capacity=1, lease_ms=60_000, claim_id="c")

    assert (await undo(served, moved["audit_id"])).status_code == 409


async def test_a_change_can_be_undone_for_ten_seconds(served: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    paused = (await served.client.post("/api/queue/pause", json={"group": "api"})).json()
    now = served.queue.system.now
    monkeypatch.setattr(type(served.queue.system), "now", lambda _: now() + timedelta(seconds=11))

    answer = await undo(served, paused["audit_id"])

    assert (answer.status_code, (await served.queue.limit("api")).paused) == (409, True)
    assert "10 seconds" in answer.json()["detail"]


async def test_a_tier_and_a_cancel_cannot_be_undone(served: Service) -> None:
    await served.client.put("/api/users/u1/tier", json={"tier": "partner"})

    answer = await undo(served, (await newest(served, "u1"))["id"])

    assert (answer.status_code, "cannot be undone" in answer.json()["detail"]) == (409, True)


@pytest.mark.parametrize("audit_id", ["0", "999", "x", "9" * 20, "-1"])
async def test_an_entry_that_is_not_there_is_a_404(served: Service, audit_id: str) -> None:
    answer = await served.client.post(f"/api/audit/{audit_id}/undo")

    assert (answer.status_code, answer.json()["title"]) == (404, "Audit entry not found")
