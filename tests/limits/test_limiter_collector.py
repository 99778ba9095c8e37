"""A limiter's numbers through the library of Prometheus: real registries, and its own readers of what they print."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text
from prometheus_client.registry import Collector

import qo
from tests.limits.limiter_clock import Clock, clock_fixture  # noqa: F401 - asked for by name

Numbers = dict[tuple[str, ...], float]

WITHOUT_THE_LIBRARY = """
import sys
sys.modules["prometheus_client"] = None
import qo
limiter = qo.Limiter({"ollama": 4})
limiter.samples()
print("works without")
limiter.collector()
"""


@pytest.fixture(params=[False, True], ids=["plain", "auto_describe"])
def registry(request: pytest.FixtureRequest) -> CollectorRegistry:
    """A plain one, and one like the library's own `REGISTRY`, which asks a collector for its names when it is added."""
    return CollectorRegistry(auto_describe=request.param)


def scraped(registry: Collector) -> Numbers:
    """What a scrape is told: by name and labels."""
    return {(name, *labels.values()): value for name, labels, value in samples(registry)}


def samples(registry: Collector) -> Iterator[tuple[str, dict[str, str], float]]:
    for family in read_text(generate_latest(registry).decode()):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


async def test_a_scrape_tells_who_holds_waits_and_has_waited(clock: Clock, registry: CollectorRegistry) -> None:
    limiter = qo.Limiter({"ollama": 1}, total=2)
    registry.register(limiter.collector())
    at_first = scraped(registry)
    block = limiter.acquire("ollama")
    await block.__aenter__()
    task = asyncio.create_task(limiter.acquire("ollama").__aenter__())
    await asyncio.sleep(0)
    clock.now += 2
    while_one_waits = scraped(registry)
    await block.__aexit__(None, None, None)
    await task
    clock.now += 1
    afterwards = scraped(registry)

    assert at_first == {
        ("qo_limiter_in_flight", "ollama"): 0,
        ("qo_limiter_in_flight", "total"): 0,
        ("qo_limiter_limit", "ollama"): 1,
        ("qo_limiter_limit", "total"): 2,
        ("qo_limiter_waiting", "ollama"): 0,
        ("qo_limiter_waiting", "total"): 0,
        ("qo_limiter_blocked_total", "ollama"): 0,
        ("qo_limiter_blocked_total", "total"): 0,
        ("qo_limiter_waits_ended_total",): 0,
        ("qo_limiter_waited_seconds_total",): 0,
        ("qo_limiter_longest_wait_seconds",): 0,
    }
    assert while_one_waits == at_first | {
        ("qo_limiter_in_flight", "ollama"): 1,
        ("qo_limiter_in_flight", "total"): 1,
        ("qo_limiter_waiting", "ollama"): 1,
        ("qo_limiter_blocked_total", "ollama"): 1,
        ("qo_limiter_longest_wait_seconds",): 2,
    }
    assert afterwards == while_one_waits | {
        ("qo_limiter_waiting", "ollama"): 0,
        ("qo_limiter_waits_ended_total",): 1,
        ("qo_limiter_waited_seconds_total",): 2,
    }


def test_a_scrape_tells_the_same_as_the_samples(registry: CollectorRegistry) -> None:
    limiter = qo.Limiter({"ollama": 4, 'odd "name"\\': 8}, total=12, groups={"gpu": 1})
    registry.register(limiter.collector())
    with limiter.acquire(groups=["gpu", "provider:ollama", "provider:free"]):
        assert list(samples(registry)) == [(name, labels, value) for name, _, _, labels, value in limiter.samples()]


def test_several_limiters_in_one_registry_are_told_apart_by_a_label(registry: CollectorRegistry) -> None:
    chat, batch = qo.Limiter({"ollama": 4}, total=12), qo.Limiter({"ollama": 2})
    registry.register(qo.Limiter.collector_of({"chat": chat, "batch": batch}))
    with chat.acquire("ollama"), chat.acquire("ollama"), batch.acquire("ollama"):
        told = [(labels, value) for name, labels, value in samples(registry) if name == "qo_limiter_in_flight"]

    assert told == [
        ({"limiter": "chat", "group": "ollama"}, 2),
        ({"limiter": "chat", "group": "total"}, 2),
        ({"limiter": "batch", "group": "ollama"}, 1),
        ({"limiter": "batch", "group": "total"}, 1),
    ]
    assert registry.get_sample_value("qo_limiter_waits_ended_total", {"limiter": "batch"}) == 0


def test_the_strict_reader_takes_it_with_kinds_and_units(registry: CollectorRegistry) -> None:
    limiters = {"chat": qo.Limiter({"ollama": 4}, total=12), "batch": qo.Limiter({"ollama": 2})}
    registry.register(qo.Limiter.collector_of(limiters))

    printed = generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call]  # the library's
    families = list(read_openmetrics(printed))  # type: ignore[no-untyped-call]  # the library's

    assert [(family.name, family.type, family.unit) for family in families] == [
        ("qo_limiter_in_flight", "gauge", ""),
        ("qo_limiter_limit", "gauge", ""),
        ("qo_limiter_waiting", "gauge", ""),
        ("qo_limiter_blocked", "counter", ""),
        ("qo_limiter_waits_ended", "counter", ""),
        ("qo_limiter_waited_seconds", "counter", "seconds"),
        ("qo_limiter_longest_wait_seconds", "gauge", "seconds"),
    ]
    assert all(family.documentation for family in families)


def test_a_second_collector_is_refused_because_its_samples_would_stand_apart(registry: CollectorRegistry) -> None:
    registry.register(qo.Limiter().collector())  # names are known though there is no group yet

    with pytest.raises(ValueError, match="qo_limiter_limit"):
        registry.register(qo.Limiter({"ollama": 4}).collector())


def test_a_collector_that_was_taken_out_makes_room_for_another(registry: CollectorRegistry) -> None:
    first = qo.Limiter({"ollama": 4}).collector()
    registry.register(first)
    registry.unregister(first)
    registry.register(qo.Limiter({"ollama": 2}).collector())

    assert scraped(registry)["qo_limiter_limit", "ollama"] == 2


def test_a_limit_that_changes_and_a_group_that_comes_later_are_told(registry: CollectorRegistry) -> None:
    limiter = qo.Limiter()
    registry.register(limiter.collector())
    limiter.set_limit("ollama", 3)

    assert scraped(registry)["qo_limiter_limit", "ollama"] == 3
    assert scraped(registry.restricted_registry(["qo_limiter_limit"])) == {("qo_limiter_limit", "ollama"): 3}
    limiter.set_limit("ollama", None)
    assert ("qo_limiter_limit", "ollama") not in scraped(registry)


async def test_a_limiter_on_a_queue_tells_its_own_callers(tmp_path: Path, registry: CollectorRegistry) -> None:
    async with await qo.connect(f"sqlite:///{tmp_path}/qo.db") as queue:
        limiter = qo.Limiter({"ollama": 4}, total=12, queue=queue)
        registry.register(limiter.collector())
        async with limiter.acquire("ollama"):
            told = scraped(registry)
        await asyncio.to_thread(limiter.close)

    assert told["qo_limiter_in_flight", "ollama"] == told["qo_limiter_in_flight", "total"] == 1
    assert told["qo_limiter_limit", "ollama"] == 4


@pytest.mark.parametrize("limiters", [[qo.Limiter()], {"chat": 4}, {1: qo.Limiter()}, None])
def test_what_are_no_limiters_by_name_is_refused(limiters: object) -> None:
    with pytest.raises(qo.InvalidValue, match="give limiters by name"):
        qo.Limiter.collector_of(limiters)  # type: ignore[arg-type]  # wrong on purpose


def test_without_the_library_the_sentence_says_what_to_install() -> None:
    ended = subprocess.run([sys.executable, "-c", WITHOUT_THE_LIBRARY], capture_output=True, text=True)

    assert ended.stdout == "works without\n"
    assert ended.stderr.splitlines()[-1] == (
        "qo.errors.SettingsError: A collector needs the library of Prometheus; "
        "install it with: pip install 'qo-queue[server]'."
    )
