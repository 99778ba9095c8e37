"""Who did what to which job or group, and when."""

from __future__ import annotations

from typing import Any

import pytest

from qo.errors import InvalidTransition, QoError
from qo.event import AuditEntry
from qo.job import moment
from qo.store.contract import Store
from qo.values import Source, TaskOptions, Unlimited
from tests.conformance.suite.harness import (
    HOUR,
    NOW,
    ask_to_confirm,
    at,
    fail,
    limit,
    register,
    standing,
    start,
    submit,
    submit_all,
)


async def entries(store: Store, **wanted: Any) -> list[tuple[str | None, str, str, dict[str, Any]]]:
    return [(entry.by, entry.action, entry.subject, entry.detail) for entry in await store.audit(**wanted)]


async def test_a_submit_is_recorded_where_it_is_said_by_whom(store: Store) -> None:
    await submit(store, "a", by="u1")
    await submit(store, "b")

    assert await store.audit() == (AuditEntry(1, moment(NOW), "u1", "submit", "a", {"task": "work"}),)


@pytest.mark.parametrize("by", ["ops", None])
async def test_changes_of_a_job_are_recorded_with_who_and_when(store: Store, by: str | None) -> None:
    await submit_all(store, "ab")
    await at(store, NOW + 1).set_priority(20, job_id="a", by=by)
    await at(store, NOW + 2).move("a", before="b", by=by)
    await at(store, NOW + 3).move("a", after="b", by=by)
    await at(store, NOW + 4).cancel(job_id="a", message="No.", by=by)

    assert await entries(store) == [
        (by, "cancel", "a", {"message": "No."}),
        (by, "move", "a", {"after": "b"}),
        (by, "move", "a", {"before": "b"}),
        (by, "priority", "a", {"priority": 20, "from": 50}),
    ]
    assert [entry.at for entry in await store.audit()] == [moment(NOW + at) for at in (4, 3, 2, 1)]


async def test_retries_and_confirmations_are_recorded(store: Store) -> None:
    await fail(store, await start(store, "failed"))
    given = standing(iterations_batch=2, iterations_max=6)
    await ask_to_confirm(store, await start(store, "asks", user="u1", standing=given))

    await at(store, NOW).retry("failed", by="ops")
    await at(store, NOW).confirm("asks", by="u1")

    assert await entries(store) == [
        ("u1", "confirm", "asks", {"iterations_granted": 4}),
        ("ops", "retry", "failed", {}),
    ]


async def test_a_parents_changes_are_recorded_for_each_job(store: Store) -> None:
    await submit(store, "one", parent="app", phase=1)
    await submit(store, "two", parent="app", phase=2, priority=70)
    await start(store, "runs", parent="app")

    await at(store, NOW).set_priority(20, parent="app", by="ops")
    await at(store, NOW).cancel(parent="app", by="ops")

    recorded = await entries(store)
    assert [(action, subject) for _, action, subject, _ in recorded] == [
        ("cancel", "runs"),
        ("cancel", "two"),
        ("cancel", "one"),
        ("priority", "runs"),
        ("priority", "two"),
        ("priority", "one"),
    ]
    assert recorded[4][3] == {"priority": 20, "from": 70}


async def test_limits_pauses_and_releases_are_recorded_of_their_group(store: Store) -> None:
    await start(store, "a", groups=("gpu",))
    await limit(store, "gpu", 3, by="ops")
    await at(store, NOW).set_paused("gpu", True, by="ops")
    await at(store, NOW).set_paused("gpu", False, by="night")
    await at(store, NOW).revoke("gpu", 0, force=True, by="ops")
    await at(store, NOW).set_limits([Unlimited(group="gpu")], by="ops")

    assert await entries(store, subject="gpu") == [
        ("ops", "limit", "gpu", {"limit": None, "source": 1, "from": 3}),
        ("ops", "release", "gpu", {"slot": 0, "holder": "a", "force": True}),
        ("night", "resume", "gpu", {}),
        ("ops", "pause", "gpu", {}),
        ("ops", "limit", "gpu", {"limit": 3, "source": 1, "from": None}),
    ]


async def test_a_tier_is_recorded_of_its_user(store: Store) -> None:
    await at(store, NOW).set_tier("u1", standing("partner", user_limit=3), by="ops")

    assert await entries(store) == [("ops", "tier", "u1", {"tier": "partner"})]


async def test_limits_of_operators_and_the_configuration_are_recorded_and_no_others(store: Store) -> None:
    for source in Source:
        await limit(store, f"group-{source.name}", 1, source=source, by="qo")
    await register(store, "w1", TaskOptions(name="work", limit=3))
    await submit(store, "a", user="u1", standing=standing(user_limit=2))

    assert await entries(store) == [
        ("qo", "limit", "group-CONFIGURATION", {"limit": 1, "source": 2, "from": None}),
        ("qo", "limit", "group-OPERATOR", {"limit": 1, "source": 1, "from": None}),
    ]


async def test_what_changes_nothing_is_not_recorded(store: Store) -> None:
    await limit(store, "gpu", 3, by="ops")
    await at(store, NOW).set_paused("gpu", True, by="ops")
    await submit(store, "a")
    await at(store, NOW).cancel(job_id="a", by="ops")
    before = await store.audit()

    await limit(store, "gpu", 3, by="ops")
    await at(store, NOW).set_paused("gpu", True, by="ops")
    await at(store, NOW).set_paused("api", False, by="ops")
    await at(store, NOW).set_limits([Unlimited(group="api")], by="ops")
    await at(store, NOW).cancel(job_id="a", by="ops")

    assert await store.audit() == before


async def test_what_is_refused_is_not_recorded(store: Store) -> None:
    await start(store, "a", groups=("gpu",))

    for refused in (
        at(store, NOW).set_priority(10, job_id="a", by="ops"),
        at(store, NOW).move("a", before="b", by="ops"),
        at(store, NOW).retry("a", by="ops"),
        at(store, NOW).revoke("gpu", 0, by="ops"),
        at(store, NOW).revoke("gpu", 1, force=True, by="ops"),
    ):
        with pytest.raises(QoError):
            await refused
    with pytest.raises(InvalidTransition):
        await at(store, NOW).confirm("a", by="ops")

    assert await store.audit() == ()


async def test_the_newest_entries_come_first_of_a_subject_and_up_to_a_limit(store: Store) -> None:
    for number in range(6):
        await submit(store, f"j{number}", by="u1")
    await at(store, NOW + HOUR).set_priority(20, job_id="j2", by="ops")

    assert [entry.subject for entry in await store.audit(limit=3)] == ["j2", "j5", "j4"]
    assert [entry.action for entry in await store.audit(subject="j2")] == ["priority", "submit"]
    assert await store.audit(subject="nobody") == ()
