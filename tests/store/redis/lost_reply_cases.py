"""Every writing operation of a store, each with what was before it and what others do before it is sent again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from qo.job import Progress, State
from qo.store.contract import Store
from qo.values import (
    Advance,
    Average,
    Bounds,
    Keep,
    Limit,
    Offer,
    Registration,
    Renewal,
    Source,
    TaskOptions,
    Unlimited,
    UpkeepRules,
)
from tests.conformance.machine.side_by_side import Step, step
from tests.conformance.suite.harness import (
    BROKEN,
    DAY,
    HOUR,
    LEASE,
    MINUTE,
    NOW,
    acquire,
    ask_to_confirm,
    at,
    catch_up,
    claim,
    fail,
    limit,
    outcome,
    register,
    standing,
    start,
    submission,
    submit,
    submit_all,
    succeed,
    ticket,
)

RUN = Average(name="run_seconds", first=1.0, weight=0.5)

Scene = Callable[[Store], AsyncIterator[Step]]
CASES: dict[str, Scene] = {}


def case(name: str) -> Callable[[Scene], Scene]:
    """`kind`, or `kind, what about it`. Before the yield: how things were. The yield: the operation whose reply gets
    lost. After it: what others do before it is sent again."""

    def note(scene: Scene) -> Scene:
        CASES[name] = scene
        return scene

    return note


# --- a job's way through ----------------------------------------------------------------------------------------


@case("submit")
async def of_several_jobs(store: Store) -> AsyncIterator[Step]:
    await limit(store, "gpu", 1)
    tiered = partial(submission, user="u1", standing=standing(daily_quota=1, user_limit=2), by="u1")
    yield step(
        "submit",
        [
            tiered("a", groups=("gpu",)),
            tiered("b", quota_jitter_ms=5),
            submission("c", parent="p", phase=1, unique="once"),
            submission("d", parent="p", phase=2, run_at_ms=NOW + HOUR),
        ],
        now=NOW,
    )
    await submit(store, "other", parent="p")


@case("submit, of a job that has ended meanwhile")
async def of_a_job_that_ends(store: Store) -> AsyncIterator[Step]:
    yield step("submit", [submission("a", unique="once")], now=NOW)
    await succeed(store, *await claim(store))
    await submit(store, "b", unique="once")


@case("submit, refused")
async def of_too_many(store: Store) -> AsyncIterator[Step]:
    await submit_all(store, ["a", "b"])
    yield step("submit", [submission("c", cap=3), submission("d", cap=3)], now=NOW)


@case("submit, with a limit that a stronger one keeps out")
async def with_an_ignored_limit(store: Store) -> AsyncIterator[Step]:
    await limit(store, "gpu", 1)
    wanted = Limit(group="gpu", slots=5, source=Source.TASK)
    yield step("submit", [submission("a", groups=("gpu",), limits=(wanted,))], now=NOW)


def claiming(capacity: int, claim_id: str = "c1") -> Step:
    return step("claim", worker="w1", tasks=["work"], capacity=capacity, lease_ms=LEASE, claim_id=claim_id, now=NOW)


@case("claim")
async def of_two(store: Store) -> AsyncIterator[Step]:
    await limit(store, "gpu", 1)
    await submit_all(store, ["a", "b", "c"], groups=("gpu",))
    await submit_all(store, ["d", "e", "f"])
    yield claiming(2)
    await claim(store, worker="w2")


@case("claim, of nothing")
async def of_nothing(store: Store) -> AsyncIterator[Step]:
    await limit(store, "gpu", 0)
    await submit_all(store, ["a", "b"], groups=("gpu",))
    await submit(store, "later", run_at_ms=NOW + HOUR)
    yield claiming(2)


@case("renew")
async def of_leases(store: Store) -> AsyncIterator[Step]:
    await register(store, "w1", "work")
    lease = await start(store, "a")
    await limit(store, "gpu", 0)
    await acquire(store, "waiting", "gpu")
    renewals = [Renewal(holder="a", token=lease.token, lease_ms=LEASE), Renewal(holder="a", token="1", lease_ms=LEASE)]
    yield step("renew", renewals, worker="w1", tickets=["waiting"], now=NOW + MINUTE)


@case("renew, by so much beyond its end")
async def of_an_extended_lease(store: Store) -> AsyncIterator[Step]:
    lease = await start(store, "a")
    yield step("renew", [Renewal(holder="a", token=lease.token, extend_ms=MINUTE)], now=NOW)
    await at(store, NOW).renew([Renewal(holder="a", token=lease.token, extend_ms=HOUR)])


@case("advance")
async def of_a_job(store: Store) -> AsyncIterator[Step]:
    lease = await start(store, "a")
    report = Advance(
        job_id="a",
        token=lease.token,
        stage="code",
        progress=Progress(done=1),
        checkpoint=b"half",
        iteration=1,
        message="m",
    )
    yield step("advance", [report], now=NOW)


def finishing(state: State, meanwhile: Callable[[Store], Awaitable[Any]], **fields: Any) -> Scene:
    async def scene(store: Store) -> AsyncIterator[Step]:
        await limit(store, "gpu", 1)
        lease = await start(store, "a", user="u1", groups=("gpu",), parent="p", phase=1)
        await submit(store, "following", parent="p", phase=2)
        await acquire(store, "caller", "gpu")
        yield step("finish", [outcome(lease, state, averages=(RUN,), **fields)], now=NOW + MINUTE)
        await meanwhile(store)

    return scene


async def claimed_again(store: Store) -> None:
    await at(store, NOW + MINUTE).release([("caller", None)])
    await catch_up(store, now=NOW + MINUTE + 1)
    assert await claim(store, tasks=["task-of-a"], worker="w2", now=NOW + MINUTE + 1)


CASES |= {
    "finish:succeeded": finishing(State.SUCCEEDED, lambda store: claim(store, now=NOW + MINUTE), result=b"1"),
    "finish:failed": finishing(State.FAILED, lambda store: at(store, NOW + MINUTE).retry("a"), error=BROKEN),
    "finish:scheduled": finishing(State.SCHEDULED, claimed_again, error=BROKEN, retry_after_ms=1),
    "finish:queued": finishing(State.QUEUED, claimed_again, closed={"api": HOUR}),
    "finish:confirming": finishing(State.CONFIRMING, lambda store: at(store, NOW + MINUTE).confirm("a"), message="?"),
    "finish:cancelled": finishing(State.CANCELLED, lambda store: claim(store, now=NOW + MINUTE), message="Well."),
}  # fmt: skip


# --- changes by people ------------------------------------------------------------------------------------------


@case("set_priority:job")
async def of_one_job(store: Store) -> AsyncIterator[Step]:
    await submit_all(store, ["a", "b"])
    yield step("set_priority", 20, job_id="a", by="ops", now=NOW)
    await at(store, NOW).set_priority(90, job_id="a")


@case("set_priority:parent")
async def of_a_parent(store: Store) -> AsyncIterator[Step]:
    await submit_all(store, ["a", "b"], parent="p")
    yield step("set_priority", 20, parent="p", by="ops", now=NOW)
    await submit(store, "c", parent="p", priority=50)


@case("move")
async def of_the_last(store: Store) -> AsyncIterator[Step]:
    await submit_all(store, ["a", "b", "c"])
    yield step("move", "c", before="a", by="ops", now=NOW)
    await at(store, NOW).move("b", before="a")


@case("cancel:job")
async def of_a_deferring_user(store: Store) -> AsyncIterator[Step]:
    await submit(store, "a", user="u1", standing=standing(daily_quota=1))
    await submit_all(store, ["b", "c"], user="u1")
    yield step("cancel", job_id="a", message="No.", by="ops", now=NOW)
    await claim(store)


@case("cancel:parent")
async def of_all_its_jobs(store: Store) -> AsyncIterator[Step]:
    await start(store, "a", parent="p")
    await submit(store, "b", parent="p")
    yield step("cancel", parent="p", by="ops", now=NOW)
    await submit(store, "c", parent="p")


@case("retry")
async def of_a_failed_job(store: Store) -> AsyncIterator[Step]:
    await fail(store, await start(store, "a", task="work"))
    yield step("retry", "a", by="ops", now=NOW)
    await fail(store, *await claim(store))


@case("confirm")
async def of_a_confirming_job(store: Store) -> AsyncIterator[Step]:
    granted = standing(iterations_batch=2, iterations_max=9)
    await ask_to_confirm(store, await start(store, "a", task="work", user="u1", standing=granted))
    yield step("confirm", "a", by="ops", now=NOW)
    await ask_to_confirm(store, *await claim(store))


@case("set_tier")
async def of_a_user_with_jobs(store: Store) -> AsyncIterator[Step]:
    await submit_all(store, ["a", "b"], user="u1", standing=standing(daily_quota=1))
    yield step("set_tier", "u1", standing("fast", daily_quota=5, user_limit=1), by="ops", now=NOW)
    await at(store, NOW).set_tier("u1", standing("slow", user_limit=3))


# --- limits and slots -------------------------------------------------------------------------------------------


@case("set_limits:set")
async def of_two_groups(store: Store) -> AsyncIterator[Step]:
    await start(store, "a", groups=("gpu",))
    await limit(store, "api", 1)
    wanted = [Limit(group=group, slots=2, source=Source.CONFIGURATION) for group in ("gpu", "global", "api")]
    yield step("set_limits", wanted, by="ops", now=NOW)
    await limit(store, "gpu", 1, source=Source.CONFIGURATION)


@case("set_limits:remove")
async def of_a_group(store: Store) -> AsyncIterator[Step]:
    await limit(store, "gpu", 0)
    await submit(store, "a", groups=("gpu",))
    yield step("set_limits", [Unlimited(group="gpu")], by="ops", now=NOW)
    await limit(store, "gpu", 3)


@case("set_paused")
async def of_a_group_with_jobs(store: Store) -> AsyncIterator[Step]:
    await submit(store, "a", groups=("gpu",))
    yield step("set_paused", "gpu", True, by="ops", now=NOW)
    await at(store, NOW).set_paused("gpu", False)


@case("revoke")
async def of_a_slot_that_goes_to_another(store: Store) -> AsyncIterator[Step]:
    await limit(store, "gpu", 1)
    await start(store, "a", groups=("gpu",), max_attempts=1)
    await submit(store, "b", groups=("gpu",))
    yield step("revoke", "gpu", 0, force=True, by="ops", now=NOW)
    assert await claim(store)


@case("acquire")
async def of_what_there_is(store: Store) -> AsyncIterator[Step]:
    await limit(store, "gpu", 1)
    yield step("acquire", [ticket("first", "gpu", "api"), ticket("second", "gpu")], now=NOW)
    await acquire(store, "third", "gpu")


@case("acquire, handed over meanwhile")
async def of_what_becomes_free(store: Store) -> AsyncIterator[Step]:
    await limit(store, "gpu", 1)
    await acquire(store, "first", "gpu")
    yield step("acquire", [ticket("second", "gpu")], now=NOW)
    await at(store, NOW).release([("first", None)])


@case("acquire, without waiting")
async def of_what_there_is_not(store: Store) -> AsyncIterator[Step]:
    await limit(store, "gpu", 1)
    yield step("acquire", [ticket("first", "gpu", wait_ms=0), ticket("second", "gpu", wait_ms=0)], now=NOW)


@case("acquire, given back meanwhile")
async def of_what_is_given_back(store: Store) -> AsyncIterator[Step]:
    yield step("acquire", [ticket("first", "gpu")], now=NOW)
    await at(store, NOW).release([("first", None)])


@case("release")
async def of_all_that_one_has(store: Store) -> AsyncIterator[Step]:
    await limit(store, "gpu", 1)
    grant = await acquire(store, "first", "gpu")
    await acquire(store, "second", "gpu")
    yield step("release", [("first", grant.token), ("second", None), ("nobody", None)], now=NOW)
    await acquire(store, "second", "gpu")


@case("register")
async def of_a_worker(store: Store) -> AsyncIterator[Step]:
    await limit(store, "gpu", 0)
    await register(store, "w0", TaskOptions(name="work", groups=("gpu",), limit=1))
    await submit(store, "a")
    yield step("register", Registration(name="w1", tasks=(TaskOptions(name="work", limit=2),), capacity=3), now=NOW)
    await register(store, "w2", TaskOptions(name="work", groups=("api",), limit=3))


# --- upkeep -----------------------------------------------------------------------------------------------------

UPKEEP = {"catch_up", "upkeep:age", "upkeep:fail", "upkeep:remind", "upkeep:forget"}
PORTIONS = Bounds(examine=2, portion=2)
"""in upkeep, so that there is more to do than one step does, and doing it again would do more"""


@case("catch_up")
async def of_leases_and_due_jobs(store: Store) -> AsyncIterator[Step]:
    for job_id in "abc":
        await start(store, job_id)
    await submit_all(store, ["d", "e", "f"], run_at_ms=NOW + LEASE + 1)
    for now in range(NOW, NOW + LEASE, MINUTE):
        await at(store, now).catch_up()
    yield step("catch_up", now=NOW + LEASE + 1)


@case("upkeep:age")
async def of_old_jobs(store: Store) -> AsyncIterator[Step]:
    await submit_all(store, ["a", "b", "c"], priority=90)
    yield step("upkeep", UpkeepRules(aging_period_ms=HOUR), now=NOW + HOUR)
    await submit(store, "d", now=NOW + HOUR)


async def let_three_wait_for_a_person(store: Store) -> None:
    for job_id in "abc":
        await ask_to_confirm(store, await start(store, job_id))


@case("upkeep:fail")
async def of_three(store: Store) -> AsyncIterator[Step]:
    await let_three_wait_for_a_person(store)
    yield step("upkeep", UpkeepRules(unconfirmed_after_ms=DAY, unconfirmed_error=BROKEN), now=NOW + DAY)
    await at(store, NOW + DAY).retry("a")


@case("upkeep:remind")
async def of_those_due(store: Store) -> AsyncIterator[Step]:
    await let_three_wait_for_a_person(store)
    yield step("upkeep", UpkeepRules(reminder_ages_ms=(HOUR, DAY)), now=NOW + HOUR)


@case("upkeep:forget")
async def of_ended_jobs(store: Store) -> AsyncIterator[Step]:
    for job_id in "abcd":
        await succeed(store, await start(store, job_id, user=f"user-{job_id}"))
    yield step("upkeep", UpkeepRules(keep=Keep(ms=HOUR, jobs=100, events=2, audit=1)), now=NOW + DAY)


# --- figures and service data -----------------------------------------------------------------------------------


@case("note_promises")
async def of_a_job_in_line(store: Store) -> AsyncIterator[Step]:
    await submit(store, "a")
    yield step("note_promises", {"a": (0, 1000)}, now=NOW)


@case("observe:averages")
async def of_a_value(store: Store) -> AsyncIterator[Step]:
    yield step("observe", [(RUN, 9.0)])
    await store.observe([(RUN, 5.0)])


@case("observe:errors")
async def of_two_ratios(store: Store) -> AsyncIterator[Step]:
    yield step("observe", errors={"work": [0.5, 2.0]}, keep_errors=3)
    await store.observe(errors={"work": [1.5]}, keep_errors=3)


@case("put_record")
async def of_the_next_version(store: Store) -> AsyncIterator[Step]:
    await store.put_record("key", 1, version=0)
    yield step("put_record", "key", 2, version=1)
    await store.put_record("key", 3, version=2)


@case("wait_for_work")
async def of_an_offer_that_was_filled(store: Store) -> AsyncIterator[Step]:
    await submit(store, "a")
    offer = Offer(lease_ms=LEASE, claim_id="offered")
    await at(store, NOW).claim(worker="w1", tasks=["work"], capacity=1, lease_ms=LEASE, claim_id=offer.claim_id)
    yield step("wait_for_work", worker="w1", tasks=["work"], timeout_seconds=0, offer=offer)
    await submit(store, "b")
