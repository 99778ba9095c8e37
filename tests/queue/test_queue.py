"""The front door: what callers say, what they get back."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import pytest

import qo
from qo.policy.estimates.base import duration_of_task, duration_of_tier
from qo.queue.queue import SUBMIT_AT_ONCE
from qo.values import Average, Outcome, Registration, TaskOptions


async def test_a_submitted_job_knows_its_place_in_line(queue: qo.Queue) -> None:
    await queue.submit("build", {"n": 1})
    job = await queue.submit("build", {"n": 2}, user="ada", project="site", priority="low", groups=["gpu"])

    assert (job.state, job.status, job.position, job.position_original) == (qo.State.QUEUED, "queued", 2, 2)
    assert job.position_message is not None
    assert job.position_message.startswith("You are #2 in queue")
    assert (job.priority, job.user, job.project) == (70, "ada", "site")
    assert set(job.groups) == {"global", "build", "priority:70", "user:ada", "project:site", "gpu"}
    assert msgspec.structs.replace(await queue.get(job.id), estimate=None, history=None) == job


async def test_the_message_of_an_overtaken_job_says_by_how_many(queue: qo.Queue) -> None:
    job = await queue.submit("build")
    await queue.submit("build", priority="high")
    await queue.submit("build", priority="urgent")

    assert (await queue.get(job.id)).position_message == (
        "Originally #1, now #3: 2 priority jobs were placed ahead of you"
    )


async def test_the_message_of_a_job_that_an_operator_moved_names_no_priority_jobs(queue: qo.Queue) -> None:
    for name in "abc":
        await queue.submit("build", id=name)

    moved = await queue.move("a", after="c")

    assert moved.position_message == "Originally #1, now #3: an operator moved your job"
    assert (await queue.get("a")).position_message == moved.position_message
    assert [job.position_message for job in await queue.jobs()] == [
        "You are #1 in queue. Your position may change as priority jobs are added",
        "You are #2 in queue. Your position may change as priority jobs are added",
        moved.position_message,
    ]


async def test_the_message_of_a_job_whose_own_priority_was_lowered_names_no_priority_jobs(queue: qo.Queue) -> None:
    for name in "abc":
        await queue.submit("build", id=name)

    await queue.set_priority("a", "low")

    assert (await queue.get("a")).position_message == "Originally #1, now #3: the priority of your job was lowered"


async def test_the_message_of_a_job_behind_a_returned_job_names_no_priority_jobs(queue: qo.Queue) -> None:
    await queue.submit("build", id="first")
    claimed = await queue.store.claim(worker="w", tasks=["build"], capacity=1, lease_ms=60_000, claim_id="c")
    await queue.submit("build", id="second")
    (lease,) = claimed.leases
    await queue.store.finish([Outcome(job_id="first", token=lease.token, state=qo.State.QUEUED)])

    expected = "Originally #1, now #2: earlier jobs came back or moved up"
    assert (await queue.get("second")).position_message == expected
    assert (await queue.jobs())[1].position_message == expected


async def test_the_messages_of_listed_jobs_say_by_how_many_they_were_overtaken(queue: qo.Queue) -> None:
    for name in "ab":
        await queue.submit("build", id=name)
    await queue.submit("build", priority="high")

    assert [job.position_message for job in (await queue.jobs())[1:]] == [
        "Originally #1, now #2: 1 priority job was placed ahead of you",
        "Originally #2, now #3: 1 priority job was placed ahead of you",
    ]


async def test_a_job_that_starts_while_it_is_read_has_no_count_of_jobs_placed_ahead(queue: qo.Queue) -> None:
    """Who was placed ahead is asked after the job was read; by then it may have left the line."""
    job = await queue.submit("build")
    await queue.submit("build", priority="high")
    positions = queue.store.positions

    async def starts_first(job_ids: Sequence[str]) -> Any:
        await queue.cancel(job.id)
        return await positions(job_ids)

    queue.store.positions = starts_first  # type: ignore[method-assign]

    read = await queue.get(job.id)

    assert (read.position, read.position_message) == (2, "Originally #1, now #2: other jobs went ahead of you")


async def test_ids_are_made_and_sort_by_time(queue: qo.Queue) -> None:
    jobs = [await queue.submit("build") for _ in range(5)]

    assert len({job.id for job in jobs}) == 5
    assert {len(job.id) for job in jobs} == {26}


async def test_the_same_id_or_unique_key_gives_the_same_job(queue: qo.Queue) -> None:
    first = await queue.submit("build", {"n": 1}, id="one", unique="key")

    assert (await queue.submit("build", {"n": 2}, id="one")).id == first.id
    assert (await queue.submit("build", {"n": 3}, unique="key")).id == first.id
    assert len(await queue.jobs()) == 1


async def test_many_are_admitted_or_refused_each_on_its_own_in_order(queue: qo.Queue) -> None:
    answers = await queue.submit_many(
        [
            qo.New("build", {"n": 1}, parent="app", phase=1, id="first"),
            qo.New("build", {"n": 2}, parent="app", phase=1, id="second"),
            qo.New("build", {"n": 3}, id="third"),
        ]
    )

    first, second, third = answers
    assert isinstance(first, qo.Job)
    assert isinstance(second, qo.PhaseTaken)
    assert "Phase 1 of parent 'app' is already job 'first'" in str(second)
    assert isinstance(third, qo.Job)
    assert [job.id for job in await queue.jobs()] == ["first", "third"]


async def test_a_long_list_goes_in_portions_and_keeps_its_order(queue: qo.Queue) -> None:
    submit, sizes = queue.store.submit, []

    async def counted(submissions: Any) -> Any:
        sizes.append(len(submissions))
        return await submit(submissions)

    queue.store.submit = counted  # type: ignore[method-assign]
    ids = [f"job-{number}" for number in range(2 * SUBMIT_AT_ONCE + 1)]
    answers = await queue.submit_many([qo.New("build", id=id_) for id_ in ids])

    assert sizes == [SUBMIT_AT_ONCE, SUBMIT_AT_ONCE, 1]
    assert [(job.id, job.position) for job in answers if isinstance(job, qo.Job)] == [
        (id_, position) for position, id_ in enumerate(ids, start=1)
    ]
    assert [job.id for job in await queue.jobs(limit=len(ids))] == ids


@pytest.mark.parametrize("place", [0, SUBMIT_AT_ONCE, 2 * SUBMIT_AT_ONCE])
async def test_with_one_malformed_job_in_a_long_list_none_is_submitted(queue: qo.Queue, place: int) -> None:
    jobs = [qo.New("build")] * (2 * SUBMIT_AT_ONCE + 1)
    jobs[place] = qo.New("build", user="\0")

    with pytest.raises(qo.InvalidSubmit, match="user is"):
        await queue.submit_many(jobs)

    assert await queue.jobs() == []


async def test_a_store_that_fails_in_a_long_list_raises_and_nothing_is_submitted_after_it(queue: qo.Queue) -> None:
    submit, calls = queue.store.submit, 0

    async def fails_at_the_second(submissions: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise qo.StoreUnavailable("The store is away.")
        return await submit(submissions)

    queue.store.submit = fails_at_the_second  # type: ignore[method-assign]
    with pytest.raises(qo.StoreUnavailable):
        await queue.submit_many([qo.New("build")] * (4 * SUBMIT_AT_ONCE))

    assert (calls, len(await queue.jobs(limit=4 * SUBMIT_AT_ONCE))) == (2, SUBMIT_AT_ONCE)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"priority": 100}, "priority is 100"),
        ({"priority": "soon"}, "priority is 'soon'"),
        ({"tier": "gold", "user": "ada"}, "tier is 'gold'; use one of bootstrapper, cto_scale, partner"),
        ({"data": {1, 2, object()}}, "data is of type set"),
        ({"data": "x" * 1_048_577}, "bytes of JSON; at most 1048576"),
        ({"phase": 1}, "phase"),
        ({"delay": -1}, "delay is -1"),
        ({"delay": 1, "run_at": datetime.now(UTC)}, "give one of the two"),
        ({"run_at": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001 - that is the mistake
        ({"id": "x" * 201}, "id"),
        ({"user": "a\nb"}, "user"),
        ({"concurrency_limit": -1}, "-1"),
        ({"groups": ["user:x"]}, "user:x"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"timeout": float("nan")}, "timeout is nan"),
    ],
)
async def test_bad_input_is_refused_by_name_and_nothing_is_stored(
    queue: qo.Queue, arguments: dict[str, Any], names: str
) -> None:
    with pytest.raises(qo.SubmitRefused, match=names.replace("(", r"\(")) as refusal:
        await queue.submit("build", **arguments)

    assert str(refusal.value).endswith(".")
    assert await queue.jobs() == []


async def test_a_delayed_job_is_scheduled(queue: qo.Queue) -> None:
    delayed = await queue.submit("build", delay=timedelta(hours=1))
    later = await queue.submit("build", run_at=datetime(2090, 1, 1, tzinfo=UTC))

    assert delayed.state is later.state is qo.State.SCHEDULED
    assert delayed.run_at is not None
    assert timedelta(minutes=59) < delayed.run_at - datetime.now(UTC) <= timedelta(hours=1)
    assert later.run_at == datetime(2090, 1, 1, tzinfo=UTC)


async def test_a_tier_brings_its_limits_boost_quota_and_cap(queue: qo.Queue) -> None:
    job = await queue.submit("build", user="ada", project="site", tier="partner")

    assert (await queue.limit("user:ada")).limit == 3
    assert (await queue.limit("project:site")).limit == 3
    assert (job.tier, job.iterations_granted, job.iterations_max) == ("partner", 3, 9)
    usage = await queue.usage("ada")
    assert (usage.jobs_used, usage.jobs_remaining) == (1, 49)


@pytest.mark.parametrize("has_worker", [True, False])
@pytest.mark.parametrize("measured", ["task", "tier", None])
async def test_when_to_come_back_is_a_guess_until_it_was_measured(
    queue: qo.Queue, measured: str | None, has_worker: bool
) -> None:
    if measured is not None:
        name = duration_of_task("build") if measured == "task" else duration_of_tier("partner")
        await queue.store.observe([(Average(name=name, first=6000, weight=0.3), 6000.0)])
    if has_worker:
        options = (TaskOptions(name="build"),)
        await queue.store.register(Registration(name="w", tasks=options, capacity=2, lifetime_ms=10**9))
    await queue.submit_many([qo.New("build")] * 100)

    with pytest.raises(qo.QueueFull) as refusal:
        await queue.submit("build", user="ada", tier="partner")

    average_minutes = 100 if measured else 10
    minutes = refusal.value.retry_after.total_seconds() / 60
    assert minutes == math.ceil(average_minutes / (2 if has_worker else 1) / 15) * 15
    assert refusal.value.is_guess == (measured is None or not has_worker)
    assert ("a first guess" in str(refusal.value)) == refusal.value.is_guess


async def test_a_full_line_refuses_users_and_says_when_to_come_back(queue: qo.Queue) -> None:
    await queue.submit_many([qo.New("build")] * 100)

    with pytest.raises(qo.QueueFull) as refusal:
        await queue.submit("build", user="ada", tier="partner")

    # One job over the cap, a first guess of 600 s, nobody works: 10 minutes, rounded up to 15.
    assert refusal.value.retry_after == timedelta(minutes=15)
    assert str(refusal.value) == (
        "The system is busy, try again in 15 minutes, a first guess (100 jobs in line, cap 100)."
    )
    assert (await queue.submit("build")).position == 101


async def test_a_submits_own_limit_is_for_the_tasks_group_or_the_group_it_names(queue: qo.Queue) -> None:
    await queue.submit("build", concurrency_limit=4)
    named = await queue.submit("mail", concurrency_group="smtp", concurrency_limit=2)

    assert ((await queue.limit("build")).limit, (await queue.limit("smtp")).limit) == (4, 2)
    assert "smtp" in named.groups


async def test_a_weaker_limit_that_differs_is_a_warning_with_both_numbers_once(
    queue: qo.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    await queue.set_limit("build", 2)

    await queue.submit("build", concurrency_limit=5)
    await queue.submit("build", concurrency_limit=5)

    assert [record.message for record in caplog.records] == [
        "the limit 5 of group build wanted by a submit is not used: the operator set 2"
    ]


async def test_people_change_a_waiting_job(queue: qo.Queue) -> None:
    a, b, c = [(await queue.submit("build")).id for _ in range(3)]

    assert (await queue.set_priority(c, "high", by="ops")).position == 1
    assert (await queue.move(a, after=b, by="ops")).position == 3
    assert (await queue.cancel(b, by="ops")).state is qo.State.CANCELLED
    assert [job.id for job in await queue.jobs(status="queued")] == [c, a]
    assert {entry.action for entry in await queue.audit(c)} == {"priority"}
    assert {entry.by for entry in await queue.audit()} == {"ops"}


async def test_a_parent_is_changed_as_a_whole(queue: qo.Queue) -> None:
    await queue.submit("build", parent="app", phase=1)
    await queue.submit("build", parent="app", phase=2)

    changed = await queue.set_priority(priority="low", parent="app", by="ops")
    cancelled = await queue.cancel(parent="app")

    assert [job.priority for job in changed] == [70, 70]
    assert [job.state for job in cancelled] == [qo.State.CANCELLED] * 2
    assert (await queue.parent("app")).priority == 70


async def test_limits_are_set_shown_and_removed(queue: qo.Queue) -> None:
    await queue.set_limit("gpu", 2, by="ops")
    await queue.pause("gpu")
    status = await queue.limit("gpu")
    await queue.resume("gpu")
    await queue.remove_limit("gpu")

    assert (status.limit, status.paused, status.active) == (2, True, 0)
    assert (await queue.limit("gpu")).limit is None


async def test_a_closed_queue_says_so(queue: qo.Queue) -> None:
    await queue.close()

    with pytest.raises(qo.StoreUnavailable, match="closed"):
        await queue.submit("build")


async def test_concurrent_submits_go_together_and_each_gets_its_own_answer(queue: qo.Queue) -> None:
    calls: list[int] = []
    submit = queue.store.submit

    async def counted(submissions: Any, **options: Any) -> Any:
        calls.append(len(submissions))
        return await submit(submissions, **options)

    queue.store.submit = counted  # type: ignore[method-assign]
    counting = qo.Queue(queue.store, queue.settings)
    jobs = await asyncio.gather(*(counting.submit("build", n, id=f"job-{n}") for n in range(250)))

    assert [job.id for job in jobs] == [f"job-{n}" for n in range(250)]
    assert sum(calls) == 250
    assert len(calls) <= 4


async def test_one_bad_submit_among_concurrent_ones_fails_alone(queue: qo.Queue) -> None:
    answers = await asyncio.gather(queue.submit("build"), queue.submit("build", id="x\x00"), return_exceptions=True)
    good, bad = cast(tuple[object, object], answers)

    assert isinstance(good, qo.Job)
    assert isinstance(bad, qo.InvalidSubmit)
