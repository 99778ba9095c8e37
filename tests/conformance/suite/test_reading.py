"""Reading: a job, the line, positions, groups, leases, usage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from qo.errors import JobNotFound
from qo.job import Job, JobHistory, Reached, State, moment
from qo.policy.ordering import FIRST_SEQUENCE, drawn_place, order_key
from qo.store.contract import Store
from qo.values import GroupStatus, InLine, Source, TaskOptions, UserUsage
from tests.conformance.suite.harness import (
    HOUR,
    NOW,
    TODAY,
    acquire,
    ask_to_confirm,
    at,
    claim,
    fail,
    group_status,
    hand_back,
    limit,
    line,
    numbered,
    register,
    run,
    standing,
    start,
    submit,
    submit_all,
    succeed,
    without_history,
)


async def test_a_job_is_read_with_everything_it_was_given(store: Store) -> None:
    await submit(
        store,
        "a",
        task="build",
        payload=b'{"n": 1}',
        priority=20,
        user="u1",
        project="p1",
        parent="107",
        phase=1,
        groups=("gpu",),
        unique="k",
        max_attempts=5,
        timeout_ms=1500,
        standing=standing("partner", iterations_batch=3, iterations_max=9),
    )

    read = await store.job("a")
    assert read == Job(
        id="a",
        task="build",
        state=State.QUEUED,
        status="queued",
        priority=20,
        groups=(
            "global", "build", "priority:20", "user:u1", "project:p1", "tier:partner", "parent:107", "gpu",
        ),
        submitted_at=moment(NOW),
        attempts=0,
        max_attempts=5,
        tier="partner",
        user="u1",
        project="p1",
        parent="107",
        phase=1,
        unique="k",
        key=read.key,
        position=1,
        position_original=1,
        iterations_batch=3,
        iterations_granted=3,
        iterations_max=9,
        timeout_seconds=1.5,
        joined_at=moment(NOW),
        history=JobHistory(states=(Reached("queued", moment(NOW)),)),
    )  # fmt: skip
    assert await store.payload("a") == (b'{"n": 1}', None)


async def test_a_submit_answers_with_the_job_as_it_is_read(store: Store) -> None:
    job = await submit(store, "a", user="u1", run_at_ms=NOW + HOUR)

    assert job == without_history(await store.job("a"))


@pytest.mark.parametrize("read", ["job", "payload", "blockers"])
async def test_a_job_that_does_not_exist_is_not_found(store: Store, read: str) -> None:
    with pytest.raises(JobNotFound, match="'nobody'"):
        await getattr(store, read)("nobody")


@pytest.mark.parametrize(
    "change",
    [
        lambda store: at(store, NOW).set_priority(10, job_id="nobody"),
        lambda store: at(store, NOW).cancel(job_id="nobody"),
        lambda store: at(store, NOW).retry("nobody"),
        lambda store: at(store, NOW).confirm("nobody"),
    ],
)
async def test_a_job_that_does_not_exist_is_not_changed(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]], change: Callable[[Store], Awaitable[object]]
) -> None:
    before = await snapshot()

    with pytest.raises(JobNotFound, match="'nobody'"):
        await change(store)

    assert await snapshot() == before


async def some_jobs(store: Store) -> None:
    await submit(store, "done", user="u1", task="x")
    await succeed(store, *await claim(store, tasks=["x"]))
    await submit(store, "staged", user="u2", task="y", parent="p")
    await run(store, (await claim(store, tasks=["y"]))[0], stage="code")
    await submit(store, "later", user="u1", task="x", run_at_ms=NOW + HOUR)
    await submit_all(store, ["q1", "q2"], user="u1", task="x")
    await submit(store, "urgent", user="u2", task="y", priority=10)


async def test_jobs_are_those_in_line_in_their_order_and_then_the_others_by_submission(store: Store) -> None:
    await some_jobs(store)

    jobs = (await store.jobs()).jobs

    assert [job.id for job in jobs] == ["urgent", "q1", "q2", "done", "staged", "later"]
    assert [job.position for job in jobs] == [1, 2, 3, None, None, None]


async def test_newest_first_turns_the_others_round_and_never_the_line(store: Store) -> None:
    await some_jobs(store)

    jobs = (await store.jobs(newest_first=True)).jobs

    assert [job.id for job in jobs] == ["urgent", "q1", "q2", "later", "staged", "done"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"status": "queued"}, ["urgent", "q1", "q2"]),
        ({"status": "running"}, ["staged"]),
        ({"status": "code"}, ["staged"]),
        ({"status": "succeeded"}, ["done"]),
        ({"status": "scheduled"}, ["later"]),
        ({"status": "nonsense"}, []),
        ({"user": "u1"}, ["q1", "q2", "done", "later"]),
        ({"task": "y"}, ["urgent", "staged"]),
        ({"parent": "p"}, ["staged"]),
        ({"user": "u1", "status": "queued"}, ["q1", "q2"]),
        ({"user": "u2", "task": "x"}, []),
        ({"limit": 2}, ["urgent", "q1"]),
        ({"limit": 4}, ["urgent", "q1", "q2", "done"]),
        ({"user": "u1", "limit": 3}, ["q1", "q2", "done"]),
    ],
)
async def test_jobs_are_found_by_what_they_are(
    store: Store, wanted: dict[str, int | str] | dict[str, int] | dict[str, str], found: list[str]
) -> None:
    await some_jobs(store)

    assert [job.id for job in (await store.jobs(**wanted)).jobs] == found


async def test_jobs_of_a_user_and_a_parent_are_of_both(store: Store) -> None:
    for state in ("ended", "queued"):
        for user, parent in (("u1", "p"), ("u1", "q"), ("u2", "p"), ("u1", None), (None, "p")):
            await submit(store, f"{state}-{user}-{parent}", user=user, parent=parent)
        if state == "ended":
            await succeed(store, *await claim(store, capacity=5))

    found = (await store.jobs(user="u1", parent="p")).jobs

    assert [job.id for job in found] == ["queued-u1-p", "ended-u1-p"]
    assert [job.id for job in (await store.jobs(user="u1", parent="p", status="succeeded")).jobs] == ["ended-u1-p"]
    assert [job.id for job in (await store.jobs(user="u2", parent="q")).jobs] == []


async def test_a_staged_job_that_succeeded_is_ready(store: Store) -> None:
    lease = await start(store, "a")
    await run(store, lease, stage="checks")
    await succeed(store, lease)

    by_status, by_state = (await store.jobs(status="ready")).jobs, (await store.jobs(status="succeeded")).jobs

    assert [job.id for job in by_status] == [job.id for job in by_state] == ["a"]
    assert by_status[0].status == "ready"


async def ranks(store: Store, job_ids: Iterable[str]) -> dict[str, int]:
    return {job_id: place.position for job_id, place in (await store.positions(list(job_ids))).items()}


async def test_positions_are_ranks_from_one_of_those_in_line(store: Store) -> None:
    await submit_all(store, "abcd")
    await at(store, NOW).set_priority(10, job_id="d")
    await claim(store)

    assert await ranks(store, "abcd") == {"a": 1, "b": 2, "c": 3}
    assert await ranks(store, ["c", "a", "d", "nobody"]) == {"c": 3, "a": 1}
    assert await store.positions([]) == {}


async def test_the_position_of_any_job_is_its_rank_among_many(store: Store, crowd: int) -> None:
    await submit_all(store, numbered("j", crowd))
    await submit_all(store, numbered("low", 5), priority=70)

    order = await line(store)

    for job_id in (order[0], order[crowd // 2], order[crowd - 1], order[-1]):
        assert (await store.job(job_id)).position == order.index(job_id) + 1


async def test_jobs_that_are_put_aside_have_a_position_like_all_others(store: Store) -> None:
    await limit(store, "gpu", 0)
    await submit_all(store, ["a", "b"], groups=("gpu",))
    await submit(store, "c")

    assert await ranks(store, "abc") == {"a": 1, "b": 2, "c": 3}


async def test_only_jobs_in_line_are_counted_and_have_a_position(store: Store) -> None:
    await some_jobs(store)

    assert (await store.line(limit=0)).queued == 3
    assert (await store.job("staged")).position is None


async def test_the_line_is_read_with_what_its_jobs_compete_for(store: Store) -> None:
    await register(store, "w1", TaskOptions(name="build", groups=("gpu",)))
    boosted = standing("partner", boost=2)
    await submit(store, "a", task="build", user="u1", project="p1", standing=boosted, groups=("api",))
    await submit(store, "b", task="mail", parent="107", phase=1, priority=20)

    page = await store.line(limit=10)

    assert page.jobs == (
        InLine(
            id="b",
            task="mail",
            key=order_key(20, drawn_place(page.next_sequence - 1, 0)),
            groups=("global", "mail", "priority:20", "parent:107"),
        ),
        InLine(
            id="a",
            task="build",
            key=order_key(50, drawn_place(page.next_sequence - 2, 2)),
            tier="partner",
            groups=("global", "build", "priority:50", "user:u1", "project:p1", "tier:partner", "gpu", "api"),
        ),
    )


async def test_the_line_says_where_a_moved_job_would_stand_by_itself(store: Store) -> None:
    for name in ("a", "b", "c"):
        await submit(store, name)
    before = {job.id: job.key for job in (await store.line(limit=10)).jobs}

    await store.move("c", before="a")

    line = {job.id: job for job in (await store.line(limit=10)).jobs}
    assert list(line) == ["c", "a", "b"]
    assert (line["c"].undisturbed_key, line["b"].undisturbed_key) == (before["c"], None)


async def test_the_line_says_where_the_next_job_will_stand_and_which_groups_its_task_adds(store: Store) -> None:
    assert (await store.line(limit=0)).next_sequence == FIRST_SEQUENCE
    await register(store, "w1", TaskOptions(name="build", groups=("gpu", "api")), TaskOptions(name="mail"))
    await submit(store, "gone")
    await claim(store)
    before = await store.line(limit=0)
    await submit(store, "next", priority=20)

    (job,) = (await store.line(limit=10)).jobs

    assert before.task_groups == {"build": ("gpu", "api")}
    assert job.key == order_key(20, drawn_place(before.next_sequence, 0))


async def test_the_line_has_those_that_are_put_aside_and_nobody_who_is_not_in_it(store: Store) -> None:
    await limit(store, "gpu", 0)
    await submit(store, "aside", groups=("gpu",))
    await some_jobs(store)

    assert [job.id for job in (await store.line(limit=10)).jobs] == ["urgent", "aside", "q1", "q2"]


async def test_the_line_is_read_as_far_as_one_asks(store: Store, crowd: int) -> None:
    await submit_all(store, numbered("j", crowd))
    await submit(store, "urgent", priority=10)

    assert [job.id for job in (await store.line(limit=3)).jobs] == (await line(store))[:3]
    assert len((await store.line(limit=crowd)).jobs) == crowd
    assert len((await store.line(limit=10 * crowd)).jobs) == crowd + 1


# --- groups -----------------------------------------------------------------------------------------------------


async def test_a_group_nobody_has_named_is_unlimited_and_empty(store: Store) -> None:
    assert await group_status(store, "never-heard-of") == GroupStatus(group="never-heard-of")


async def test_a_group_shows_its_limit_source_use_and_who_waits_because_of_it(store: Store) -> None:
    await limit(store, "gpu", 1, source=Source.CONFIGURATION)
    await submit_all(store, "abc", groups=("gpu",))
    await claim(store, capacity=5)
    await acquire(store, "caller", "gpu")

    status = await group_status(store, "gpu")

    assert (status.limit, status.source, status.paused) == (1, Source.CONFIGURATION, False)
    assert (status.active, status.waiting) == (1, 3)
    assert [slot.holder for slot in status.slots] == ["a"]


async def test_all_groups_with_a_limit_a_pause_a_closing_time_or_holders_are_listed_without_slots(
    store: Store,
) -> None:
    await limit(store, "limited", 2)
    await at(store, NOW).set_paused("paused", True)
    await start(store, "a", groups=("held", "limited"))
    await submit(store, "waits", groups=("named-only",))
    await hand_back(store, await start(store, "b", groups=("closed",)), closed={"closed": 5000})

    groups = await store.groups()

    assert [(group.group, group.active) for group in groups] == [
        ("closed", 0),
        ("held", 1),
        ("limited", 1),
        ("paused", 0),
    ]
    assert all(group.slots == () for group in groups)


async def test_a_closed_group_tells_until_when(store: Store) -> None:
    lease = await start(store, "a", groups=("bucket",))

    await hand_back(store, lease, closed={"bucket": 5000})

    assert (await group_status(store, "bucket")).closed_until == moment(NOW + 5000)


# --- usage ------------------------------------------------------------------------------------------------------


async def test_a_user_nobody_knows_has_used_nothing(store: Store) -> None:
    assert await at(store, NOW).usage("nobody") == UserUsage(user="nobody", today=TODAY)


async def test_a_users_usage_is_that_of_the_day(store: Store) -> None:
    await submit_all(store, "abc", user="u1", standing=standing("partner", daily_quota=2))

    usage = await at(store, NOW).usage("u1")

    assert usage == UserUsage(user="u1", tier="partner", daily_quota=2, used_today=2, deferred=1, today=TODAY)


async def test_reading_changes_nothing(store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]) -> None:
    await some_jobs(store)
    await fail(store, await start(store, "failed"))
    await ask_to_confirm(store, await start(store, "confirming", groups=("gpu",)))
    before = await snapshot()

    await store.jobs()
    await store.line(limit=10)
    await store.positions(["q1", "failed"])
    await at(store, NOW).blockers("q1")
    await store.groups()
    await group_status(store, "gpu")
    await store.leases()
    await at(store, NOW).usage("u1")
    await at(store, NOW).workers()
    await store.series()
    await store.audit()
    await store.events(0)

    assert await snapshot() == before
