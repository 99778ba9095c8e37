"""Jobs over HTTP, as another language sees them."""

from __future__ import annotations

import json

import pytest

from qo.job import JobError, State
from qo.service.access.caller import Role
from qo.tracing import is_traceparent
from qo.values import Outcome
from tests.service.conftest import Service


async def test_a_job_is_submitted_and_read(served: Service) -> None:
    made = await served.client.post("/api/jobs", json={"task": "build", "data": {"n": 1}, "priority": "high"})

    assert made.status_code == 201
    job = made.json()
    assert (job["task"], job["state"], job["position"], job["priority"]) == ("build", "queued", 1, 20)
    assert job["message"] == "Queued at position 1"
    read = (await served.client.get(f"/api/jobs/{job['id']}")).json()
    assert read["data"] == {"n": 1}
    assert read["submitted_at"].endswith("Z")


async def test_python_and_http_show_the_same_job(served: Service) -> None:
    job = await served.queue.submit("build", id="one")

    read = (await served.client.get("/api/jobs/one")).json()
    del read["data"], read["watch_url"]

    assert read == json.loads(json.dumps((await served.queue.get(job.id)).to_dict()))


async def test_a_known_id_is_a_200_with_that_job(served: Service) -> None:
    first = await served.client.post("/api/jobs", json={"task": "build", "id": "one"})
    again = await served.client.post("/api/jobs", json={"task": "build", "id": "one"})

    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["submitted_at"] == first.json()["submitted_at"]


async def test_a_list_answers_a_job_or_a_problem_for_each_in_order(served: Service) -> None:
    jobs = [
        {"task": "build", "id": "one"},
        {"task": ""},
        {"task": "build", "colour": "red"},
        {"task": "build", "id": "two"},
    ]

    answer = await served.client.post("/api/jobs", json=jobs)

    assert answer.status_code == 200
    one, empty, unknown, two = answer.json()
    assert (one["id"], two["id"]) == ("one", "two")
    assert (empty["status"], empty["field"]) == (422, "task")
    assert (unknown["status"], unknown["field"]) == (422, "colour")


async def test_a_repeated_list_answers_no_results_and_no_details_of_errors(served: Service) -> None:
    for job_id in ("good", "bad"):
        await served.queue.submit("build", id=job_id)
    store = served.queue.store
    claimed = await store.claim(worker="w", tasks=["build"], capacity=2, lease_ms=60_000, claim_id="c")
    good, bad = claimed.leases
    error = JobError("It did not work.", detail="line 7", debug_id="D1")
    await store.finish(
        [
            Outcome(job_id="good", token=good.token, state=State.SUCCEEDED, result=b'"done"'),
            Outcome(job_id="bad", token=bad.token, state=State.FAILED, error=error),
        ]
    )

    body = [{"task": "build", "id": "good"}, {"task": "build", "id": "bad"}]
    first, second = (await served.client.post("/api/jobs", json=body)).json()
    one = (await served.client.post("/api/jobs", json=body[0])).json()

    assert (first["state"], first.get("result")) == ("succeeded", None)
    assert second["error"] == {"message": "It did not work.", "detail": None, "debug_id": "D1"}
    assert one["result"] == "done"


async def test_pages_go_through_all_jobs(served: Service) -> None:
    for number in range(7):
        await served.queue.submit("build", id=f"job-{number}")
    seen, after = [], None
    while True:
        page = (await served.client.get("/api/jobs", params={"limit": 3} | ({"after": after} if after else {}))).json()
        seen += [job["id"] for job in page["items"]]
        after = page["next"]
        if after is None:
            break

    assert seen == [f"job-{number}" for number in range(7)]
    assert "result" not in page["items"][0] if page["items"] else True


@pytest.mark.parametrize(
    ("params", "ids"),
    [
        ({"project": "p1"}, ["b"]),
        ({"tier": "partner"}, ["b"]),
        ({"priority": "high"}, ["b"]),
        ({"priority": "20"}, ["b"]),
        ({"id": "a"}, ["a1", "a2"]),
        ({"id": "a", "task": "mail"}, ["a2"]),
    ],
)
async def test_jobs_are_filtered(served: Service, params: dict[str, str], ids: list[str]) -> None:
    await served.queue.submit("build", id="a1")
    await served.queue.submit("mail", id="a2")
    await served.queue.submit("build", id="b", user="u1", project="p1", tier="partner", priority="high")

    found = (await served.client.get("/api/jobs", params=params)).json()

    assert [job["id"] for job in found["items"]] == ids


async def test_the_neighbours_of_a_job_are_its_own_page(served: Service) -> None:
    for number in range(9):
        await served.queue.submit("build", id=f"job-{number}", user=f"u{number % 2}")
    admin, user = await served.key(Role.ADMIN), await served.key(Role.USER, user="u1")

    around = (await served.client.get("/api/queue", params={"around": "job-1"}, headers=user)).json()
    foreign = await served.client.get("/api/queue", params={"around": "job-2"}, headers=user)
    seen = (await served.client.get("/api/queue", params={"around": "job-4"}, headers=admin)).json()

    assert [job["id"] for job in around["items"]] == ["job-1", "job-3"]
    assert foreign.status_code == 404
    assert [job["position"] for job in seen["items"]] == [2, 3, 4, 5, 6, 7, 8]
    keys = [job["key"] for job in seen["items"]]
    assert keys == sorted(keys)


async def test_a_job_that_has_ended_has_no_neighbours(served: Service) -> None:
    await served.queue.submit("build", id="one")
    await served.queue.cancel("one")

    answer = await served.client.get("/api/queue", params={"around": "one"})

    assert (answer.status_code, answer.json()["title"]) == (404, "Job not in line")
    assert answer.json()["detail"] == "Job 'one' is cancelled; only a job in line has neighbours."


async def test_history_has_what_has_ended(served: Service) -> None:
    for job_id in ("one", "two", "three"):
        await served.queue.submit("build", id=job_id)
    await served.queue.cancel("one")
    await served.queue.cancel("three")

    found = (await served.client.get("/api/history")).json()

    assert [(job["id"], job["state"]) for job in found["items"]] == [("three", "cancelled"), ("one", "cancelled")]


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"limit": "501"}, "limit"),
        ({"limit": "x"}, "limit"),
        ({"priority": "null"}, "priority"),
        ({"colour": "red"}, "colour"),
        ({"status": ""}, "status"),
        ({"id": "\n"}, "id"),
        ({"after": "nonsense"}, "after"),
    ],
)
async def test_a_wrong_query_is_a_422_that_names_the_field(served: Service, params: dict[str, str], field: str) -> None:
    answer = await served.client.get("/api/jobs", params=params)

    assert answer.status_code == 422
    problem = answer.json()
    assert problem["field"] == field
    assert problem["detail"].startswith(f"{field} is ")
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"{", "application/json", 400),
        (b"[" * 65 + b"]" * 65, "application/json", 400),
        (b"{}", "text/plain", 415),
        (b"{}", "application/json", 422),
        (b"1", "application/json", 422),
        (b'{"task": "build", "data": "' + b"x" * 1_200_000 + b'"}', "application/json", 413),
        (b'{"task": "build", "priority": 100}', "application/json", 422),
        (b'{"task": "build", "tier": "gold", "user": "u1"}', "application/json", 422),
        (b'{"task": "build", "run_at": "tomorrow"}', "application/json", 422),
        (b'{"task": "build", "delay": -1}', "application/json", 422),
        (b'{"task": "build", "task": 5}', "application/json", 422),
        (b"\xff", "application/json", 400),
    ],
)
async def test_a_wrong_body_stores_nothing(served: Service, body: bytes, content_type: str, status: int) -> None:
    answer = await served.client.post("/api/jobs", content=body, headers={"content-type": content_type})

    assert answer.status_code == status, answer.text
    assert answer.json()["detail"]
    assert (await served.client.get("/api/jobs")).json()["items"] == []


async def test_what_is_not_there_is_a_404_with_a_title(served: Service) -> None:
    missing = (await served.client.get("/api/jobs/nobody")).json()
    nowhere = (await served.client.get("/api/nowhere")).json()

    assert (missing["status"], missing["title"]) == (404, "Job not found")
    assert nowhere["status"] == 404
    assert (await served.client.get(missing["type"])).status_code == 200


async def test_another_method_is_a_405_that_names_the_allowed_ones(served: Service) -> None:
    answer = await served.client.put("/api/jobs")

    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")


async def test_a_viewer_sees_data_without_the_values_of_secrets(served: Service) -> None:
    data = {"user_password": "p4ss", "API-Key": "k", "nested": [{"cookie": "c", "plain": 1}]}
    await served.queue.submit("build", data, id="one")
    viewer, admin = await served.key(Role.VIEWER), await served.key(Role.ADMIN)

    seen = (await served.client.get("/api/jobs/one", headers=viewer)).json()
    raw = (await served.client.get("/api/jobs/one", headers=admin)).json()

    assert seen["data"] == {
        "user_password": "[secret]",
        "API-Key": "[secret]",
        "nested": [{"cookie": "[secret]", "plain": 1}],
    }
    assert raw["data"] == data
    assert "token" in raw
    assert "token" not in seen


async def test_a_repeated_request_makes_one_job(served: Service) -> None:
    header = {"Idempotency-Key": "order-7"}
    first = await served.client.post("/api/jobs", json={"task": "build", "data": 1}, headers=header)
    again = await served.client.post("/api/jobs", json={"task": "build", "data": 1}, headers=header)
    other_data = await served.client.post("/api/jobs", json={"task": "build", "data": 2}, headers=header)
    with_id = await served.client.post("/api/jobs", json={"task": "build", "id": "x"}, headers=header)

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert (other_data.status_code, with_id.status_code) == (422, 422)
    assert len(await served.queue.jobs()) == 1


async def test_a_repeated_list_makes_each_job_once(served: Service) -> None:
    header, jobs = {"Idempotency-Key": "orders"}, [{"task": "build", "data": number} for number in range(3)]
    first = (await served.client.post("/api/jobs", json=jobs, headers=header)).json()
    again = (await served.client.post("/api/jobs", json=jobs, headers=header)).json()

    assert [job["id"] for job in first] == [job["id"] for job in again]
    assert len(await served.queue.jobs()) == 3


async def test_the_same_header_of_another_key_is_another_request(served: Service) -> None:
    header, body = {"Idempotency-Key": "order-7"}, {"task": "build"}
    one, other = await served.key(Role.ADMIN), await served.key(Role.ADMIN)

    first = await served.client.post("/api/jobs", json=body, headers=header | one)
    second = await served.client.post("/api/jobs", json=body, headers=header | other)

    assert (first.status_code, second.status_code) == (201, 201)


async def test_a_job_belongs_to_the_trace_of_its_request(served: Service) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    one = (await served.client.post("/api/jobs", json={"task": "build"}, headers={"traceparent": trace})).json()
    listed = (await served.client.post("/api/jobs", json=[{"task": "build"}], headers={"traceparent": trace})).json()
    wrong = (await served.client.post("/api/jobs", json={"task": "build"}, headers={"traceparent": "x"})).json()

    assert [one["trace"], listed[0]["trace"]] == [trace, trace]
    # The framework may have made a span of its own, if another test in this process has set a provider.
    assert wrong["trace"] is None or is_traceparent(wrong["trace"])


@pytest.mark.parametrize(("first", "second"), [({"n": 1}, {"n": True}), ([0], [False]), (1, 1.0)])
async def test_an_idempotency_key_tells_numbers_from_truth_values(
    served: Service, first: object, second: object
) -> None:
    header = {"Idempotency-Key": "k"}
    made = await served.client.post("/api/jobs", json={"task": "build", "data": first}, headers=header)

    other = await served.client.post("/api/jobs", json={"task": "build", "data": second}, headers=header)

    assert (made.status_code, other.status_code, other.json()["field"]) == (201, 422, "Idempotency-Key")


async def test_a_repeat_may_have_its_names_in_another_order(served: Service) -> None:
    answers = [
        await served.client.post(
            "/api/jobs",
            content=f'{{"task": "build", "data": {data}}}',
            headers={"Idempotency-Key": "k", "Content-Type": "application/json"},
        )
        for data in ('{"a": 1, "b": {"c": 2, "d": 3}}', '{"b": {"d": 3, "c": 2}, "a": 1}')
    ]

    assert [answer.status_code for answer in answers] == [201, 200]
    assert answers[0].json()["id"] == answers[1].json()["id"]


async def test_a_job_that_is_known_by_its_unique_key_is_no_misused_idempotency_key(served: Service) -> None:
    first = await served.client.post("/api/jobs", json={"task": "build", "data": 1, "unique": "u"})

    again = await served.client.post(
        "/api/jobs", json={"task": "build", "data": 2, "unique": "u"}, headers={"Idempotency-Key": "k"}
    )

    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])


async def test_an_empty_idempotency_key_is_refused(served: Service) -> None:
    answer = await served.client.post("/api/jobs", json={"task": "build"}, headers={"Idempotency-Key": ""})

    assert (answer.status_code, answer.json()["field"]) == (422, "Idempotency-Key")
    assert await served.queue.jobs() == []


async def test_a_submit_shows_the_job_as_python_does(served: Service) -> None:
    made = (await served.client.post("/api/jobs", json={"task": "build", "user": "u1", "tier": "partner"})).json()

    shown = json.loads(json.dumps((await served.queue.get(made["id"])).to_dict()))
    different = {name for name in made if made[name] != shown.get(name)}
    assert different <= {"message", "estimate", "watch_url", "history"}
    assert shown.keys() - made.keys() == set()
