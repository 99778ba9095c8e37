"""The operators' stream and the reasons in rows, as the service answers them to each role."""

from __future__ import annotations

from typing import Any

import pytest

from qo.service.access.caller import Role
from tests.service.conftest import Service
from tests.service.test_following import frames

NO_WORKER = {"kind": "no_worker", "text": "no worker runs task build", "group": "build"}


async def rows_of(served: Service, path: str, headers: dict[str, str]) -> dict[str, Any]:
    """The reasons of the jobs in a list, by id."""
    items = (await served.client.get(path, headers=headers)).json()["items"]
    return {row["id"]: row["waits_for"] for row in items}


@pytest.mark.parametrize("role", [Role.ADMIN, Role.VIEWER])
async def test_viewers_and_admins_follow_the_line_and_see_the_same(served: Service, role: Role) -> None:
    headers = await served.key(role)
    async with served.client.stream("GET", "/api/stream", headers=headers) as answer:
        seen: list[tuple[str, str | None, dict[str, Any]]] = []
        async for name, number, data in frames(answer):
            if not seen:
                await served.queue.submit("build", id="one", user="u1", data={"password": "canary"})
            seen.append((name, number, data))
            if data["changed"]:
                break

    (row,) = seen[-1][2]["changed"]
    assert [name for name, _, _ in seen] == ["frame"] * len(seen)
    assert (row["id"], row["user"], row["waits_for"]) == ("one", "u1", [NO_WORKER])
    assert "token" not in row
    assert "canary" not in str(seen)


async def test_a_user_does_not_follow_the_line(served: Service) -> None:
    await served.key(Role.ADMIN)
    user = await served.key(Role.USER, user="u1")

    answer = await served.client.get("/api/stream", headers=user)

    assert (answer.status_code, answer.json()["title"]) == (403, "Not allowed")


async def test_rows_in_line_say_why_they_wait_and_others_do_not(served: Service) -> None:
    admin = await served.key(Role.ADMIN)
    await served.queue.submit("build", id="waits")
    await served.queue.submit("build", id="later", delay=3600)
    await served.queue.pause("build")

    in_line = await rows_of(served, "/api/queue", admin)
    everything = await rows_of(served, "/api/jobs", admin)
    around = await rows_of(served, "/api/queue?around=waits", admin)

    paused = {"kind": "paused", "text": "paused: build", "group": "build"}
    assert in_line == around == {"waits": [NO_WORKER, paused]}
    assert everything == {"waits": [NO_WORKER, paused], "later": []}


async def test_the_reasons_that_a_user_reads_name_no_job_of_another(served: Service) -> None:
    await served.key(Role.ADMIN)
    user = await served.key(Role.USER, user="u1")
    await served.queue.set_limit("global", 1)
    await served.queue.submit("build", id="secret-of-u2", user="u2")
    await served.queue.store.claim(worker="w", tasks=["build"], capacity=1, lease_ms=60_000, claim_id="c")
    await served.queue.submit("build", id="mine", user="u1")

    answer = await served.client.get("/api/queue", headers=user)

    (row,) = answer.json()["items"]
    assert [reason["text"] for reason in row["waits_for"]] == ["no worker runs task build", "global 1 of 1"]
    assert "u2" not in answer.text


async def test_the_document_describes_a_frame(served: Service) -> None:
    document = (await served.client.get("/openapi.json")).json()

    answer = document["paths"]["/api/stream"]["get"]["responses"]["200"]["content"]
    frame = document["components"]["schemas"]["Frame"]
    data = answer["text/event-stream"]["schema"]["properties"]["data"]
    assert data["contentSchema"] == {"$ref": "#/components/schemas/Frame"}
    assert set(frame["required"]) == {"at", "waiting", "changed", "gone"}
