"""With very many jobs, ended and waiting, every page, job, reason and group looks at a limited part of them."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlencode

import pytest

import qo
from qo.queue.estimator import Estimator
from qo.service.access.caller import Role
from qo.service.access.keys import Keys
from qo.values import Outcome
from tests.by_hand import LEASE_MS
from tests.service.conftest import Service, running_service
from tests.service.load.rows_looked_at import counter_of
from tests.worker.processes_on_a_store import url_fixture  # noqa: F401 - asked for by name

FILTERS: dict[str, dict[str, str]] = {
    "all": {},
    "a state that many have": {"status": "succeeded"},
    "the state of those in line": {"status": "queued"},
    "a state that none has": {"status": "failed"},
    "a user with many jobs": {"user": "many"},
    "a user with few jobs": {"user": "few"},
    "a stranger": {"user": "nobody"},
    "a task": {"task": "wait"},
    "a task that none has": {"task": "none"},
    "a parent": {"parent": "p1"},
    "a project": {"project": "few"},
    "a tier that none has": {"tier": "pro"},
    "a priority": {"priority": "low"},
    "the beginning of an id": {"id": "ended-1"},
    "an id that none has": {"id": "x"},
    "several at once": {"user": "many", "task": "end", "status": "failed"},
}
NOTHING_TO_LOOK_AT = "admin: history, the state of those in line"
GROUPS = 20
AT_ONCE = 250
"""A claim gives no more."""
SETTINGS = {"server": {"port": 0}}
LIMIT = 100
ROUNDS = 2
"""Of so many counts the smallest is taken: now and then the server reads something for itself."""
NEVER_AGAIN_SECONDS = 10_000.0
"""The line is read for estimates once, before anything is counted."""
GROWTH = 1.1
"""Twice the jobs may cost so much more, because other jobs are on a page, with other groups and users."""
SLOWEST_SECONDS = 0.05


async def fill(queue: qo.Queue, *, from_number: int, to_number: int) -> None:
    """Jobs that have ended and as many that wait."""
    for number in range(GROUPS):
        await queue.set_limit(f"g{number}", 3)
    for first in range(from_number, to_number, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, to_number))
        await queue.submit_many([_new("end", number) for number in numbers])
        claimed = await queue.store.claim(
            worker="by-hand", tasks=["end"], capacity=AT_ONCE, lease_ms=LEASE_MS, claim_id=queue.system.new_id()
        )
        assert len(claimed.leases) == len(numbers)
        await queue.store.finish(
            [Outcome(job_id=each.job.id, token=each.token, state=qo.State.SUCCEEDED) for each in claimed.leases]
        )
        await queue.submit_many([_new("wait", number) for number in numbers])


def _new(task: str, number: int) -> qo.New:
    return qo.New(
        task,
        {"number": number},
        id=f"{'ended' if task == 'end' else 'waiting'}-{number}",
        user="few" if number < 3 else "many" if number % 2 else f"u{number % 100}",
        project="few" if number < 3 else "many",
        parent=f"p{number // 50}",
        priority="low" if number % 10 == 0 else "normal",
        groups=[f"g{number % GROUPS}"] if task == "wait" else [],
    )


def requests() -> dict[str, str]:
    """Path by name. All jobs that they name are there from the beginning."""
    pages = {
        f"{path}, {name}": f"/api/{path}?{urlencode({'limit': LIMIT, **query})}"
        for path in ("jobs", "history")
        for name, query in FILTERS.items()
    }
    return pages | {
        "line": f"/api/queue?limit={LIMIT}",
        "line, around a job": "/api/queue?around=waiting-1000",
        "a job that waits": "/api/jobs/waiting-1000",
        "a job that has ended": "/api/jobs/ended-1000",
        "why a job waits": "/api/jobs/waiting-1000/why",
        "why a job has ended": "/api/jobs/ended-1000/why",
        "all groups": "/api/concurrency",
        "a group": "/api/concurrency/g1",
    }


OF_USERS = ("jobs, all", "history, all", "line", "a job that waits", "why a job waits")
"""These are also asked for by a user with many jobs, who sees only those: the job is one of them."""


class Asking:
    """Requests by an admin and by the user `many`."""

    def __init__(self, served: Service, headers: Mapping[str, Mapping[str, str]]) -> None:
        self._served = served
        self._headers = headers
        self.paths = {f"admin: {name}": path for name, path in requests().items()}
        self.paths |= {f"user: {name}": requests()[name].replace("1000", "1001") for name in OF_USERS}

    async def ask(self, name: str) -> Any:
        answer = await self._served.client.get(self.paths[name], headers=self._headers[name.partition(":")[0]])
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def add_later_pages(self) -> None:
        """The third page of a list looks at no more than the first."""
        for name in ("admin: jobs, all", "admin: history, all", "admin: line", "user: jobs, all"):
            after = None
            for _ in range(2):
                path = self.paths[name] if after is None else f"{self.paths[name]}&{urlencode({'after': after})}"
                answer = await self._served.client.get(path, headers=self._headers[name.partition(":")[0]])
                after = answer.json()["next"]
            self.paths[f"{name}, third page"] = f"{self.paths[name]}&{urlencode({'after': after})}"


@asynccontextmanager
async def asking(queue: qo.Queue) -> AsyncIterator[Asking]:
    """A server whose estimates are there."""
    # Before the server starts, because it looks for new keys only now and then.
    keys = Keys(queue.store, system=queue.system)
    made = {"admin": await keys.create(Role.ADMIN), "user": await keys.create(Role.USER, user="many")}
    async with running_service(queue) as served:
        asked = Asking(served, {name: {"Authorization": f"Bearer {key.text}"} for name, key in made.items()})
        await asked.add_later_pages()
        await asked.ask("admin: line")
        yield asked


async def looked_at(url: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """By request, how much the store looks at for its answer."""
    counts: dict[str, int] = {}
    monkeypatch.setattr("qo.queue.queue.Estimator", partial(Estimator, every_seconds=NEVER_AGAIN_SECONDS))
    async with await qo.connect(url, settings=SETTINGS) as queue, asking(queue) as asked:
        count = counter_of(queue.store, monkeypatch)
        for name in asked.paths:
            found = []
            for _ in range(ROUNDS):
                before = await count()
                await asked.ask(name)
                found.append(await count() - before)
            counts[name] = min(found)
    return counts


@pytest.mark.parametrize("each", [5000, pytest.param(100_000, marks=pytest.mark.nightly)])
async def test_twice_the_jobs_cost_no_page_more(url: str, each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with await qo.connect(url, settings=SETTINGS) as queue:
        await fill(queue, from_number=0, to_number=each // 2)
    with_half = await looked_at(url, monkeypatch)
    async with await qo.connect(url, settings=SETTINGS) as queue:
        await fill(queue, from_number=each // 2, to_number=each)

    with_all = await looked_at(url, monkeypatch)

    assert {name for name, looks in with_half.items() if not looks} <= {NOTHING_TO_LOOK_AT}
    grown = {name: (with_half[name], now) for name, now in with_all.items() if now > GROWTH * with_half[name]}
    assert grown == {}


@pytest.mark.nightly
async def test_with_100_000_jobs_of_each_kind_every_answer_takes_less_than_50_ms(url: str) -> None:
    async with await qo.connect(url, settings=SETTINGS) as queue:
        await fill(queue, from_number=0, to_number=100_000)
        async with asking(queue) as asked:
            took = {name: await _seconds(asked, name) for name in asked.paths}

    assert {name: seconds for name, seconds in took.items() if seconds > SLOWEST_SECONDS} == {}


async def _seconds(asked: Asking, name: str) -> float:
    """At the median, because the machine does other things as well."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        await asked.ask(name)
        times.append(time.perf_counter() - began)
        await asyncio.sleep(0)
    return statistics.median(times)
