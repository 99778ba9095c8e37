"""What a limiter tells about itself, number by number."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

import qo
from tests.limits.limiter_clock import Clock, clock_fixture  # noqa: F401 - asked for by name


async def test_the_metrics_have_the_shape_of_the_specification(clock: Clock) -> None:
    limiter = qo.Limiter({"ollama": 4, "gemini": 8}, total=12)
    ollama = [limiter.acquire("ollama") for _ in range(4)]
    gemini = [limiter.acquire("gemini") for _ in range(8)]
    for block in ollama + gemini:
        await block.__aenter__()
    waiting = [asyncio.create_task(limiter.acquire("ollama").__aenter__()) for _ in range(9)]
    await asyncio.sleep(0)
    await ollama.pop().__aexit__(None, None, None)  # handed to the first of the nine at once
    clock.now += 1
    waiting += [asyncio.create_task(limiter.acquire("mistral").__aenter__()) for _ in range(3)]
    await asyncio.sleep(0)
    clock.now += 0.5
    for task in waiting[2:]:
        task.cancel()
    await asyncio.gather(*waiting[2:], return_exceptions=True)
    for block in gemini[2:]:
        await block.__aexit__(None, None, None)
    await ollama.pop().__aexit__(None, None, None)  # to the second
    for block in ollama[:1]:
        await block.__aexit__(None, None, None)
    metrics = limiter.get_metrics()

    assert metrics == {
        "in_flight": {"ollama": 3, "gemini": 2, "total": 5},
        "blocked_requests": 12,
        "avg_block_time_seconds": (1 * 0 + 8 * 1.5 + 3 * 0.5) / 12,
        "blocked_by": {"ollama": 9, "total": 3},
        "waiting": {"ollama": 0, "total": 0},
        "longest_wait_seconds": 1.5,
        "limits": {"ollama": 4, "gemini": 8, "global": 12},
    }
    assert list(metrics["in_flight"]) == ["ollama", "gemini", "total"]


def test_a_fresh_limiter_has_waited_for_nobody() -> None:
    assert qo.Limiter({"ollama": 4}).get_metrics() == {
        "in_flight": {"ollama": 0, "total": 0},
        "blocked_requests": 0,
        "avg_block_time_seconds": 0.0,
        "blocked_by": {},
        "waiting": {},
        "longest_wait_seconds": 0.0,
        "limits": {"ollama": 4},
    }


def test_a_name_that_is_not_listed_counts_0() -> None:
    metrics = qo.Limiter({"ollama": 4}).get_metrics()

    assert [metrics[of]["gemini"] for of in ("in_flight", "blocked_by", "waiting")] == [0, 0, 0]


async def test_the_longest_wait_may_be_one_that_goes_on(clock: Clock) -> None:
    limiter = qo.Limiter({"ollama": 0})
    task = asyncio.create_task(limiter.acquire("ollama").__aenter__())
    await asyncio.sleep(0)
    clock.now += 7

    assert limiter.get_metrics()["longest_wait_seconds"] == 7
    assert limiter.get_metrics()["avg_block_time_seconds"] == 0
    assert limiter.get_metrics()["waiting"] == {"ollama": 1}
    task.cancel()


async def test_one_that_gave_up_in_the_middle_is_no_longer_counted_as_waiting() -> None:
    limiter = qo.Limiter({"ollama": 0})
    tasks = [asyncio.create_task(limiter.acquire("ollama").__aenter__()) for _ in range(7)]
    await asyncio.sleep(0)
    counted = []
    for task in (tasks[3], tasks[0], tasks[1], tasks[5], tasks[4], tasks[2], tasks[6]):
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        counted.append(limiter.get_metrics()["waiting"]["ollama"])

    assert counted == [6, 5, 4, 3, 2, 1, 0]


async def test_one_held_up_by_another_group_than_before_is_counted_there() -> None:
    limiter = qo.Limiter({"ollama": 0}, total=0)
    task = asyncio.create_task(limiter.acquire("ollama").__aenter__())
    await asyncio.sleep(0)
    limiter.set_limit("ollama", 1)

    assert limiter.get_metrics()["waiting"] == {"ollama": 0, "total": 1}
    assert limiter.get_metrics()["blocked_by"] == {"ollama": 1, "total": 0}
    task.cancel()


def test_one_that_would_not_wait_was_not_blocked() -> None:
    limiter = qo.Limiter({"ollama": 0})
    with pytest.raises(qo.Timeout):
        limiter.acquire("ollama", timeout=0).__enter__()

    assert limiter.get_metrics()["blocked_requests"] == 0


def test_groups_of_ones_own_stand_beside_the_providers() -> None:
    limiter = qo.Limiter({"ollama": 4}, groups={"gpu": 1})
    with limiter.acquire(groups=["gpu", "provider:ollama"]):
        metrics = limiter.get_metrics()

    assert metrics["in_flight"] == {"ollama": 1, "gpu": 1, "total": 1}
    assert metrics["limits"] == {"ollama": 4, "gpu": 1}


def test_a_provider_and_a_group_of_the_same_name_are_told_apart() -> None:
    limiter = qo.Limiter({"gpu": 4}, groups={"gpu": 1})
    with limiter.acquire("gpu"):
        assert limiter.get_metrics()["in_flight"] == {"provider:gpu": 1, "gpu": 0, "total": 1}


def test_the_metrics_are_plain_json() -> None:
    metrics = qo.Limiter({"ollama": 4}, total=12).get_metrics()

    assert json.loads(json.dumps(metrics)) == metrics


async def test_prometheus_gets_the_same_numbers(clock: Clock) -> None:
    limiter = qo.Limiter({"ollama": 1}, total=2)
    block = limiter.acquire("ollama")
    await block.__aenter__()
    task = asyncio.create_task(limiter.acquire("ollama").__aenter__())
    await asyncio.sleep(0)
    clock.now += 2
    await block.__aexit__(None, None, None)
    await task
    samples = limiter.samples()

    assert {(sample.name, *sample.labels.values()): sample.value for sample in samples} == {
        ("qo_limiter_in_flight", "ollama"): 1,
        ("qo_limiter_in_flight", "total"): 1,
        ("qo_limiter_limit", "ollama"): 1,
        ("qo_limiter_limit", "total"): 2,
        ("qo_limiter_waiting", "ollama"): 0,
        ("qo_limiter_waiting", "total"): 0,
        ("qo_limiter_blocked_total", "ollama"): 1,
        ("qo_limiter_blocked_total", "total"): 0,
        ("qo_limiter_waits_ended_total",): 1,
        ("qo_limiter_waited_seconds_total",): 2,
        ("qo_limiter_longest_wait_seconds",): 2,
    }
    names = [sample.name for sample in samples]
    assert names == sorted(names, key=names.index), "samples of one name stand together"
    assert {sample.kind for sample in samples if sample.name.endswith("_total")} == {"counter"}


def test_a_total_smaller_than_a_provider_is_allowed_with_a_warning_that_names_both(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "qo.limiter"):
        limiter = qo.Limiter({"ollama": 4, "gemini": 8}, total=5)
        at_first = [record.getMessage() for record in caplog.records]
        limiter.set_total(3)
        limiter.set_limit("gemini", 2)
        limiter.set_limit("openai", 7)
        limiter.set_total(None)

    assert at_first == [
        "The total of 5 is smaller than the limit of 8 for provider 'gemini', which can never be reached; "
        "raise the total or lower the limit."
    ]
    numbers = [record.args for record in caplog.records[1:]]
    assert numbers == [(3, 4, "ollama"), (3, 8, "gemini"), (3, 7, "openai")]
