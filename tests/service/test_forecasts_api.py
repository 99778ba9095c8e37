"""Forecasts over HTTP: a job not yet submitted, other limits and workers, the slots of a group."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

import qo
from qo.policy.estimates.base import duration_of_task
from qo.service.access.caller import Role
from qo.service.routes.forecasts import MOST_WAITING
from qo.values import Average, Registration, TaskOptions
from tests.service.conftest import Service
from tests.worker.running import soon


async def a_line(served: Service) -> None:
    """A worker of capacity 4, a limit of 2 on `gpu`, two jobs that run and eight in line; each takes a minute."""
    queue = served.queue
    await queue.store.register(
        Registration(name="w", tasks=(TaskOptions(name="build", groups=("gpu",)),), capacity=4, lifetime_ms=10**9)
    )
    await queue.store.observe([(Average(name=duration_of_task("build"), first=60, weight=0.3), 60.0)] * 20)
    await queue.set_limit("gpu", 2)
    await queue.submit_many([qo.New("build", id=f"job-{number}", user="u2") for number in range(10)])
    await queue.store.claim(worker="w", tasks=["build"], capacity=2, lease_ms=10**9, claim_id="c")


# --- a job that is not submitted yet --------------------------------------------------------------------------


async def test_the_estimate_of_a_job_not_yet_submitted_is_in_whole_seconds_with_its_position(served: Service) -> None:
    await a_line(served)

    last = (await served.client.get("/api/estimate", params={"task": "build"})).json()
    first = (await served.client.get("/api/estimate", params={"task": "build", "priority": "10"})).json()
    named = (await served.client.get("/api/estimate", params={"task": "build", "priority": "urgent"})).json()

    assert (last["position"], first["position"], named["position"]) == (9, 1, 1)
    # Not the same to the second: a second may have passed between the two questions.
    assert named["estimate"]["estimate_seconds"] == pytest.approx(first["estimate"]["estimate_seconds"], abs=10)
    assert {type(last["estimate"][name]) for name in ("estimate_seconds", "lower_bound", "upper_bound")} == {int}
    assert last["estimate"]["estimate_seconds"] == pytest.approx(5 * 60, rel=0.2)
    assert len(await served.queue.jobs()) == 10


async def test_the_groups_of_a_job_not_yet_submitted_count(served: Service) -> None:
    await a_line(served)
    await served.queue.pause("licence")

    answer = await served.client.get("/api/estimate?task=build&groups=other&groups=licence")

    assert answer.json()["estimate"]["message"] == "not known yet: group licence is paused"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "task"),
        ("task=", "task"),
        ("task=build&task=other", "task"),
        ("task=build&priority=100", "priority"),
        ("task=build&priority=soon", "priority"),
        ("task=build&priority=%C2%B2", "priority"),
        ("task=build&user=u1&tier=gold", "tier"),
        ("task=build&tier=partner", "tier"),
        ("task=build&groups=", "groups"),
        ("task=build&groups=user:u2", "group"),
        ("task=build&data=5", "data"),
    ],
)
async def test_a_wrong_question_about_a_job_names_its_field(served: Service, query: str, field: str) -> None:
    answer = await served.client.get(f"/api/estimate?{query}")

    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("task=build", 200, None),
        ("task=build&user=u1&priority=high", 200, None),
        ("task=build&user=u2", 403, "user"),
        ("task=build&groups=gpu", 422, "groups"),
        ("task=build&tier=cto_scale", 422, "tier"),
        ("task=build&project=p1", 422, "project"),
        ("task=other", 403, "task"),
        ("task=build&priority=5", 403, "priority"),
    ],
)
async def test_the_key_of_a_user_asks_only_about_what_it_may_submit(
    served: Service, query: str, status: int, field: str | None
) -> None:
    await a_line(served)
    user = await served.key(Role.USER, user="u1")

    answer = await served.client.get(f"/api/estimate?{query}", headers=user)

    assert (answer.status_code, answer.json().get("field")) == (status, field), answer.text
    assert "u2" not in answer.text.replace("'u2'", "" if "u2" in query else "'u2'")


async def test_a_user_with_a_tier_is_told_about_a_job_of_that_tier(served: Service) -> None:
    await a_line(served)
    await served.queue.set_tier("u1", "cto_scale")
    user = await served.key(Role.USER, user="u1")

    told = (await served.client.get("/api/estimate", params={"task": "build"}, headers=user)).json()
    job = (await served.client.post("/api/jobs", json={"task": "build"}, headers=user)).json()

    assert told["position"] == job["position"] == 4


async def test_a_key_with_a_project_is_told_about_a_job_of_that_project(served: Service) -> None:
    await a_line(served)
    await served.queue.pause("project:p1")
    user = await served.key(Role.USER, user="u1", project="p1")

    own = await served.client.get("/api/estimate", params={"task": "build"}, headers=user)
    other = await served.client.get("/api/estimate", params={"task": "build", "project": "p2"}, headers=user)

    assert own.json()["estimate"]["message"] == "not known yet: group project:p1 is paused"
    assert (other.status_code, other.json()["field"]) == (403, "project")


# --- what if --------------------------------------------------------------------------------------------------


async def ask(served: Service, *variants: Any) -> Any:
    answer = await served.client.post("/api/queue/what-if", json={"variants": variants})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_what_if_answers_the_waits_before_and_with_each_variant(served: Service) -> None:
    await a_line(served)

    found = await ask(served, {"limits": {"gpu": 4}}, {"capacity": {"w": 1}}, {"limits": {"new": 1, "gpu": 0}}, {})

    more, fewer, none, same = found["variants"]
    assert (found["jobs"], found["basis"]) == (8, "measured")
    assert more["last_seconds"] < found["before"]["last_seconds"] < fewer["last_seconds"]
    assert more["median_seconds"] < found["before"]["median_seconds"] < fewer["median_seconds"]
    assert none == {"median_seconds": None, "last_seconds": None, "cannot_start": 8}
    assert same == found["before"]
    assert type(more["last_seconds"]) is int
    assert (await served.queue.limit("gpu")).limit == 2


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "variants"),
        ({"variants": {}}, "variants"),
        ({"variants": [5]}, "variants"),
        ({"variants": [{}] * 6}, "variants"),
        ({"variants": [], "more": 1}, "more"),
        ({"variants": [{}, {"slots": {}}]}, "variants[1]"),
        ({"variants": [{"limits": 5}]}, "variants[0].limits"),
        ({"variants": [{"limits": {"gpu": -1}}]}, "variants[0].limits"),
        ({"variants": [{}, {"limits": {"provider:a": 1.5}}]}, "variants[1].limits"),
        ({"variants": [{"limits": {"gpu": None}}]}, "variants[0].limits"),
        ({"variants": [{"limits": {"gpu": True}}]}, "variants[0].limits"),
        ({"variants": [{"limits": {"": 1}}]}, "variants[0].limits"),
        ({"variants": [{"capacity": {"nobody": 1}}]}, "variants[0].capacity"),
        ({"variants": [{}, {"capacity": {"w": "2"}}]}, "variants[1].capacity"),
    ],
)
async def test_a_wrong_variant_is_refused_by_its_field(served: Service, body: Any, field: str) -> None:
    await a_line(served)

    answer = await served.client.post("/api/queue/what-if", json=body)

    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text


@pytest.mark.parametrize("served", ["memory"], indirect=True)
async def test_more_calls_of_what_if_than_may_wait_are_told_to_come_back(
    served: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way = 0
    all_wait, go_on = asyncio.Event(), asyncio.Event()

    async def held_up(variants: Any) -> qo.WhatIf:
        nonlocal under_way
        under_way += 1
        if under_way == MOST_WAITING:
            all_wait.set()
        await go_on.wait()
        waits = qo.Waits(median_seconds=None, last_seconds=None, cannot_start=0)
        return qo.WhatIf(jobs=0, basis=qo.Basis.MEASURED, before=waits, variants=[])

    monkeypatch.setattr(served.queue, "what_if", held_up)
    waiting = [asyncio.create_task(ask(served)) for _ in range(MOST_WAITING)]
    await soon(all_wait.wait())

    refused = await served.client.post("/api/queue/what-if", json={"variants": []})
    go_on.set()
    await soon(asyncio.gather(*waiting))

    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    await ask(served)


# --- the slots of a group -------------------------------------------------------------------------------------


async def test_a_timeline_over_http(served: Service) -> None:
    await a_line(served)

    found = (await served.client.get("/api/concurrency/gpu/timeline")).json()

    assert found.keys() == {"group", "since", "past", "now", "forecast", "note"}
    assert (found["since"], found["past"]) == (None, [])
    assert [(each["slot"], each["holder"], each["worker"]) for each in found["now"]] == [
        (0, "job-0", "w"),
        (1, "job-1", "w"),
    ]
    assert {each["job"] for each in found["forecast"]} == {f"job-{number}" for number in range(2, 10)}
    assert all(each["starts_at"] < each["ends_at"] for each in found["forecast"])
    assert "one possible course" in found["note"]


@pytest.mark.parametrize("group", ["provider:a/b", "nobody", "timeline"])
async def test_a_group_that_nobody_uses_has_an_empty_timeline(served: Service, group: str) -> None:
    found = await served.client.get(f"/api/concurrency/{quote(group, safe='')}/timeline")

    assert found.status_code == 200
    assert (found.json()["group"], found.json()["now"], found.json()["forecast"]) == (group, [], [])


async def test_a_name_that_no_group_can_have_has_no_timeline(served: Service) -> None:
    answer = await served.client.get("/api/concurrency/priority:100/timeline")

    assert answer.status_code == 422
