"""How many jobs match a filter."""

from __future__ import annotations

import pytest

from qo.service.access.caller import Role
from qo.service.routes import counts
from tests.service.conftest import Service


async def counted(served: Service, query: str = "", headers: dict[str, str] | None = None) -> object:
    answer = await served.client.get(f"/api/counts{query}", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_jobs_are_counted_by_state_and_by_what_the_filter_matches(served: Service) -> None:
    for number in range(3):
        await served.queue.submit("build", id=f"mine-{number}", user="u1")
    await served.queue.submit("export", id="theirs", user="u2")
    await served.queue.cancel("mine-0")

    assert await counted(served) == {"states": {"queued": 3, "cancelled": 1}, "is_complete": True}
    assert await counted(served, "?user=u1&status=queued") == {"states": {"queued": 2}, "is_complete": True}
    assert await counted(served, "?id=their") == {"states": {"queued": 1}, "is_complete": True}


async def test_a_user_counts_only_their_own_jobs(served: Service) -> None:
    await served.queue.submit("build", user="u1")
    await served.queue.submit("build", user="u2")
    key = await served.key(Role.USER, user="u1")

    assert await counted(served, headers=key) == {"states": {"queued": 1}, "is_complete": True}
    assert await counted(served, "?user=u2", headers=key) == {"states": {}, "is_complete": True}


async def test_counting_stops_where_it_would_take_long(served: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "MOST_COUNTED", 2)
    monkeypatch.setattr(counts, "MOST_OF_A_PAGE", 2)
    for _ in range(3):
        await served.queue.submit("build")

    assert await counted(served) == {"states": {"queued": 2}, "is_complete": False}
