"""What `docs/stores.md` and `docs/internals/stores.md` say of the Redis store is so: keys, files, urls, commands."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from redis import Redis

from qo.store.outbox import OutboxOptions
from qo.store.redis import RedisStore
from qo.store.redis.server.address import parse_server_url
from qo.values import Average, Keep, Limit, Source, TaskOptions, UpkeepRules
from tests.conformance.suite.harness import (
    BROKEN,
    DAY,
    HOUR,
    NOW,
    acquire,
    ask_to_confirm,
    at,
    catch_up,
    claim,
    fail,
    hand_back,
    limit,
    register,
    retry_later,
    run,
    standing,
    start,
    submit,
    submit_all,
    succeed,
)
from tests.servers.redis import Kind, Server
from tests.store.redis.redis_calls import KINDS, eventually

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "src/qo/store/redis"
PAGE = (ROOT / "docs/stores.md").read_text() + (ROOT / "docs/internals/stores.md").read_text()
ROW = re.compile(r"^\| `([^`]+)` \| (hash|list|set|sorted set|stream|string) \| .* \| (.*) \|$", re.MULTILINE)
CHANNEL = re.compile(r"^\| `(events|signals:|wake:)", re.MULTILINE)
KEY_IN_SCRIPT = re.compile(r"(?:\bkey\(|prefix \.\. )'(\w+:?)'")
TYPES = {"zset": "sorted set"}


@dataclass(frozen=True)
class Listed:
    type: str
    files: tuple[str, ...]


@cache
def listed() -> dict[str, Listed]:
    """By family: a whole name, or what stands before the first `<`."""
    rows = ROW.findall(PAGE)
    families = {
        name.partition("<")[0]: Listed(type_, tuple(re.findall("`(.+?)`", files))) for name, type_, files in rows
    }
    assert len(families) == len(rows), "a key is listed twice"
    return families


def family_of(key: str) -> str:
    name, colon, _ = key.partition(":")
    return name + colon


# --- the page and the scripts -----------------------------------------------------------------------------------


def keys_in_scripts() -> set[str]:
    return {name for file in SCRIPTS.rglob("*.lua") for name in KEY_IN_SCRIPT.findall(file.read_text())}


def test_the_page_lists_the_keys_that_scripts_name_and_no_others() -> None:
    channels = set(CHANNEL.findall(PAGE))

    assert channels == {"events", "signals:", "wake:"}
    assert listed().keys() | channels == keys_in_scripts() | {"schema"}  # the only key that no script names


def script(name: str) -> str:
    """The text of an operation, or of `lib/…`; nothing where there is no such file."""
    file = SCRIPTS / (f"{name}.lua" if name.startswith("lib/") else f"operations/{name}.lua")
    return file.read_text() if file.exists() else ""


def test_the_page_names_files_in_which_the_key_is_used() -> None:
    wrong = [
        f"{family} in {file}"
        for family, about in listed().items()
        for file in about.files
        if family != "schema" and f"'{family}'" not in script(file)
    ]

    assert all(about.files for about in listed().values())
    assert wrong == []


def test_the_urls_of_the_page_can_be_used() -> None:
    urls = re.findall(r"^\| `((?:rediss?|unix)://[^`]+)` \|", PAGE, re.MULTILINE)

    addresses = [parse_server_url(url.partition("?ssl_ca_certs=")[0]) for url in urls]

    assert {address.port for address in addresses} == {6379, 6380, 7000}
    assert {address.password for address in addresses} == {None, "p@ss"}
    assert {address.path for address in addresses} == {None, "/run/redis.sock"}


# --- the page and a server --------------------------------------------------------------------------------------


def on_the_page(pattern: str) -> str:
    found = re.search(pattern, PAGE, re.MULTILINE)
    assert found is not None, f"the page has no {pattern}"
    return found[1]


async def idle_worker(store: RedisStore) -> None:
    waiting = asyncio.create_task(store.wait_for_work(worker="idle", tasks=["work"], timeout_seconds=60))
    await eventually(lambda: store.client.command("HEXISTS", f"{store.client.prefix}idle_workers", "idle"))
    waiting.cancel()
    await asyncio.wait([waiting])


async def draining_worker(store: RedisStore) -> None:
    """It waits to become empty, because a last suspect is first in line."""
    await submit(store, "lost", task="short", max_attempts=2)
    await claim(store, tasks=["short"], worker="gone", lease_ms=1)
    await catch_up(store, now=NOW + 1)
    await register(store, "busy", "short", "long", now=NOW)
    await submit(store, "long", task="long")
    await claim(store, tasks=["long"], worker="busy")
    await catch_up(store)
    waiting = asyncio.create_task(store.wait_for_work(worker="busy", tasks=["short"], timeout_seconds=60))
    await eventually(lambda: store.client.command("SISMEMBER", f"{store.client.prefix}draining", "busy"))
    waiting.cancel()
    await asyncio.wait([waiting])


async def line_and_limits(store: RedisStore) -> None:
    await register(store, "w1", TaskOptions(name="work", groups=("shared",), limit=50, max_attempts=2), capacity=20)
    await limit(store, "gpu", 1, by="ada")
    await submit_all(store, ["g1", "g2", "g3"], groups=("gpu",))
    await submit_all(store, ["a", "b", "c"])
    await at(store, NOW).move("g3", before="g2", by="ada")
    leases = {lease.job.id: lease for lease in await claim(store, capacity=20)}
    await submit(store, "closing")
    (closing,) = await claim(store)
    await hand_back(store, closing, closed={"elsewhere": HOUR})
    await run(store, leases["a"], checkpoint=b"half", message="m")
    await succeed(store, leases["a"])
    await fail(store, leases["b"])
    await retry_later(store, leases["c"], at=NOW + HOUR)
    await submit_all(store, ["u1", "u2", "u3"], groups=("pool",), task="pooled")
    await limit(store, "pool", 3)
    pooled = await claim(store, tasks=["pooled"], capacity=3)
    await succeed(store, pooled[0])  # its number is free below the others
    await submit(store, "once", unique="only one", contact="ann@example.com")
    await limit(store, "gpu", 2)  # and so there is room for what is parked


async def people_and_time(store: RedisStore) -> None:
    tier = standing(user_limit=2, project_limit=2, daily_quota=1)
    for name in ("q1", "q2"):
        await submit(store, name, user="ada", project="p", standing=tier)
    for phase in (1, 2):
        await submit(store, f"phase-{phase}", parent="build", phase=phase, task="phased")
    (first,) = await claim(store, tasks=["phased"])
    await succeed(store, first)
    asking = await start(store, "asking")
    await ask_to_confirm(store, asking)
    await at(store, NOW).set_tier("ben", standing("cto_scale"), by="ada")
    await submit(store, "by a time", task="soon", start_by_ms=NOW + HOUR, overdue_message="late")
    await submit(store, "in an hour", task="soon", start_within_ms=HOUR, overdue_message="late")
    own = Limit(group="own", slots=1, source=Source.SUBMIT)
    await submit(store, "own", groups=("own",), limits=(own,))


async def callers(store: RedisStore) -> None:
    await acquire(store, "holder", "door")
    await limit(store, "door", 1)
    await acquire(store, "in line", "door")
    await acquire(store, "passing", "free for all")


async def turns(store: RedisStore) -> None:
    await register(store, "w2", "turning", turn_after=1)
    await limit(store, "one", 1)
    await submit(store, "holder", task="turning", groups=("other",))
    await claim(store, tasks=["turning"])
    await submit(store, "passed", task="turning", groups=("one", "other"))
    await limit(store, "other", 1)
    assert await claim(store, tasks=["turning"]) == []


async def history(store: RedisStore) -> None:
    assert store.outbox is not None
    await store.outbox.configure(OutboxOptions(most=1000))
    await submit(store, "recorded")


async def what_is_counted(store: RedisStore) -> None:
    await store.observe([(Average(name="seconds", first=1.0, weight=0.5), 2.0)])
    await store.observe(errors={"work": [0.5]})
    await store.put_record("session", {"a": 1}, version=0)


async def retention(store: RedisStore) -> None:
    later = NOW + 2 * DAY
    await at(store, later).upkeep(UpkeepRules(reminder_ages_ms=(HOUR,)))
    await at(store, later).upkeep(UpkeepRules(unconfirmed_after_ms=DAY, unconfirmed_error=BROKEN))
    await catch_up(store, now=later)
    await at(store, later).upkeep(UpkeepRules(aging_period_ms=HOUR))
    while (await at(store, later).upkeep(UpkeepRules(keep=Keep(ms=HOUR, jobs=10, events=10, audit=2)))).more:
        pass


CHAPTERS = (
    *(idle_worker, draining_worker, line_and_limits, people_and_time, callers, turns, history, what_is_counted),
    retention,
)
"""of a varied history; each leaves keys that a later one may remove, so all are looked at after each"""


@pytest.mark.parametrize("kind", KINDS)
async def test_every_key_of_a_varied_history_is_listed_with_its_type_and_every_listed_one_comes_up(kind: Kind) -> None:
    found: dict[str, str] = {}
    rule = on_the_page(r"^(user qo on >secret .*)$")
    with (
        Server(kind, config=[rule], login="qo:secret") as server,
        Redis(port=server.port, decode_responses=True) as operator,
    ):
        store = await RedisStore.open(server.url, namespace="team")
        for chapter in CHAPTERS:
            await chapter(store)
            for key in operator.scan_iter(count=1000):
                type_ = operator.type(key)
                found[family_of(key.removeprefix(store.client.prefix))] = TYPES.get(type_, type_)
        await store.close()

        operator.eval(on_the_page(r"^redis-cli EVAL \"(.*)\" 0 'qo:\{team\}:\*'$"), 0, "qo:{team}:*")
        left = operator.dbsize()

    assert found == {family: about.type for family, about in listed().items()}
    assert left == 0
