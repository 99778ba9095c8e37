"""Pages: `jobs` and `line` from one cursor to the next, while jobs come and go."""

from __future__ import annotations

from typing import Any

import pytest

from qo.errors import InvalidValue, JobNotFound
from qo.job import State
from qo.store.contract import Store
from qo.values import Wanted
from tests.conformance.suite.harness import (
    NOW,
    at,
    claim,
    finish,
    numbered,
    standing,
    start,
    submit,
    submit_all,
    succeed,
)

bounded_by = pytest.mark.bounded_by


async def pages_of(store: Store, *, limit: int, **wanted: Any) -> list[list[str]]:
    found, after = [], None
    while True:
        page = await store.jobs(limit=limit, after=after, **wanted)
        assert len(page.jobs) <= limit
        found.append([job.id for job in page.jobs])
        after = page.next
        if after is None:
            return found


def joined(pages: list[list[str]]) -> list[str]:
    return [job_id for page in pages for job_id in page]


async def in_all_places(store: Store) -> None:
    """Two jobs that run, two that have ended, one that is scheduled, and five in line."""
    await submit_all(store, numbered("run", 4), user="u1")
    leases = await claim(store, capacity=4)
    await succeed(store, leases[0])
    await finish(store, leases[1], State.CANCELLED)
    await submit(
        store, "later", run_at_ms=NOW + 10**6, user="u2", project="p1", standing=standing("partner"), priority=20
    )
    await submit_all(store, numbered("q", 5), user="u1", parent="p")


FILTERS: tuple[Wanted, ...] = (
    {},
    {"user": "u1"},
    {"parent": "p"},
    {"task": "work"},
    {"status": "queued"},
    {"status": "running"},
    {"project": "p1"},
    {"tier": "partner"},
    {"priority": 20},
    {"id_prefix": "run0000"},
    {"ended": True},
    {"ended": True, "status": "cancelled", "user": "u1"},
)


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3, 7])
async def test_pages_together_are_the_whole_list(store: Store, limit: int, newest_first: bool) -> None:
    await in_all_places(store)

    for wanted in FILTERS:
        whole = [job.id for job in (await store.jobs(newest_first=newest_first, **wanted)).jobs]
        assert joined(await pages_of(store, limit=limit, newest_first=newest_first, **wanted)) == whole, wanted


async def test_the_last_page_has_no_next(store: Store) -> None:
    await submit_all(store, ["a", "b"])

    page = await store.jobs(limit=2)
    last = await store.jobs(limit=2, after=page.next)

    assert ([job.id for job in page.jobs], last.jobs, last.next) == (["a", "b"], (), None)


async def test_a_job_that_stays_where_it_is_is_found_once_whatever_others_do(store: Store) -> None:
    await in_all_places(store)
    first = await store.jobs(limit=3)
    await submit(store, "urgent", priority=10)
    await at(store, NOW).cancel(job_id="q00001")
    await at(store, NOW).cancel(job_id="q00004")
    await submit(store, "last")

    found, after = [job.id for job in first.jobs], first.next
    while after is not None:
        page = await store.jobs(limit=3, after=after)
        found += [job.id for job in page.jobs]
        after = page.next

    stayed = ["q00002", "q00003", "q00005", "run00001", "run00002", "run00003", "run00004", "later"]
    assert [job_id for job_id in found if job_id in stayed] == stayed
    assert found.count("q00001") == 2, "it has changed its state"
    assert (found.count("q00004"), found.count("last")) == (1, 1)
    assert "urgent" not in found, "the pages had passed its place"


@bounded_by(page=3)
async def test_a_page_ends_when_it_has_looked_at_its_bound(store: Store) -> None:
    await submit_all(store, numbered("q", 10))
    await submit(store, "wanted", task="seldom")

    pages = await pages_of(store, limit=5, task="seldom")

    assert len(pages) > 1
    assert joined(pages) == ["wanted"]
    assert len((await store.jobs(limit=5)).jobs) == 3


@bounded_by(page=3)
@pytest.mark.parametrize("newest_first", [False, True])
async def test_bounded_pages_together_are_the_whole_list(store: Store, newest_first: bool) -> None:
    await in_all_places(store)

    others = ["run00001", "run00002", "run00003", "run00004", "later"]
    for wanted, whole in (
        ({}, [*numbered("q", 5), *(reversed(others) if newest_first else others)]),
        ({"user": "u1", "status": "succeeded"}, ["run00001"]),
        ({"parent": "p"}, numbered("q", 5)),
        ({"status": "scheduled"}, ["later"]),
        ({"project": "p1"}, ["later"]),
        ({"tier": "partner"}, ["later"]),
        ({"priority": 20}, ["later"]),
        ({"id_prefix": "q0000", "user": "u1"}, numbered("q", 5)),
        ({"ended": True}, ["run00002", "run00001"] if newest_first else ["run00001", "run00002"]),
        ({"ended": True, "status": "queued"}, []),
    ):
        assert joined(await pages_of(store, limit=4, newest_first=newest_first, **wanted)) == whole, wanted


@bounded_by(page=4)
async def test_the_line_comes_in_pages_and_every_page_counts_it(store: Store) -> None:
    await submit_all(store, numbered("q", 10))
    found: list[str] = []
    page = await store.line(limit=100)
    while True:
        assert (len(page.jobs) <= 4, page.queued) == (True, 10)
        found += [job.id for job in page.jobs]
        if page.next is None:
            break
        page = await store.line(limit=100, after=page.next)

    assert found == numbered("q", 10)


async def test_with_no_limit_the_line_is_only_counted(store: Store) -> None:
    await submit_all(store, ["a", "b"])

    page = await store.line(limit=0)

    assert (page.jobs, page.queued, page.next) == ((), 2, None)


async def test_jobs_are_read_by_their_ids_in_the_order_asked_for(store: Store) -> None:
    await in_all_places(store)

    page = await store.jobs(ids=["run00001", "nobody", "q00002", "later", "q00002"])

    assert [(job.id, job.position) for job in page.jobs] == [("run00001", None), ("q00002", 2), ("later", None)]
    assert page.jobs[0] == await store.job("run00001")
    assert (page.next, (await store.jobs(ids=[])).jobs) == (None, ())


async def test_more_ids_than_a_call_takes_are_refused(store: Store) -> None:
    with pytest.raises(InvalidValue, match="ids has 1001 ids; name at most 1000 in one call"):
        await store.jobs(ids=numbered("j", 1001))


@pytest.mark.parametrize(
    ("job_id", "neighbours"),
    [
        ("q00001", ["q00001", "q00002", "q00003"]),
        ("q00003", ["q00001", "q00002", "q00003", "q00004", "q00005"]),
        ("q00005", ["q00003", "q00004", "q00005"]),
        ("later", []),
    ],
)
async def test_the_line_around_a_job(store: Store, job_id: str, neighbours: list[str]) -> None:
    await in_all_places(store)

    page = await store.line(limit=2, around=job_id)

    assert ([job.id for job in page.jobs], page.queued, page.next) == (neighbours, 5, None)


async def test_there_is_no_line_around_a_job_that_is_not_there(store: Store) -> None:
    with pytest.raises(JobNotFound):
        await store.line(limit=2, around="nobody")


@pytest.mark.parametrize("after", ["", "x", "l", "l-1", "q1", "l" + "9" * 17, "o 1", "1", 7, "l٣"])
async def test_a_cursor_that_no_page_answered_is_refused(store: Store, after: Any) -> None:
    for read in (store.jobs(after=after), store.line(limit=1, after=after)):
        with pytest.raises(InvalidValue, match=r"after is .*; use the next of the page before"):
            await read


async def test_ended_jobs_come_in_the_order_of_their_ends(store: Store) -> None:
    leases = {lease.job_id: lease for lease in [await start(store, job_id) for job_id in "abcde"]}
    for number, job_id in enumerate("cab"):
        await succeed(store, leases[job_id], now=NOW + number)
    await succeed(store, leases["e"], leases["d"], now=NOW + 2)

    newest = joined(await pages_of(store, limit=2, ended=True, newest_first=True))
    oldest = joined(await pages_of(store, limit=1, ended=True))

    assert newest == ["e", "d", "b", "a", "c"]
    assert oldest == ["c", "a", "b", "d", "e"]


async def test_a_page_of_ended_jobs_goes_on_where_one_was_that_is_retried(store: Store) -> None:
    leases = {lease.job_id: lease for lease in [await start(store, job_id) for job_id in "abc"]}
    for number, job_id in enumerate("abc"):
        await finish(store, leases[job_id], State.FAILED, now=NOW + number)

    first = await store.jobs(limit=2, ended=True, newest_first=True)
    await at(store, NOW + 5).retry("b")
    second = await store.jobs(limit=2, ended=True, newest_first=True, after=first.next)

    assert [[job.id for job in page.jobs] for page in (first, second)] == [["c", "b"], ["a"]]


@bounded_by(page=3)
async def test_a_page_of_ended_jobs_looks_at_its_bound_only(store: Store) -> None:
    for job_id in numbered("j", 8):
        await succeed(store, await start(store, job_id, task="often"))
    await succeed(store, await start(store, "wanted", task="seldom"))

    pages = await pages_of(store, limit=5, ended=True, task="seldom")

    assert len(pages) > 1
    assert joined(pages) == ["wanted"]


@pytest.mark.parametrize("after", ["", "e", "e1", "e1-", "l1", "o1", "e-1-1", 7])
async def test_a_cursor_of_ended_jobs_that_no_page_answered_is_refused(store: Store, after: Any) -> None:
    with pytest.raises(InvalidValue, match=r"after is .*; use the next of the page before"):
        await store.jobs(ended=True, after=after)
