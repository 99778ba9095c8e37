"""Limits of a limiter in process that are raised, lowered, set to 0 or set for the first time."""

from __future__ import annotations

import threading
from contextlib import AsyncExitStack, ExitStack

import pytest

import qo
from tests.limits.provider_limiter import (
    held_fixture,  # noqa: F401 - asked for by name
    in_flight,
    take,
    until_waiting,
    waiting,
)
from tests.worker.running import soon


def test_a_limit_of_0_lets_nobody_in_until_it_is_raised() -> None:
    limiter = qo.Limiter({"ollama": 0})
    with pytest.raises(qo.Timeout, match=r"provider 'ollama' now: its limit is 0, so nobody enters"):
        limiter.acquire("ollama", timeout=0).__enter__()
    entered = threading.Event()

    def enter() -> None:
        with limiter.acquire("ollama"):
            entered.set()

    thread = threading.Thread(target=enter)
    thread.start()
    until_waiting(limiter, "ollama", 1)
    assert not entered.is_set()
    limiter.set_limit("ollama", 1)
    thread.join(20)

    assert entered.is_set()


async def test_raising_a_limit_lets_in_at_once_as_many_as_have_room(held: AsyncExitStack) -> None:
    limiter = qo.Limiter({"ollama": 1}, total=3)
    await take(held, limiter, "ollama")
    tasks = [await waiting(limiter, "ollama") for _ in range(4)]
    limiter.set_limit("ollama", 9)

    assert in_flight(limiter) == {"ollama": 3, "total": 3}
    assert limiter.get_metrics()["waiting"] == {"ollama": 0, "total": 2}
    limiter.set_total(None)
    assert in_flight(limiter) == {"ollama": 5, "total": 5}
    for task, leave in tasks:
        leave.set()
        await soon(task)


def test_lowering_a_limit_lets_holders_finish_and_nobody_in_until_there_is_room() -> None:
    limiter = qo.Limiter({"ollama": 3})
    with ExitStack() as two_left:
        for _ in range(2):
            two_left.enter_context(limiter.acquire("ollama"))
        with limiter.acquire("ollama"):
            limiter.set_limit("ollama", 2)
            assert in_flight(limiter) == {"ollama": 3, "total": 3}
        with pytest.raises(qo.Timeout), limiter.acquire("ollama", timeout=0):
            pass
    with limiter.acquire("ollama", timeout=0) as lease:
        assert lease.slots == {"provider:ollama": 0}


async def test_a_slot_given_back_under_a_lowered_limit_is_handed_to_nobody(held: AsyncExitStack) -> None:
    limiter = qo.Limiter({"ollama": 2})
    await take(held, limiter, "ollama")
    first = limiter.acquire("ollama")
    await first.__aenter__()
    task, leave = await waiting(limiter, "ollama")
    limiter.set_limit("ollama", 1)
    await first.__aexit__(None, None, None)

    assert in_flight(limiter) == {"ollama": 1, "total": 1}
    assert limiter.get_metrics()["waiting"] == {"ollama": 1}
    await held.aclose()
    leave.set()
    await soon(task)


def test_those_already_inside_count_for_a_first_limit() -> None:
    limiter = qo.Limiter()
    with limiter.acquire(groups=["gpu"]) as unlimited:
        limiter.set_group_limit("gpu", 1)
        with pytest.raises(qo.Timeout), limiter.acquire(groups=["gpu"], timeout=0):
            pass
        assert unlimited.slots == {}
        limiter.set_group_limit("gpu", None)
        with limiter.acquire(groups=["gpu"], timeout=0):
            pass
