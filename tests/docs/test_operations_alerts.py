"""The alerts are PromQL, and ask only for metrics and labels that a server and a worker really answer."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import qo
from qo.service.access.caller import Role
from qo.service.metrics.exposition import worker_text
from qo.service.metrics.port import metrics_served
from qo.service.stream.watchers import KEPT_FOR_KEYS, MOST_OF_A_WATCH_TOKEN, MOST_STREAMS, Dropped
from qo.settings import load_settings
from tests.docs.operations import DEPLOY, SECTIONS, examples
from tests.service.conftest import Service, running_service

Samples = dict[str, dict[str, set[str]]]
"""By the name of a sample, the values of each of its labels."""

RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
SCRAPES: list[dict[str, Any]] = yaml.safe_load(examples("yaml", "Alerts")[0])["scrape_configs"]
ADDED_BY_PROMETHEUS = {"job", "instance"}
REASONS = {reason.value for reason in Dropped}
"""Why streams are dropped. They appear in a scrape when they have happened."""
NAMED_LABEL = re.compile(r"\$labels\.(\w+)")


def of_rules(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(name, RULES, ids=lambda rule: rule["alert"])


def parts_of(expression: promql_parser.Expr) -> Iterator[promql_parser.Expr]:
    """The expression and everything inside of it."""
    yield expression
    for name in ("expr", "lhs", "rhs", "param", "vector_selector"):
        inner = getattr(expression, name, None)
        if isinstance(inner, promql_parser.Expr):
            yield from parts_of(inner)
    for argument in getattr(expression, "args", None) or ():
        yield from parts_of(argument)


def selectors_of(rule: dict[str, Any]) -> list[promql_parser.VectorSelector]:
    parts = parts_of(promql_parser.parse(rule["expr"]))
    return [part for part in parts if isinstance(part, promql_parser.VectorSelector)]


def grouped_by(rule: dict[str, Any]) -> set[str]:
    modifiers = [getattr(part, "modifier", None) for part in parts_of(promql_parser.parse(rule["expr"]))]
    return {label for each in modifiers for label in getattr(each, "labels", None) or ()}


def samples_in(text: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found


async def drop_a_stream(service: Service, key: dict[str, str]) -> None:
    """One stream more than a watch link may have is refused, and counted."""
    submitted = await service.client.post("/api/jobs", json={"task": "later"}, headers=key)
    path = submitted.json()["watch_url"].partition("/watch/")[2]
    async with AsyncExitStack() as streams:
        statuses = [
            (
                await streams.enter_async_context(
                    service.client.stream("GET", f"/watch/{path}", headers={"Accept": "text/event-stream"})
                )
            ).status_code
            for _ in range(MOST_OF_A_WATCH_TOKEN + 1)
        ]
    assert statuses[-1] == 429


@pytest.fixture
async def answered(tmp_path: Path) -> AsyncIterator[Samples]:
    """What a server and a worker answer to a scrape, after jobs that ended in every way and a stream too many."""
    settings = {"server": {"port": 0}}
    async with await qo.connect(f"sqlite:///{tmp_path}/qo.db", settings=settings) as queue:
        worker = qo.Worker(queue)

        @worker.task("build", max_concurrent=1)
        async def build(fails: bool) -> None:
            if fails:
                raise qo.Fail("It cannot be done.")

        await queue.submit_many([qo.New(task="build", data=fails) for fails in (True, False)])
        await worker.run_until_idle()
        async with running_service(queue) as service:
            admin, viewer = await service.key(Role.ADMIN), await service.key(Role.VIEWER)
            await drop_a_stream(service, admin)
            server = await service.client.get("/metrics", headers=viewer)
            assert server.status_code == 200
            async with (
                metrics_served(lambda: worker_text(worker.numbers), host="127.0.0.1", port=0) as address,
                httpx.AsyncClient() as client,
            ):
                of_the_worker = await client.get(address)
        jobs = {scrape["job_name"] for scrape in SCRAPES}
        yield {**samples_in(server.text), **samples_in(of_the_worker.text), "up": {"job": jobs}}


async def test_every_alert_asks_for_metrics_and_labels_that_are_answered(answered: Samples) -> None:
    assert len(RULES) >= 8
    for rule in RULES:
        selectors = selectors_of(rule)
        assert selectors, f"{rule['alert']} asks for nothing"
        assert {selector.name for selector in selectors} <= set(answered), rule["alert"]
        labels = set.union(*(set(answered[selector.name or ""]) for selector in selectors))
        named = grouped_by(rule).union(NAMED_LABEL.findall(str(rule["annotations"])))
        assert named <= labels | ADDED_BY_PROMETHEUS, rule["alert"]
        for selector in selectors:
            assert selector.name is not None
            for matcher in selector.matchers.matchers:
                values = REASONS if matcher.name == "reason" else answered[selector.name][matcher.name]
                assert set(matcher.value.split("|")) <= values, f"{rule['alert']} asks for {matcher}"


@of_rules("rule")
def test_an_alert_says_for_how_long_how_bad_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    promql_parser.parse_duration(rule["for"])
    assert rule["labels"]["severity"] in ("page", "warn")
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["do"].endswith(".")


def test_the_page_names_the_alerts_that_wake_somebody() -> None:
    paged = {rule["alert"] for rule in RULES if rule["labels"]["severity"] == "page"}

    assert paged == set(re.findall(r"`(Qo\w+)`", SECTIONS["Alerts"]))


def test_the_thresholds_lie_below_the_limits_that_they_warn_of() -> None:
    thresholds = {rule["alert"]: float(rule["expr"].split()[-1]) for rule in RULES}

    assert thresholds["QoLineLong"] < load_settings({}, environ={}).queue.cap
    assert thresholds["QoStreamsNearLimit"] < MOST_STREAMS - KEPT_FOR_KEYS


def test_the_scrapes_of_the_page_give_servers_a_key_and_workers_the_ports_of_the_units() -> None:
    server, worker = SCRAPES

    assert server["authorization"] == {"credentials_file": "/etc/prometheus/qo.key"}
    assert server["static_configs"][0]["targets"] == ["127.0.0.1:8765"]
    assert worker["static_configs"][0]["targets"] == ["127.0.0.1:9101", "127.0.0.1:9102"]
