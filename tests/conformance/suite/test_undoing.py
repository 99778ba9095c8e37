"""A change that undoes another one counts only if that one is still the newest: looking and acting are one step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from qo.errors import InvalidTransition, InvalidValue, UndoRefused
from qo.store.contract import Store
from qo.values import Audited, Limit, Record, Source, TaskOptions, Unlimited
from tests.conformance.suite.harness import NOW, at, claim, limit, register, submit, submit_all


async def newest(store: Store, subject: str) -> int:
    return (await store.audit(subject=subject))[0].id


async def test_a_priority_is_put_back_while_its_entry_is_the_newest(store: Store) -> None:
    await submit(store, "a")
    await at(store, NOW).set_priority(20, job_id="a")

    await store.set_priority(50, job_id="a", undoes=await newest(store, "a"))

    assert (await store.job("a")).priority == 50


async def test_a_priority_that_was_changed_again_is_left_alone_even_if_it_is_the_same(store: Store) -> None:
    await submit(store, "a")
    await at(store, NOW).set_priority(20, job_id="a")
    first = await newest(store, "a")
    await store.set_priority(70, job_id="a")
    await store.set_priority(20, job_id="a")
    before = await store.audit()

    with pytest.raises(UndoRefused, match=f"'a' was changed again since entry {first}"):
        await store.set_priority(50, job_id="a", undoes=first)

    assert ((await store.job("a")).priority, await store.audit()) == (20, before)


async def test_a_pause_that_was_made_again_is_left_alone(store: Store) -> None:
    await at(store, NOW).set_paused("gpu", True)
    first = await newest(store, "gpu")
    await store.set_paused("gpu", False)
    await store.set_paused("gpu", True)

    with pytest.raises(UndoRefused):
        await store.set_paused("gpu", False, undoes=first)
    await store.set_paused("gpu", False, undoes=await newest(store, "gpu"))

    assert not (await store.groups(["gpu"]))[0].paused


async def test_a_limit_is_put_back_with_its_source_while_it_is_as_the_entry_says(store: Store) -> None:
    await limit(store, "gpu", 5, source=Source.CONFIGURATION)
    await limit(store, "gpu", 2, source=Source.OPERATOR)
    former: list[Limit | Unlimited] = [
        Unlimited(group="gpu"),
        Limit(group="gpu", slots=5, source=Source.CONFIGURATION),
    ]
    undone = await newest(store, "gpu")

    await at(store, NOW).set_limits(former, undoes=undone)
    with pytest.raises(UndoRefused):
        await store.set_limits([Unlimited(group="gpu")], undoes=undone)

    (group,) = await store.groups(["gpu"])
    assert (group.limit, group.source) == (5, Source.CONFIGURATION)


async def test_a_removed_limit_in_whose_place_a_weaker_one_came_is_left_removed(store: Store) -> None:
    await limit(store, "work", 5)
    await at(store, NOW).set_limits([Unlimited(group="work")])
    await register(store, "w1", TaskOptions(name="work", limit=3))

    with pytest.raises(UndoRefused):
        await store.set_limits(
            [Limit(group="work", slots=5, source=Source.OPERATOR)], undoes=await newest(store, "work")
        )

    assert (await store.groups(["work"]))[0].limit == 3


async def test_a_move_is_undone_while_the_job_has_the_key_that_it_gave(store: Store) -> None:
    await submit_all(store, "abc")
    await at(store, NOW).move("c", before="a")

    await store.move("c", after="b", undoes=await newest(store, "c"))

    assert [job.id for job in (await store.jobs()).jobs] == ["a", "b", "c"]


async def test_a_move_is_not_undone_beside_a_neighbour_of_another_priority(store: Store) -> None:
    await submit_all(store, "abc")
    await at(store, NOW).move("c", before="a")
    await store.set_priority(20, job_id="b")

    with pytest.raises(UndoRefused):
        await store.move("c", after="b", undoes=await newest(store, "c"))

    assert [job.id for job in (await store.jobs()).jobs] == ["b", "c", "a"]


async def test_only_a_move_is_undone_by_a_move(store: Store) -> None:
    await submit_all(store, "ab")
    await at(store, NOW).set_priority(50, job_id="b")

    with pytest.raises(UndoRefused):
        await store.move("b", before="a", undoes=await newest(store, "b"))


async def test_a_job_that_has_started_is_not_changed_by_an_undo(store: Store) -> None:
    await submit(store, "a")
    await at(store, NOW).set_priority(20, job_id="a")
    await claim(store)

    with pytest.raises(InvalidTransition):
        await store.set_priority(50, job_id="a", undoes=await newest(store, "a"))


@pytest.mark.parametrize("undoes", [0, 99])
async def test_an_entry_about_another_subject_or_none_undoes_nothing(store: Store, undoes: int) -> None:
    await at(store, NOW).set_paused("gpu", True)

    for change in (
        store.set_paused("api", True, undoes=await newest(store, "gpu")),
        store.set_paused("gpu", False, undoes=undoes),
    ):
        with pytest.raises(UndoRefused):
            await change


async def test_of_many_undos_of_one_change_at_the_same_time_one_counts(store: Store) -> None:
    await at(store, NOW).set_paused("gpu", True)
    entry = await newest(store, "gpu")

    answers = await asyncio.gather(
        *(store.set_paused("gpu", False, undoes=entry) for _ in range(20)), return_exceptions=True
    )

    assert sorted(type(answer).__name__ for answer in answers) == ["NoneType", *["UndoRefused"] * 19]


REFUSED: dict[str, Callable[[Store], Awaitable[object]]] = {
    "priority": lambda store: store.set_priority(20, job_id="a", undoes=-1),
    "parent": lambda store: store.set_priority(20, parent="app", undoes=1),
    "move": lambda store: store.move("a", before="b", undoes=-1),
    "limits": lambda store: store.set_limits([Unlimited(group="gpu")], undoes=-1),
    "paused": lambda store: store.set_paused("gpu", True, undoes=-1),
}


@pytest.mark.parametrize("change", REFUSED)
async def test_an_entry_that_cannot_be_is_refused(store: Store, change: str) -> None:
    with pytest.raises(InvalidValue, match=r"^undoes is "):
        await REFUSED[change](store)


async def test_a_record_and_its_entry_in_the_audit_trail_are_written_together(store: Store) -> None:
    audited = Audited(action="create_key", subject="k1", detail={"role": "user", "user": None}, by="ops")

    assert await at(store, NOW).put_record("key:k1", 1, version=0, audited=audited)
    assert not await store.put_record("key:k1", 2, version=0, audited=audited)

    (entry,) = await store.audit()
    assert (entry.by, entry.action, entry.subject, entry.detail) == ("ops", "create_key", "k1", audited.detail)
    assert (await store.records("key:k1"))["key:k1"] == Record(version=1, value=1)
