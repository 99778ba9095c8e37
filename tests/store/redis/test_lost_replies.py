"""Exactly one effect: the server did what it was asked, its reply got lost, and the client sent it again.

A proxy lets a request through, throws the server's reply away and ends the connection (`losing_replies.py`).
Every writing operation is played twice, with and without that loss, in two namespaces: the caller gets the same
answer, and everything the store knows is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from qo.store.redis.store import RedisStore
from qo.values import Accepted, Bounds
from tests.conformance.machine.side_by_side import differences_between
from tests.conformance.suite import harness
from tests.conformance.suite.harness import without_history
from tests.servers.redis import Kind, shared_server
from tests.store.redis.losing_replies import losing_replies
from tests.store.redis.lost_reply_cases import CASES, PORTIONS, UPKEEP
from tests.store.redis.redis_calls import new_namespace
from tests.store.redis.snapshot import snapshot
from tests.store.sqlite.test_kill import KINDS as KINDS_OF_WRITING

# --- what a loss may be noticed by ------------------------------------------------------------------------------

Played = dict[str, Any]
"""the answer, and everything the store knows"""


def known_already(played: Played, losses: int) -> None:
    """It is in line or beyond: the job as it is now, without what was said of other limits when it was accepted."""
    jobs = played["state"]["jobs"]
    played["answer"] = [
        replace(one, job=without_history(jobs[one.job.id]["job"]), known=True, ignored=())
        if isinstance(one, Accepted)
        else one
        for one in played["answer"]
    ]


def told_again(played: Played, losses: int) -> None:
    """Repeating a report changes nothing but the feed."""
    events = played["state"]["events"]
    assert [event.kind for event in events[-3:]] == ["running", "stage", "progress"]
    for event in events[-2:] * losses:
        events.append(replace(event, id=events[-1].id + 1))


NOTICED: dict[str, Callable[[Played, int], None]] = {
    **{name: known_already for name in CASES if name.startswith("submit")},
    "advance": told_again,
}


# --- the rule ---------------------------------------------------------------------------------------------------


def test_every_operation_that_writes_has_a_case() -> None:
    assert {name.partition(",")[0] for name in CASES} == {*KINDS_OF_WRITING, "wait_for_work"}


@pytest.mark.parametrize(("kind", "losses"), [("valkey", 1), ("redis", 2)])
@pytest.mark.parametrize("name", CASES)
async def test_an_operation_whose_reply_got_lost_has_one_effect_and_the_same_answer(
    name: str, kind: Kind, losses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "fresh_numbers", count(1))
    expected = await play(name, kind, losses=0)
    if name in NOTICED:
        NOTICED[name](expected, losses)

    monkeypatch.setattr(harness, "fresh_numbers", count(1))  # so that claims have the same ids
    actual = await play(name, kind, losses=losses)

    assert list(differences_between(expected, actual, name)) == []


# --- playing a case ---------------------------------------------------------------------------------------------


async def play(name: str, kind: Kind, *, losses: int) -> Played:
    """What the caller was answered and what the store has become. The others have their own way to the server."""
    namespace, server, bounds = new_namespace(), shared_server(kind), PORTIONS if name in UPKEEP else Bounds()
    others = await RedisStore.open(server.url, namespace=namespace, bounds=bounds)
    async with losing_replies(server.port) as proxy:
        store = await RedisStore.open(f"redis://127.0.0.1:{proxy.port}", namespace=namespace, bounds=bounds)
        try:
            played = CASES[name](others)
            asked = await anext(played)
            proxy.lose(times=losses, meanwhile=lambda: anext(played, None))

            answer = await asked.on(store)

            lost = [reply.removeprefix(b"+PONG\r\n")[:1] for reply in proxy.lost]
            assert lost == [b"*"] * losses, "each time the server had done it"
            await anext(played, None)
            return {
                "answer": answer,
                "state": await snapshot(others),
                "records": dict(await others.records(prefix="")),
                "estimate errors": (await others.observed(tasks=["work"])).errors["work"],
            }
        finally:
            await store.close()
            await others.client.command("DEL", *await others.client.command("KEYS", f"{others.client.prefix}*"))
            await others.close()
