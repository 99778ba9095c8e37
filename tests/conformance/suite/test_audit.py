"""Who did what to which job or group, and when."""

from __future__ import annotations

from typing import Any

import pytest

from qo.errors import InvalidTransition, InvalidValue, QoError
from qo.event import AuditEntry
from qo.job import moment
from qo.policy.actor import Actor
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
    moved = await at(store, NOW + 2).move("a", before="b", by=by)
    again = await at(store, NOW + 3).move("a", after="b", by=by)
    keys = [str(moved.key), str(again.key)]
    await at(store, NOW + 4).cancel(job_id="a", message="No.", by=by)

    assert await entries(store) == [
        (by, "cancel", "a", {"message": "No.", "from": "queued"}),
        (by, "move", "a", {"after": "b", "from": {"priority": 50, "before": "b", "after": None}, "key": keys[1]}),
        (by, "move", "a", {"before": "b", "from": {"priority": 20, "before": "b", "after": None}, "key": keys[0]}),
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
        ("ops", "limit", "gpu", {"limit": None, "source": 1, "from": 3, "from_source": 1}),
        ("ops", "release", "gpu", {"slot": 0, "holder": "a", "force": True}),
        ("night", "resume", "gpu", {}),
        ("ops", "pause", "gpu", {}),
        ("ops", "limit", "gpu", {"limit": 3, "source": 1, "from": None, "from_source": None}),
    ]


async def test_a_tier_is_recorded_of_its_user(store: Store) -> None:
    await at(store, NOW).set_tier("u1", standing("partner", user_limit=3), by="ops")

    assert await entries(store) == [("ops", "tier", "u1", {"tier": "partner", "from": None})]


async def test_limits_of_operators_and_the_configuration_are_recorded_and_no_others(store: Store) -> None:
    for source in Source:
        await limit(store, f"group-{source.name}", 1, source=source, by="qo")
    await register(store, "w1", TaskOptions(name="work", limit=3))
    await submit(store, "a", user="u1", standing=standing(user_limit=2))

    assert await entries(store) == [
        ("qo", "limit", "group-CONFIGURATION", {"limit": 1, "source": 2, "from": None, "from_source": None}),
        ("qo", "limit", "group-OPERATOR", {"limit": 1, "source": 1, "from": None, "from_source": None}),
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


@pytest.mark.parametrize("subject", [None, "a"])
async def test_the_trail_comes_in_pages(store: Store, subject: str | None) -> None:
    await submit_all(store, "ab")
    for number in range(7):
        await at(store, NOW + number).set_priority(20 + number, job_id="a")
        await at(store, NOW + number).set_priority(20 + number, job_id="b")
    whole = await store.audit(subject=subject)

    found: list[AuditEntry] = []
    while page := await store.audit(subject=subject, limit=3, after=found[-1].id if found else None):
        found += page

    assert (tuple(found), len(found)) == (whole, 14 if subject is None else 7)


async def test_an_entry_says_with_which_role_from_where_and_in_which_batch(store: Store) -> None:
    await submit(store, "a")
    actor = Actor(name="ops", role="admin", address="10.0.0.7", batch="b1")
    await at(store, NOW).set_priority(20, job_id="a", by=actor.text())

    (entry,) = await store.audit()

    assert (entry.by, entry.role, entry.address, entry.batch) == ("ops", "admin", "10.0.0.7", "b1")


@pytest.mark.parametrize("by", ["ops\x1f", "\x1f", "a\x1fb\x1fc\x1fd\x1fe", "ops\x1fad\nmin"])
async def test_a_text_that_is_no_actor_is_refused(store: Store, by: str) -> None:
    await submit(store, "a")

    with pytest.raises(InvalidValue, match=r"^by is "):
        await at(store, NOW).set_priority(20, job_id="a", by=by)
    assert await store.audit() == ()
