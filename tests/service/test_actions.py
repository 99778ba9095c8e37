"""Many jobs at once: counted first, then changed, never more than were counted."""

from __future__ import annotations

from typing import Any

import pytest

from qo.job import State
from qo.service.routes import actions
from tests.service.conftest import Service


async def act(served: Service, **body: Any) -> Any:
    answer = await served.client.post("/api/jobs/actions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def states(served: Service) -> dict[str, State]:
    return {job.id: job.state for job in await served.queue.jobs(limit=2000)}


async def test_a_dry_run_counts_and_changes_nothing_and_its_confirmation_acts(served: Service) -> None:
    for number in range(3):
        await served.queue.submit("build", id=f"mine-{number}", user="u1")
    await served.queue.submit("build", id="theirs", user="u2")
    await served.queue.cancel("mine-0")

    counted = await act(served, action="cancel", filter={"user": "u1"})
    assert (counted["count"], counted["is_dry_run"]) == (2, True)
    assert [each["id"] for each in counted["skipped"]] == ["mine-0"]
    assert (await states(served))["mine-1"] is State.QUEUED

    done = await act(served, action="cancel", filter={"user": "u1"}, confirm=2, as_of=counted["as_of"])
    assert (done["count"], done["next"]) == (2, None)
    assert {job_id for job_id, state in (await states(served)).items() if state is State.QUEUED} == {"theirs"}


async def test_jobs_that_came_after_the_dry_run_are_left_alone(served: Service) -> None:
    await served.queue.submit("build", id="before")
    counted = await act(served, action="cancel", filter={})
    now = served.queue.store.clock or served.queue.system.clock
    served.queue.store.clock = lambda: now() + 1000
    await served.queue.submit("build", id="after")

    await act(served, action="cancel", filter={}, confirm=1, as_of=counted["as_of"])

    assert await states(served) == {"before": State.CANCELLED, "after": State.QUEUED}


async def test_more_jobs_than_were_confirmed_are_refused_and_nothing_is_done(served: Service) -> None:
    for number in range(3):
        await served.queue.submit("build", id=f"{number}")
    counted = await act(served, action="cancel", filter={})

    refused = await served.client.post(
        "/api/jobs/actions", json={"action": "cancel", "filter": {}, "confirm": 2, "as_of": counted["as_of"]}
    )

    assert (refused.status_code, refused.json()["field"]) == (409, "confirm")
    assert set((await states(served)).values()) == {State.QUEUED}


async def test_ids_that_are_unknown_are_skipped_with_a_reason(served: Service) -> None:
    await served.queue.submit("build", id="one")
    counted = await act(served, action="priority", ids=["one", "nobody"], priority="urgent")

    done = await act(
        served, action="priority", ids=["one", "nobody"], priority="urgent", confirm=1, as_of=counted["as_of"]
    )

    assert done["count"] == 1
    assert [each["id"] for each in done["skipped"]] == ["nobody"]
    assert (await served.queue.get("one")).priority == 10


@pytest.mark.parametrize("served", ["memory"], indirect=True)
async def test_more_than_a_portion_goes_on_behind_the_cursor(served: Service) -> None:
    answer = await served.client.post("/api/jobs", json=[{"task": "build"} for _ in range(620)])
    assert answer.status_code == 200
    counted = await act(served, action="cancel", filter={})
    total, after, calls = 0, None, 0
    while calls == 0 or after is not None:
        more: dict[str, str] = {} if after is None else {"after": after}
        done = await act(served, action="cancel", filter={}, confirm=620, as_of=counted["as_of"], **more)
        total, after, calls = total + done["count"], done["next"], calls + 1

    assert counted["count"] == total == 620
    assert calls >= 2


@pytest.mark.parametrize("served", ["memory"], indirect=True)
async def test_each_job_gets_its_new_priority_once_although_that_moves_it_behind_the_cursor(served: Service) -> None:
    await served.client.post("/api/jobs", json=[{"task": "build"} for _ in range(620)])
    counted = await act(served, action="priority", filter={}, priority="low")
    total, after = 0, None
    while total == 0 or after is not None:
        more: dict[str, str] = {} if after is None else {"after": after}
        confirmed = {"confirm": counted["count"], "as_of": counted["as_of"]}
        done = await act(served, action="priority", filter={}, priority="low", **confirmed, **more)
        total, after = total + done["count"], done["next"]
        assert done["skipped"] == []

    entries = [entry for entry in await served.queue.audit(limit=5000) if entry.action == "priority"]
    assert (counted["count"], total, len(entries)) == (620, 620, 620)


@pytest.mark.parametrize("served", ["memory"], indirect=True)
async def test_jobs_that_have_the_priority_already_are_skipped_and_never_counted(served: Service) -> None:
    await served.client.post("/api/jobs", json=[{"task": "build", "priority": "low"} for _ in range(620)])
    await served.queue.submit("build", id="other", priority="background")

    counted = await act(served, action="priority", filter={}, priority="low")
    done = await act(served, action="priority", filter={}, priority="low", confirm=1, as_of=counted["as_of"])
    rest = {"confirm": 1, "as_of": counted["as_of"], "after": done["next"]}
    last = await act(served, action="priority", filter={}, priority="low", **rest)

    assert (counted["count"], len(counted["skipped"])) == (1, 500)
    assert counted["skipped"][0]["reason"] == "its priority is 70 already"
    assert (done["count"], last["count"], last["next"]) == (0, 1, None)
    assert [entry.subject for entry in await served.queue.audit() if entry.action == "priority"] == ["other"]


@pytest.mark.parametrize("served", ["memory"], indirect=True)
async def test_a_dry_run_that_stopped_counting_confirms_no_more_than_it_counted(
    served: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(actions, "MOST_COUNTED", 4)
    for _ in range(7):
        await served.queue.submit("build")
    body = {"action": "cancel", "filter": {}}
    counted = await act(served, **body)

    refused = await served.client.post(
        "/api/jobs/actions", json=body | {"confirm": counted["count"], "as_of": counted["as_of"]}
    )

    assert (counted["count"], refused.status_code) == (4, 409)
    assert (await act(served, **body, confirm=7, as_of=counted["as_of"]))["count"] == 2
    assert list((await states(served)).values()).count(State.QUEUED) == 5


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"action": "delete", "ids": ["a"]}, "action"),
        ({"action": "cancel"}, "ids"),
        ({"action": "cancel", "ids": ["a"], "filter": {}}, "ids"),
        ({"action": "priority", "ids": ["a"]}, "priority"),
        ({"action": "cancel", "ids": ["a"], "confirm": 1}, "as_of"),
        ({"action": "cancel", "ids": ["a"], "confirm": -1, "as_of": "2026-01-01T00:00:00Z"}, "confirm"),
        ({"action": "cancel", "filter": {"colour": "red"}}, "filter.colour"),
        ({"action": "cancel", "filter": {"priority": 100}}, "filter.priority"),
        ({"action": "cancel", "filter": {"status": ""}}, "filter.status"),
    ],
)
@pytest.mark.parametrize("served", ["memory"], indirect=True)
async def test_a_wrong_request_names_the_field(served: Service, body: dict[str, Any], field: str) -> None:
    refused = await served.client.post("/api/jobs/actions", json=body)

    assert (refused.status_code, refused.json()["field"]) == (422, field)


@pytest.mark.parametrize("served", ["memory"], indirect=True)
async def test_a_wrong_filter_is_answered_with_what_a_filter_allows(served: Service) -> None:
    refused = [
        (await served.client.post("/api/jobs/actions", json={"action": "cancel", "filter": given})).json()["detail"]
        for given in ({"colour": "red"}, {"priority": "soon"}, "all")
    ]

    assert refused == [
        "filter.colour is not a field of this request; use one of status, user, task, parent, project, tier, priority, "
        "id.",
        "filter.priority is 'soon'; use a whole number from 0 to 99, or urgent, high, normal, low or background.",
        "filter is 'all'; use an object with one of status, user, task, parent, project, tier, priority, id.",
    ]
