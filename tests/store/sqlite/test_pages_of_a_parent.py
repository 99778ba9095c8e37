"""A page of a parent's jobs looks at a limited number of rows, however many jobs the parent has."""

from __future__ import annotations

import pytest

from qo.job import State
from qo.store.contract import Store
from qo.store.open import open_store
from qo.values import Bounds, Outcome, Submission
from tests.service.load.rows_looked_at import counter_of

BOUNDS = Bounds(page=40)


async def ended(store: Store, first: int, count: int, *, parent: str) -> None:
    ids = [f"{parent}-{number}" for number in range(first, first + count)]
    await store.submit([Submission(id=job_id, task="end", parent=parent) for job_id in ids])
    claimed = await store.claim(worker="w", tasks=["end"], capacity=count, lease_ms=60_000, claim_id=f"{parent}{first}")
    await store.finish(
        [Outcome(job_id=each.job.id, token=each.token, state=State.SUCCEEDED) for each in claimed.leases]
    )


@pytest.mark.parametrize("newest_first", [True, False])
async def test_a_page_of_a_parent_with_twice_the_jobs_looks_at_no_more_rows(
    newest_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store("memory://", namespace="default", bounds=BOUNDS)
    count = counter_of(store, monkeypatch)
    looked_at = []
    for first in (0, 200):
        await ended(store, first, 200, parent="app")
        before = await count()
        page = await store.jobs(parent="app", limit=10, newest_first=newest_first)
        looked_at.append(await count() - before)
        assert len(page.jobs) == 10
    await store.close()

    assert looked_at[1] <= looked_at[0] * 1.1


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("parent", ["many", "few"])
async def test_all_jobs_of_a_parent_come_once_in_pages(parent: str, newest_first: bool) -> None:
    store = await open_store("memory://", namespace="default", bounds=BOUNDS)
    for first in range(0, 100, 10):
        await ended(store, first, 10, parent="many")
        await ended(store, first // 10, 1, parent="few")
    await store.submit([Submission(id=f"{parent}-waits", task="wait", parent=parent)])

    found, after = [], None
    while True:
        page = await store.jobs(parent=parent, limit=7, newest_first=newest_first, after=after)
        found += [job.id for job in page.jobs]
        after = page.next
        if after is None:
            break
    await store.close()

    expected = [f"{parent}-{number}" for number in range(100 if parent == "many" else 10)]
    assert found == [f"{parent}-waits", *(reversed(expected) if newest_first else expected)]
