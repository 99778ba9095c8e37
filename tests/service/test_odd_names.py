"""Ids, groups, parents and users may contain any printable character, on every route."""

from __future__ import annotations

from typing import Any

import pytest

import qo
from qo.service.access.caller import Role
from tests.service.calling import OPERATIONS, call
from tests.service.conftest import running_service
from tests.service.who_may import ROUTES

ODD = [
    "a/b",
    "x/why",
    "..",
    ".",
    "%",
    "%2F",
    "é",
    "a b",
    "?",
    "#1",
    "../../x",
    "actions",
    "pause",
    "\\",
    "日本",
    "{id}",
]
NAMED = [route for route, row in ROUTES.items() if "{" in route or "'{" in str(row.body)]
"""The routes with a name in their path or their body."""
OF_USERS = ("own", "change-own")
"""The kinds of routes that users call; of the others, an admin does."""
ECHOED = ("id", "job_id", "group", "parent")
"""Fields of an answer that name what the path has named."""


@pytest.mark.parametrize("route", NAMED)
async def test_odd_names_of_things_and_users_work_on_every_route(route: str) -> None:
    settings = {"server": {"port": 0, "user_tasks": ["build"]}}
    async with await qo.connect("memory://", settings=settings) as queue, running_service(queue) as served:
        admin = await served.key(Role.ADMIN)
        users = {name: await served.key(Role.USER, user=name) for name in ODD}
        for name in ODD:
            headers = users[name] if ROUTES[route].kind in OF_USERS else admin
            answer = await call(served, route, owner=name, name=name, headers=headers)

            assert answer.status_code == OPERATIONS[route].status, (name, answer.text)
            if answer.headers["content-type"] == "application/json" and isinstance(answer.json(), dict):
                assert {name} >= {answer.json()[field] for field in ECHOED if answer.json().get(field)}


@pytest.mark.parametrize("field", ["user", "task", "parent"])
async def test_odd_names_are_found_by_filters(field: str) -> None:
    async with (
        await qo.connect("memory://", settings={"server": {"port": 0}}) as queue,
        running_service(queue) as served,
    ):
        for name in ODD:
            fields: dict[str, Any] = {"task": "build", "id": f"of {name}", field: name}
            await queue.submit(**fields)
        for name in ODD:
            page = await served.client.get("/api/jobs", params={field: name})
            assert [job["id"] for job in page.json()["items"]] == [f"of {name}"], (name, page.text)
