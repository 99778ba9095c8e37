"""Bad input at the door: refused with a sentence that names the field, and nothing is changed.

What each field may be is in `tests/store/test_check.py`; here every operation is seen to ask.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.errors import InvalidPriority, PayloadTooLarge, QoError, SubmitRefused
from qo.job import JobError, Progress, State
from qo.store.contract import Store
from qo.values import (
    Advance,
    Average,
    Keep,
    Limit,
    Outcome,
    Registration,
    Renewal,
    Source,
    Submission,
    TaskOptions,
    Unlimited,
    UpkeepRules,
)
from tests.conformance.suite.harness import (
    LEASE,
    NOW,
    acquire,
    at,
    limit,
    register,
    standing,
    start,
    submission,
    submit,
    ticket,
)

LONG = "n" * 201
TOO_MANY_GROUPS = tuple(f"g{number}" for number in range(65))


def asked(**fields: Any) -> dict[str, Any]:
    return {"worker": "w1", "tasks": ["work"], "capacity": 1, "lease_ms": LEASE, "claim_id": "c1", **fields}


def limited(**fields: Any) -> Limit:
    return Limit(**{"group": "gpu", "slots": 1, "source": Source.OPERATOR, **fields})


def late(after_ms: int) -> UpkeepRules:
    return UpkeepRules(unconfirmed_after_ms=after_ms, unconfirmed_error=JobError("late"))


Call = Callable[[Store], Awaitable[object]]

SUBMISSIONS = [
    ("id", {"id": ""}),
    ("id", {"id": LONG}),
    ("id", {"id": "line\nbreak"}),
    ("id", {"id": "half a pair \ud800"}),
    ("task", {"task": "a:b"}),
    ("task", {"task": "global"}),
    ("task", {"task": "providers"}),
    ("priority", {"priority": 100}),
    ("priority", {"priority": -1}),
    ("priority", {"priority": True}),
    ("user", {"user": LONG}),
    ("project", {"project": "\x00"}),
    ("parent", {"parent": ""}),
    ("phase", {"phase": 1}),
    ("phase", {"phase": 0, "parent": "p"}),
    ("group", {"groups": ("user:other",)}),
    ("group", {"groups": ("global",)}),
    ("group", {"groups": ("priority:5",)}),
    ("groups", {"groups": "gpu"}),
    ("groups", {"groups": TOO_MANY_GROUPS}),
    ("limit", {"limits": (limited(slots=-1),)}),
    ("unique", {"unique": LONG}),
    ("run_at_ms", {"run_at_ms": -1}),
    ("run_at_ms", {"run_at_ms": 10**18}),
    ("delay_ms", {"delay_ms": -1}),
    ("delay_ms", {"delay_ms": 10**18}),
    ("delay_ms", {"delay_ms": 1, "run_at_ms": NOW}),
    ("quota_jitter_ms", {"quota_jitter_ms": 3_600_001}),
    ("cap", {"cap": -1}),
    ("max_attempts", {"max_attempts": 0}),
    ("start_by_ms", {"start_by_ms": -1, "overdue_message": "late"}),
    ("start_by_ms", {"start_by_ms": NOW + 1, "start_within_ms": 1, "overdue_message": "late"}),
    ("start_within_ms", {"start_within_ms": 0, "overdue_message": "late"}),
    ("start_within_ms", {"start_within_ms": 10**18, "overdue_message": "late"}),
    ("overdue_message", {"start_within_ms": 1}),
    ("overdue_message", {"start_by_ms": NOW + 1, "overdue_message": "\x00"}),
    ("timeout_ms", {"timeout_ms": 0}),
    ("by", {"by": ""}),
    ("boost", {"standing": standing(boost=64)}),
    ("tier", {"standing": standing("")}),
    ("user_limit", {"standing": standing(user_limit=-1)}),
    ("daily_quota", {"standing": standing(daily_quota=0)}),
]

CALLS: list[tuple[str, Call]] = [
    ("worker", lambda store: at(store, NOW).claim(**asked(worker=""))),
    ("task", lambda store: at(store, NOW).claim(**asked(tasks=["a:b"]))),
    ("tasks", lambda store: at(store, NOW).claim(**asked(tasks="work"))),
    ("capacity", lambda store: at(store, NOW).claim(**asked(capacity=0))),
    ("lease_ms", lambda store: at(store, NOW).claim(**asked(lease_ms=0))),
    ("claim_id", lambda store: at(store, NOW).claim(**asked(claim_id=LONG))),
    ("lease_ms", lambda store: at(store, NOW).renew([Renewal(holder="held", token="1", lease_ms=-1)])),
    ("holder", lambda store: at(store, NOW).renew([Renewal(holder="", token="1", lease_ms=1)])),
    ("progress.done", lambda store: at(store, NOW).advance([advance(progress=Progress(float("nan")))])),
    ("progress.done", lambda store: at(store, NOW).advance([advance(progress=Progress(10**400))])),
    ("progress.total", lambda store: at(store, NOW).advance([advance(progress=Progress(1, 2**53 + 1))])),
    ("progress.text", lambda store: at(store, NOW).advance([advance(progress=Progress(1, 2, "é" * 5_121))])),
    ("checkpoint", lambda store: at(store, NOW).advance([advance(checkpoint=b" " * (2**20 + 1))])),
    ("message", lambda store: at(store, NOW).advance([advance(message="m" * 10_241)])),
    ("result", lambda store: at(store, NOW).finish([ended(state=State.SUCCEEDED, result=b"1" + b" " * 2**20)])),
    ("stage", lambda store: at(store, NOW).advance([advance(stage="")])),
    ("message", lambda store: at(store, NOW).advance([advance(message="\ud800")])),
    ("state", lambda store: at(store, NOW).finish([ended(state=State.RUNNING)])),
    ("retry_after_ms", lambda store: at(store, NOW).finish([ended(state=State.SCHEDULED)])),
    ("closed", lambda store: at(store, NOW).finish([ended(state=State.QUEUED, closed={"gpu": -1})])),
    ("error.message", lambda store: at(store, NOW).finish([ended(state=State.FAILED, error=JobError("\ud800"))])),
    ("priority", lambda store: at(store, NOW).set_priority(100, job_id="waits")),
    ("job_id", lambda store: at(store, NOW).set_priority(10)),
    ("job_id", lambda store: at(store, NOW).set_priority(10, job_id="waits", parent="p")),
    ("by", lambda store: at(store, NOW).set_priority(10, job_id="waits", by="")),
    ("before", lambda store: at(store, NOW).move("waits")),
    ("before", lambda store: at(store, NOW).move("waits", before="other", after="other")),
    ("before", lambda store: at(store, NOW).move("waits", before="waits")),
    ("job_id", lambda store: at(store, NOW).cancel()),
    ("job_id", lambda store: at(store, NOW).cancel(job_id="waits", parent="p")),
    ("message", lambda store: at(store, NOW).cancel(job_id="waits", message=5)),  # type: ignore[arg-type] # to be refused
    ("message", lambda store: at(store, NOW).cancel(job_id="waits", message="\x00")),
    ("message", lambda store: at(store, NOW).cancel(job_id="waits", message="é" * 5_121)),
    ("job_id", lambda store: at(store, NOW).retry(object())),  # type: ignore[arg-type] # to be refused
    ("job_id", lambda store: at(store, NOW).confirm("")),
    ("user", lambda store: at(store, NOW).set_tier(LONG, standing())),
    ("boost", lambda store: at(store, NOW).set_tier("u1", standing(boost=-1))),
    ("limit", lambda store: at(store, NOW).set_limits([limited(slots=-1)])),
    ("limit", lambda store: at(store, NOW).set_limits([limited(slots=True)])),
    ("group", lambda store: at(store, NOW).set_limits([limited(group="")])),
    ("group", lambda store: at(store, NOW).set_limits([limited(group="priority:100")])),
    ("group", lambda store: at(store, NOW).set_limits([Unlimited(group=LONG)])),
    ("group", lambda store: at(store, NOW).set_paused("a\nb", True)),
    ("slot_id", lambda store: at(store, NOW).revoke("gpu", -1, force=True)),
    ("groups", lambda store: at(store, NOW).acquire([ticket("h")])),
    ("groups", lambda store: at(store, NOW).acquire([ticket("h", "gpu", "gpu")])),
    ("groups", lambda store: at(store, NOW).acquire([ticket("h", *TOO_MANY_GROUPS)])),
    ("group", lambda store: at(store, NOW).acquire([ticket("h", "")])),
    ("holder", lambda store: at(store, NOW).acquire([ticket(LONG, "gpu")])),
    ("lease_ms", lambda store: at(store, NOW).acquire([ticket("h", "gpu", lease_ms=0)])),
    ("wait_ms", lambda store: at(store, NOW).acquire([ticket("h", "gpu", wait_ms=-1)])),
    ("priority", lambda store: at(store, NOW).acquire([ticket("h", "gpu", priority=100)])),
    ("holder", lambda store: at(store, NOW).release([("", None)])),
    ("capacity", lambda store: register(store, "w9", "work", capacity=0)),
    ("task", lambda store: register(store, "w9", "a:b")),
    ("group", lambda store: register(store, "w9", TaskOptions(name="work", groups=("user:u1",)))),
    ("groups", lambda store: register(store, "w9", TaskOptions(name="work", groups=TOO_MANY_GROUPS))),
    ("limit", lambda store: register(store, "w9", TaskOptions(name="work", limit=-1))),
    ("lifetime_ms", lambda store: at(store, NOW).register(worker(lifetime_ms=0))),
    ("lease_ms", lambda store: at(store, NOW).register(worker(lease_ms=0))),
    ("aging_period_ms", lambda store: at(store, NOW).upkeep(UpkeepRules(aging_period_ms=0))),
    (
        "unconfirmed_after_ms",
        lambda store: at(store, NOW).upkeep(late(-1)),
    ),
    ("reminder_ages_ms", lambda store: at(store, NOW).upkeep(UpkeepRules(reminder_ages_ms=(2, 1)))),
    ("keep.ms", lambda store: at(store, NOW).upkeep(UpkeepRules(keep=Keep(ms=-1, jobs=0, events=0, audit=0)))),
    ("limit", lambda store: store.jobs(limit=0)),
    ("limit", lambda store: store.line(limit=-1)),
    ("after", lambda store: store.events(-1)),
    ("weight", lambda store: store.observe([(Average(name="a", first=0.0, weight=2.0), 1.0)])),
    ("value", lambda store: store.observe([(Average(name="a", first=0.0, weight=0.5), float("inf"))])),
    ("errors", lambda store: store.observe(errors={"work": [float("nan")]})),
    ("name", lambda store: store.put_record("", 1, version=0)),
    ("version", lambda store: store.put_record("key", 1, version=-1)),
]


def advance(**fields: Any) -> Advance:
    return Advance(job_id="held", token="1", **fields)


def ended(**fields: Any) -> Outcome:
    return Outcome(job_id="held", token="1", **fields)


def worker(**fields: Any) -> Registration:
    return Registration(**{"name": "w9", "tasks": (TaskOptions(name="work"),), "capacity": 1, **fields})


@pytest.fixture
async def lived_in(store: Store) -> Store:
    """A store with something in it to break."""
    await limit(store, "gpu", 2)
    await start(store, "held", groups=("gpu",), user="u1")
    await submit(store, "waits", groups=("gpu",), user="u1")
    await submit(store, "other")
    await acquire(store, "caller", "gpu")
    return store


@pytest.mark.parametrize(("field", "fields"), SUBMISSIONS)
async def test_a_bad_submission_is_refused_by_its_field_and_nothing_is_changed(
    lived_in: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]], field: str, fields: dict[str, Any]
) -> None:
    before = await snapshot()
    bad = Submission(**{"id": "new", "task": "work", **fields})

    with pytest.raises(SubmitRefused) as refused:
        await at(lived_in, NOW).submit([bad])

    assert field in str(refused.value)
    assert str(refused.value).endswith(".")
    assert await snapshot() == before


@pytest.mark.parametrize(("field", "call"), CALLS)
async def test_a_bad_argument_is_refused_by_its_field_and_nothing_is_changed(
    lived_in: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]], field: str, call: Call
) -> None:
    before = await snapshot()

    with pytest.raises(QoError) as refused:
        await call(lived_in)

    assert field in str(refused.value)
    assert str(refused.value).endswith(".")
    assert await snapshot() == before


async def test_a_payload_over_one_mebibyte_is_refused_and_one_of_exactly_that_is_kept(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    before = await snapshot()

    with pytest.raises(PayloadTooLarge, match="1048577 bytes"):
        await at(store, NOW).submit([submission("big", payload=b"x" * (1024 * 1024 + 1))])

    assert await snapshot() == before
    whole = b'"' + b"x" * (1024 * 1024 - 2) + b'"'
    await submit(store, "fits", payload=whole)
    assert await store.payload("fits") == (whole, None)


async def test_a_bad_priority_has_an_error_of_its_own(store: Store) -> None:
    with pytest.raises(InvalidPriority, match="100"):
        await at(store, NOW).submit([submission("a", priority=100)])


@pytest.mark.parametrize(
    "call",
    [
        lambda store: at(store, NOW).submit([submission("good"), submission("bad", priority=100)]),
        lambda store: at(store, NOW).set_limits([limited(group="api"), limited(slots=-1)]),
        lambda store: at(store, NOW).acquire([ticket("good", "gpu"), ticket("bad")]),
        lambda store: at(store, NOW).release([("caller", None), ("", None)]),
        lambda store: register(store, "w9", "good", "b:ad"),
        lambda store: store.observe(
            [(Average(name="a", first=1.0, weight=0.5), 1.0), (Average(name="b", first=1.0, weight=9.0), 1.0)]
        ),
    ],
)
async def test_one_bad_one_in_a_list_refuses_the_whole_list(
    lived_in: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]], call: Call
) -> None:
    before = await snapshot()

    with pytest.raises(QoError):
        await call(lived_in)

    assert await snapshot() == before


async def test_a_bad_finish_in_a_list_ends_no_lease(
    lived_in: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    (lease,) = await lived_in.leases()
    good = Outcome(job_id="held", token=lease.token, state=State.SUCCEEDED)
    before = await snapshot()

    with pytest.raises(QoError):
        await at(lived_in, NOW).finish([good, ended(state=State.WAITING)])

    assert await snapshot() == before


@pytest.mark.parametrize("name", ["'; DROP TABLE job; --", "%", "_", "a*b?", "{tag}", "🙂", "a:b:c", " "])
async def test_names_that_mean_something_elsewhere_are_just_names(store: Store, name: str) -> None:
    await limit(store, f"user:{name}", 1)
    await submit(store, name, user=name, project=name, parent=name, unique=name)
    await submit(store, "second", user=name)

    claimed = await at(store, NOW).claim(**asked(capacity=5))

    assert [lease.job.id for lease in claimed.leases] == [name]
    assert [job.id for job in (await store.jobs(user=name, limit=10)).jobs] == ["second", name]
    assert (await store.parent(name)).jobs[0].id == name


async def test_the_longest_names_are_good_everywhere(store: Store) -> None:
    name = "n" * 200
    await limit(store, f"user:{name}", 1)
    await submit(store, name, task=name, user=name, project=name, parent=name, phase=1, unique=name, groups=(name,))

    claimed = await at(store, NOW).claim(**asked(worker=name, tasks=[name], claim_id=name))

    assert claimed.leases[0].job.id == name
    assert claimed.leases[0].slots == {f"user:{name}": 0}
