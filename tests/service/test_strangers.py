"""The key of a user learns and changes nothing of a stranger, whatever it names; a watch link shows its job only."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import qo
from qo.service.access.caller import Role
from qo.service.access.keys import RECORD_PREFIX
from tests.service.calling import OPERATIONS, call_named
from tests.service.conftest import Service, running_service
from tests.service.test_following import frames, run
from tests.service.who_may import ME, ROUTES, STRANGER, started

SECRETS = ("u2", "theirs")
"""Every name of the stranger and of what is the stranger's begins with one of these."""
GUARDED = [
    route for route, row in ROUTES.items() if row.kind not in ("open", "sign-in") and OPERATIONS[route].pattern.names
]


class World:
    """A service with a stranger's jobs, and the key of a user that is not the stranger."""

    def __init__(self, served: Service, file: sqlite3.Connection, key: dict[str, str]) -> None:
        self.served, self.client, self.queue = served, served.client, served.queue
        self.key = key
        self._file = file

    def contents(self) -> dict[str, list[str]]:
        """All that is in the store, but for keys, which note their last use."""
        tables = self._file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        rows = {name: map(repr, self._file.execute(f'SELECT * FROM "{name}"').fetchall()) for (name,) in tables}
        return {name: sorted(row for row in found if RECORD_PREFIX not in row) for name, found in rows.items()}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    settings = {"server": {"port": 0, "user_tasks": ["build"]}}
    async with await qo.connect(f"sqlite:///{tmp_path}/qo.db", settings=settings) as queue:
        await queue.set_limit("theirs-group", 1)
        for number in (1, 2):  # the second one waits for the first
            await queue.submit("build", id=f"theirs-{number}", user=STRANGER, groups=["theirs-group"])
        await queue.submit("build", id="theirs-unique", user=STRANGER, unique="theirs-key", project="theirs-project")
        await queue.submit("build", id="theirs-phase", user=STRANGER, parent="theirs-parent", phase=1)
        # Closed after the store: until then, closing a file would take the locks that this process has on it.
        file = sqlite3.connect(tmp_path / "qo.db")
        async with running_service(queue) as served:
            yield World(served, file, await served.key(Role.USER, user=ME))
    file.close()


def shows_nothing(text: str, *, named: str = "") -> bool:
    """Whether no name of the stranger's is in the text, but for those that the caller has named."""
    for name in sorted(named.split(), key=len, reverse=True):
        text = text.replace(name, "")
    return not any(secret in text for secret in SECRETS)


async def test_a_strangers_thing_is_answered_like_one_that_does_not_exist(world: World) -> None:
    for route in GUARDED:
        names = await ROUTES[route].make(world.served, STRANGER, f"theirs {route}")
        before = world.contents()

        theirs = await call_named(world.served, route, names, headers=world.key)
        nobodys = await call_named(world.served, route, dict.fromkeys(names, "nobody"), headers=world.key)

        assert theirs.status_code == nobodys.status_code in (403, 404), route
        assert theirs.text.replace(next(iter(names.values())), "nobody") == nobodys.text, route
        assert world.contents() == before, route


# fields of the body, status, the field that the answer names
SUBMITS: list[tuple[dict[str, Any], int, str | None]] = [
    ({"id": "theirs-1"}, 422, "id"),
    ({"user": STRANGER}, 422, "user"),
    ({"parent": "theirs-parent", "phase": 1}, 422, "parent"),
    ({"phase": 1}, 422, "phase"),
    ({"project": "theirs-project"}, 422, "project"),
    ({"tier": "cto_scale"}, 422, "tier"),
    ({"groups": ["theirs-group"]}, 422, "groups"),
    ({"concurrency_group": "theirs-group"}, 422, "concurrency_group"),
    ({"concurrency_group": "theirs-group", "concurrency_limit": 0}, 422, "concurrency_group"),
    ({"concurrency_limit": 0}, 422, "concurrency_limit"),
    ({"contact": "u2@example.com"}, 422, "contact"),
    ({"by": STRANGER}, 422, "by"),
    ({"max_attempts": 1000}, 422, "max_attempts"),
    ({"timeout": 1e9}, 422, "timeout"),
    ({"task": "other"}, 403, "task"),
    ({"priority": 5}, 403, "priority"),
]


@pytest.mark.parametrize("in_a_list", [False, True])
async def test_a_user_submits_nothing_under_a_strangers_names(world: World, in_a_list: bool) -> None:
    before = world.contents()
    for fields, status, field in SUBMITS:
        body = {"task": "build", **fields}
        answer = await world.client.post("/api/jobs", json=[body] if in_a_list else body, headers=world.key)

        problem = answer.json()[0] if in_a_list else answer.json()
        assert (problem["status"], problem["field"]) == (status, field), fields
        named = " ".join(str(value) for value in fields.values()) + " theirs-group"
        assert shows_nothing(answer.text, named=named), fields
    assert world.contents() == before


UNIQUE_KEYS = [
    (STRANGER, "theirs-key"),
    (ME, "theirs-key"),
    (ME, f"{STRANGER}/theirs-key"),
    ("a", "b/c"),
    ("a/b", "c"),
    ("a%2Fb", "c"),
]


async def test_a_unique_key_is_the_users_alone(world: World) -> None:
    keys = [await world.served.key(Role.USER, user=user) for user, _ in UNIQUE_KEYS]
    for (user, unique), key in zip(UNIQUE_KEYS, keys, strict=True):
        first, again = [
            await world.client.post("/api/jobs", json={"task": "build", "unique": unique}, headers=key) for _ in "12"
        ]

        assert (first.status_code, first.json()["user"]) == (201, user), (user, unique)
        assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])


async def test_a_unique_key_that_a_program_gave_to_a_strangers_job_shows_nothing_of_it(world: World) -> None:
    await world.queue.submit("build", id="theirs-3", user=STRANGER, unique=f"{ME}/key")
    before = world.contents()

    answer = await world.client.post("/api/jobs", json={"task": "build", "unique": "key"}, headers=world.key)

    assert (answer.status_code, answer.json()["field"]) == (422, "unique")
    assert shows_nothing(answer.text)
    assert world.contents() == before


async def test_an_idempotency_key_of_a_stranger_is_another_request(world: World) -> None:
    stranger = await world.served.key(Role.USER, user=STRANGER)
    theirs, mine = [
        await world.client.post("/api/jobs", json={"task": "build"}, headers=key | {"Idempotency-Key": "k"})
        for key in (stranger, world.key)
    ]

    assert (theirs.status_code, mine.status_code) == (201, 201)
    assert (theirs.json()["user"], mine.json()["user"]) == (STRANGER, ME)


async def test_lists_of_a_user_have_no_job_of_a_stranger(world: World) -> None:
    admin = await world.served.key(Role.ADMIN)
    cursor = (await world.client.get("/api/jobs", params={"limit": 1}, headers=admin)).json()["next"]
    line_cursor = (await world.client.get("/api/queue", params={"limit": 1}, headers=admin)).json()["next"]
    await world.queue.submit("build", id="mine", user=ME)
    await world.queue.submit("build", id="theirs-last", user=STRANGER)
    for user, job_id in ((ME, "mine-ended"), (STRANGER, "theirs-ended")):
        await world.queue.cancel((await world.queue.submit("build", id=job_id, user=user)).id)
    seen: list[str] = []
    for path, query in [
        ("/api/jobs", {}),
        ("/api/jobs", {"user": STRANGER}),
        ("/api/jobs", {"parent": "theirs-parent"}),
        ("/api/jobs", {"task": "build"}),
        ("/api/jobs", {"status": "queued"}),
        ("/api/jobs", {"project": "theirs-project"}),
        ("/api/jobs", {"id": "theirs"}),
        ("/api/jobs", {"after": cursor}),
        ("/api/history", {}),
        ("/api/history", {"user": STRANGER}),
        ("/api/queue", {}),
        ("/api/queue", {"after": line_cursor}),
        ("/api/queue", {"around": "mine"}),
    ]:
        answer = await world.client.get(path, params=query, headers=world.key)
        assert answer.status_code == 200, (path, query)
        assert shows_nothing(answer.text), (path, query)
        seen += [job["id"] for job in answer.json()["items"]]

    assert set(seen) == {"mine", "mine-ended"}
    theirs, nobodys = [
        await world.client.get("/api/queue", params={"around": job_id}, headers=world.key)
        for job_id in ("theirs-1", "nobody")
    ]
    assert theirs.status_code == nobodys.status_code == 404
    assert theirs.text == nobodys.text.replace("nobody", "theirs-1")


async def test_a_job_that_waits_for_a_strangers_does_not_show_whose_it_is(world: World) -> None:
    await started(world.served, STRANGER, "theirs-held")
    await world.queue.submit("build", id="mine", user=ME, groups=["theirs-held"])

    for path in ("", "/why"):
        answer = await world.client.get(f"/api/jobs/mine{path}", headers=world.key)
        assert shows_nothing(answer.text, named="theirs-held:0 theirs-held"), answer.text


@pytest.mark.parametrize("cursor", ["0", "1", "3", "99999999", "9223372036854775808", "-1", "theirs-1", "1e3", "١"])
async def test_a_forged_cursor_gets_nothing_of_a_stranger(world: World, cursor: str) -> None:
    await world.queue.submit("build", id="mine", user=ME, priority="urgent")
    await run(world.served, "mine")
    await run(world.served, "theirs-1")
    headers = {name.encode(): value.encode() for name, value in (world.key | {"Last-Event-ID": cursor}).items()}

    async with world.client.stream("GET", "/api/jobs/mine/stream", headers=headers) as answer:
        if cursor.isascii() and cursor.isdecimal():
            seen = [data async for _, _, data in frames(answer)]
            assert {data["job_id"] for data in seen} == {"mine"}
            assert shows_nothing(str(seen))
        else:
            await answer.aread()
            assert answer.status_code == 422
            assert shows_nothing(answer.text, named=cursor)


async def test_a_watch_link_opens_its_job_and_nothing_else(world: World) -> None:
    await world.queue.submit("build", id="mine", user=ME)
    made = await world.client.post("/api/jobs", json={"task": "build"}, headers=world.key)
    token, job_id = made.json()["watch_url"].rpartition("/")[2], made.json()["id"]
    signed_in = await world.client.post("/api/session", json={"key": world.served.keys_made[0]})
    cookie, session = signed_in.headers["set-cookie"].partition(";")[0].split("=", 1)
    world.client.cookies.clear()
    before = world.contents()
    calls: list[tuple[str, str, int, dict[str, Any]]] = [
        ("GET", f"/watch/{token}", 200, {}),
        *((method, f"/watch/{token}", 405, {}) for method in ("POST", "PUT", "PATCH", "DELETE")),
        ("POST", f"/watch/{token}/cancel", 404, {}),
        ("GET", f"/api/jobs/{token}", 401, {}),
        ("GET", f"/api/jobs/{job_id}", 401, {"headers": {"Authorization": f"Bearer {token}"}}),
        ("POST", f"/api/jobs/{job_id}/cancel", 401, {"headers": {"Authorization": f"Bearer {token}"}}),
        ("GET", f"/api/jobs/{job_id}", 401, {"headers": {"Cookie": f"{cookie}={token}"}}),
        ("GET", f"/api/jobs/{job_id}", 401, {"params": {"token": token}}),
        ("GET", f"/api/jobs/{job_id}/stream", 401, {"headers": {"Last-Event-ID": token}}),
        ("POST", "/api/session", 401, {"json": {"key": token}}),
        ("GET", f"/api/jobs/{token}", 404, {"headers": world.key}),
        ("GET", "/api/jobs", 422, {"headers": world.key, "params": {"after": token}}),
        ("GET", f"/watch/{token}", 422, {"params": {"id": "mine"}}),
        ("GET", f"/watch/{job_id}", 404, {}),
        ("GET", f"/watch/{session}", 404, {}),
        ("GET", f"/watch/{world.served.keys_made[0]}", 404, {}),
    ]
    for method, path, status, more in calls:
        answer = await world.client.request(method, path, **more)
        assert answer.status_code == status, (method, path, more)
        assert shows_nothing(answer.text, named=token), (method, path, more)
    assert world.contents() == before


async def test_the_tier_and_the_project_of_a_users_job_come_from_the_key(world: World) -> None:
    await world.queue.set_tier(ME, "cto_scale")
    with_project = await world.served.key(Role.USER, user=ME, project="p1")

    without = await world.client.post("/api/jobs", json={"task": "build"}, headers=with_project)
    other = await world.client.post("/api/jobs", json={"task": "build", "project": "p2"}, headers=with_project)

    assert (without.json()["project"], without.json()["tier"]) == ("p1", "cto_scale")
    assert (other.status_code, other.json()["field"]) == (403, "project")
