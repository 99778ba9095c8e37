"""No name reaches another key, whatever it is made of: ids, tasks, groups, users, parents, workers, namespaces.

The model keeps names apart because they are the keys of its dicts. Redis does the same things with the same names, and
has to know the same afterwards; `redis_snapshot.py` also complains of every key that it cannot explain.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from qo.errors import InvalidValue
from qo.job import JobError, Progress, State
from qo.policy.checks import MAX_NAME_CHARACTERS, check_name, check_own_groups, check_task
from qo.store.redis.server.address import prefix_of
from qo.store.redis.store import RedisStore
from qo.values import (
    Advance,
    Average,
    Bounds,
    Keep,
    Limit,
    Outcome,
    Record,
    Registration,
    Source,
    Standing,
    Submission,
    TaskOptions,
    Ticket,
    Unlimited,
    UpkeepRules,
)
from tests.conformance.machine.side_by_side import SideBySide, Step, call, call_async
from tests.conformance.machine.strategies import DAY_MS, LEASE_MS, START
from tests.conformance.suite.harness import NOW, acquire, at, claim, limit, register, standing, submit
from tests.servers.redis import Kind, shared_server
from tests.store.redis.redis_calls import KINDS, eventually, new_namespace
from tests.store.redis.snapshot import snapshot
from tests.stores import STORES

ON_SERVERS = {store.name: store for store in STORES if store.name in KINDS}

ODD = [
    # as keys are called, and parts of them
    "line", "counters", "jobs", "jobs_of", "audit", "events", "reply", "figures:0", "ready:t", "ready:", "parked:t",
    "held:line", "user:", "user:line", "parent:7", "idle:t", "wake:w1", "qo:{default}:line", "schema", "n:x", "t:x",
    # what separates, escapes, or matches many
    ":", "::", "a:b", ":a", "{", "}", "}x{", "{}", "%", "%7D", "%3A", "~", "*", "?", "[a-z]", "^", "\\", "\\x00", "-",
    # quotes, blanks, numbers, other alphabets
    "'", '"', "`", "' OR ''='", "$1", " ", "  ", "a ", " a", "0", "1", "01", "-0", "1e3", "nan", "inf", "null", "nil",
    "true", "000000000001", "0000000000000001", "é", "e\u0301", "\u00a0", "\u2028", "日本", "🦊", "ß", "SS", "İ",
    # long ones that differ at the end only
    "x" * MAX_NAME_CHARACTERS, "x" * (MAX_NAME_CHARACTERS - 1) + "y", "🦊" * MAX_NAME_CHARACTERS,
]  # fmt: skip


def passes(check: Callable[[str], None]) -> Callable[[str], bool]:
    def is_allowed(name: str) -> bool:
        try:
            check(name)
        except InvalidValue:
            return False
        return True

    return is_allowed


some_text = st.text(st.sampled_from(":{}%~*?[]\\'\" \u00a0éx01") | st.characters(codec="utf-8"), min_size=1, max_size=8)
any_name = (st.sampled_from(ODD) | some_text).filter(passes(lambda name: check_name("name", name)))
task_name = any_name.filter(passes(check_task))
own_group = any_name.filter(passes(lambda name: check_own_groups([name])))


def two(names: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(names, min_size=2, max_size=2, unique=True).map(tuple)


class Names(NamedTuple):
    """Two of each, so that they could be taken for one another; and one may have the name of another thing."""

    ids: tuple[str, str]
    tasks: tuple[str, str]
    groups: tuple[str, str]
    users: tuple[str, str]
    parents: tuple[str, str]
    workers: tuple[str, str]
    holders: tuple[str, str]
    records: tuple[str, str]
    others: tuple[str, str]
    """a project and a tier; a claim and a unique key; who did it"""


drawn_names = st.builds(
    Names,
    ids=two(any_name),
    tasks=two(task_name),
    groups=two(own_group),
    users=two(any_name),
    parents=two(any_name),
    workers=two(any_name),
    holders=two(any_name),
    records=two(any_name),
    others=two(any_name),
)


@given(names=drawn_names)
def test_whatever_things_are_called_the_store_does_what_the_model_does(names: Names) -> None:
    live_through("valkey", names)


def test_all_things_may_have_the_same_odd_name() -> None:
    for name in ODD:
        plain = f"a{name.replace(':', ';')}"[:MAX_NAME_CHARACTERS]
        task = name if passes(check_task)(name) else plain
        group = name if passes(lambda one: check_own_groups([one]))(name) else plain
        live_through("redis", Names(*[(one, "other") for one in (name, task, group, *[name] * 6)]))


class NowAndThen(SideBySide):
    """Compares every answer, and the whole state only when asked to: a name that went astray stays where it went."""

    def do(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        self.steps.append(Step(operation, args, kwargs))
        expected = call(self.model, operation, args, kwargs)
        answer = self.runner.run(call_async(self.store, Step(operation, args, kwargs)))
        self.compare(f"the answer of {operation}", expected, answer)
        return expected

    def compare_everything(self) -> None:
        snapshot = self.runner.run(self.read_everything())
        for section, rows in self.model.snapshot().items():
            self.compare(section, rows, snapshot[section])

    async def read_everything(self) -> dict[str, Any]:
        return await self.under_test.snapshot(self.store)


def live_through(kind: Kind, names: Names) -> None:
    """A bit of everything that is told a name."""
    both = NowAndThen(ON_SERVERS[kind], Bounds())
    try:
        for part in (
            jobs_come_and_wait, jobs_run, callers_hold, people_change_things, figures_and_records, everything_goes
        ):  # fmt: skip
            part(both, names)
            both.compare_everything()
    finally:
        both.close()


def jobs_come_and_wait(both: SideBySide, names: Names) -> None:
    (task, other_task), (group, other_group), (user, other_user) = names.tasks, names.groups, names.users
    (one, other), (project, tier) = names.ids, names.others
    limited = [*names.groups, task, f"user:{user}", f"project:{project}", f"tier:{tier}", f"parent:{names.parents[0]}"]
    wanted = [Limit(group=each, slots=1, source=Source.OPERATOR) for each in dict.fromkeys(limited)]
    both.do("set_limits", wanted, by=names.others[0], now=START)
    for worker, its_task in zip(names.workers, names.tasks, strict=True):
        options = TaskOptions(name=its_task, groups=(other_group,))
        both.do("register", Registration(name=worker, tasks=(options,), capacity=2, lifetime_ms=DAY_MS), now=START)
    quota = Standing(tier=tier, daily_quota=1, user_limit=2)
    jobs = [
        Submission(id=one, task=task, user=user, project=project, standing=quota, groups=(group,), unique=tier),
        Submission(id=other, task=other_task, user=other_user, parent=names.parents[0], phase=1, by=project),
        Submission(id="deferred", task=task, user=user, groups=(group,), quota_jitter_ms=7),
        Submission(id="second", task=task, parent=names.parents[0], phase=2, groups=(group, other_group)),
        Submission(id="alone", task=other_task, parent=names.parents[1], groups=(group,), unique=project),
    ]
    both.do("submit", jobs, now=START)
    both.do("jobs", user=user, task=task)
    both.do("parent", names.parents[1])


def jobs_run(both: SideBySide, names: Names) -> None:
    both.do("set_paused", names.tasks[0], True, now=START)
    for worker, claim_id in zip(names.workers, names.others, strict=True):
        asked = {"worker": worker, "tasks": list(names.tasks), "capacity": 1, "lease_ms": LEASE_MS}
        claimed = both.do("claim", **asked, claim_id=claim_id, now=START)
        for lease in claimed.leases:
            report = Advance(job_id=lease.job.id, token=lease.token, stage="s", progress=Progress(1.0), checkpoint=b"1")
            both.do("advance", [report], now=START)
        both.do("set_paused", names.tasks[0], False, now=START)
    both.do("leases", worker=names.workers[0])
    for lease in list(both.model.state.leases.values()):
        outcome = Outcome(
            job_id=lease.holder, token=str(lease.token), state=State.FAILED, error=JobError(message=names.others[0])
        )
        both.do("finish", [outcome], now=START + 1)
        both.do("retry", lease.holder, by=names.others[1], now=START + 1)


def callers_hold(both: SideBySide, names: Names) -> None:
    for holder in names.holders:
        ticket = Ticket(holder=holder, groups=names.groups, lease_ms=LEASE_MS, worker=names.workers[0])
        both.do("acquire", [ticket], now=START + 1)
    both.do("groups", [names.groups[0]], now=START + 1)
    both.do("release", [(names.holders[0], None)], now=START + 1)
    both.do("renew", [], worker=names.workers[0], tickets=[names.holders[1]], now=START + 2)
    both.do("revoke", names.groups[0], 0, force=True, by=names.others[0], now=START + 2)


def people_change_things(both: SideBySide, names: Names) -> None:
    both.do("set_tier", names.users[0], Standing(tier=names.others[0], user_limit=3), by=names.others[1], now=START + 2)
    both.do("set_priority", 20, parent=names.parents[0], by=names.others[0], now=START + 2)
    both.do("move", names.ids[0], after=names.ids[1], by=names.others[0], now=START + 2)
    both.do("cancel", parent=names.parents[0], by=names.others[0], now=START + 2)
    both.do("set_limits", [Unlimited(group=names.groups[0])], by=names.others[0], now=START + 2)
    both.do("audit", subject=names.ids[0])
    both.do("usage", names.users[1], now=START)


def figures_and_records(both: SideBySide, names: Names) -> None:
    for number, name in enumerate(names.records):
        both.do("put_record", name, {"number": number}, version=0, now=START + 2)
    both.do("records", prefix=names.records[0])
    both.do("records", prefix=names.records[0][:1])
    both.do("records", names.records[1])
    both.do("observe", [(Average(name=name, first=1.0, weight=0.5), 2.0) for name in names.others])
    for number, task in enumerate(names.tasks):
        both.do("observe", errors={task: [number + 0.5]}, keep_errors=3)
    both.do("observed", tasks=[names.tasks[0]])


def everything_goes(both: SideBySide, names: Names) -> None:
    asked = {"worker": names.workers[1], "tasks": list(names.tasks), "capacity": 9, "lease_ms": LEASE_MS}
    claimed = both.do("claim", **asked, claim_id="all the rest", now=START + 3)
    outcomes = [
        Outcome(job_id=one.job.id, token=one.token, state=State.SUCCEEDED, closed={names.groups[1]: 9})
        for one in claimed.leases
    ]
    both.do("finish", outcomes, now=START + 3)
    both.do("upkeep", UpkeepRules(keep=Keep(ms=0, jobs=0, events=3, audit=2)), now=START + 4)
    both.do("catch_up", now=START + 2 * DAY_MS)


# --- workers that are woken -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a:b", "}x{", ":", "wake:", "events", "*", "é", " ", "x" * MAX_NAME_CHARACTERS])
async def test_a_worker_is_woken_by_its_own_name_and_task_and_no_other_is(name: str) -> None:
    task = name if passes(check_task)(name) else "t"
    other = f"{name[:-1]}2"
    async with namespaces(new_namespace()) as (store,):
        mine, theirs = (
            asyncio.create_task(store.wait_for_work(worker=worker, tasks=[handled], timeout_seconds=60))
            for worker, handled in ((name, task), (other, f"{task[:-1]}2"))
        )
        await eventually(lambda: both_are_idle(store))

        await submit(store, "a", task=task, now=None)

        assert (await mine).more
        assert await idle_workers(store) == [other]
        assert not theirs.done()
        theirs.cancel()
        await asyncio.wait([theirs])


async def idle_workers(store: RedisStore) -> list[str]:
    found = await store.client.command("HKEYS", f"{store.client.prefix}idle_workers")
    return [worker.decode() for worker in found]


async def both_are_idle(store: RedisStore) -> bool:
    return len(await idle_workers(store)) == 2


# --- namespaces -------------------------------------------------------------------------------------------------

MORE_ODD = ["\n", "\0", "\ud800", "a\nb", "default", "Default"]
any_namespace = st.sampled_from([*ODD, *MORE_ODD]) | st.text(min_size=1, max_size=8)
like_another = st.sampled_from(["{}:", ":{}", "{}{{", "}}{}", "{}}}:line", "%{}", "{}*", "{}\n", "{} ", "{}0"])


@given(one=any_namespace, other=any_namespace)
@settings(max_examples=500)
def test_no_namespaces_keys_can_be_taken_for_anothers(one: str, other: str) -> None:
    assume(one != other)

    prefix = prefix_of(one)

    assert not prefix_of(other).startswith(prefix)
    assert not set(prefix) & set("*?[]^\\"), "a pattern made of it would find the keys of others"
    tag = prefix[prefix.index("{") + 1 : prefix.index("}")]
    assert (tag != "", prefix) == (True, f"qo:{{{tag}}}:"), "all of its name decides about the shard"


@given(one=any_namespace, shape=like_another)
@settings(max_examples=20)
async def test_namespaces_of_similar_names_share_nothing(one: str, shape: str) -> None:
    async with namespaces(one, shape.format(one)) as (store, other):
        # In turns, because what the server remembers of a step in one must be nothing to the next in the other.
        for fill in (fill_with_jobs, fill_with_callers, fill_with_the_rest):
            await fill(store, "a")
            await fill(other, "b")
        whole, others_whole = await snapshot(store), await snapshot(other)
        assert (set(whole["jobs"]), set(others_whole["jobs"])) == ({"a", "a2"}, {"b", "b2"})

        await claim(store, capacity=9, tasks=["work-a", "work-b"])
        await at(store, NOW + DAY_MS).upkeep(UpkeepRules(keep=Keep(ms=0, jobs=0, events=0, audit=0)))
        assert await snapshot(other) == others_whole
        assert (await other.records("a")).get("a", Record()) == Record()

        await remove(store)
        assert (await store.jobs()).jobs == ()
        assert await snapshot(other) == others_whole


async def fill_with_jobs(store: RedisStore, name: str) -> None:
    await limit(store, "gpu", 1)
    await register(store, name, f"work-{name}")
    submit_alike = partial(submit, store, task=f"work-{name}", user="u", parent="p")
    await submit_alike(name, standing=standing(daily_quota=1), groups=("gpu",))
    await submit_alike(f"{name}2")


async def fill_with_callers(store: RedisStore, name: str) -> None:
    await acquire(store, name, "gpu")
    await acquire(store, f"{name}2", "gpu")


async def fill_with_the_rest(store: RedisStore, name: str) -> None:
    assert await store.put_record(name, name, version=0)
    await at(store, NOW).set_paused(name, True)
    await store.observe([(Average(name=name, first=1.0, weight=0.5), 2.0)])


@asynccontextmanager
async def namespaces(*names: str) -> AsyncIterator[tuple[RedisStore, ...]]:
    """A store for each, empty at the beginning and at the end."""
    stores = tuple([await RedisStore.open(shared_server("valkey").url, namespace=name) for name in names])
    try:
        yield stores
    finally:
        for store in stores:
            await remove(store)
            await store.close()


async def remove(store: RedisStore) -> None:
    if keys := await store.client.command("KEYS", f"{store.client.prefix}*"):
        await store.client.command("DEL", *keys)
