"""The dashboard for Grafana asks only for metrics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from qo.queue.queue import Queue
from qo.service.metrics import QueueMetrics, StreamCounts
from qo.service.metrics.exposition import worker_text
from qo.worker.worker import Worker
from tests.conformance.suite.harness import limit, start, succeed

DASHBOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "docs" / "grafana" / "qo.json").read_text(encoding="utf-8")
)
METRIC = re.compile(r"\bqo_\w+")
LABELS = re.compile(r"(?:by|without) \(([^)]*)\)|\{([^}]*)\}")
NAME_OF_LABEL = re.compile(r"[a-z_]+(?==|,|$|\s)")


def expressions() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def samples_in(text: bytes) -> dict[str, set[str]]:
    """The labels of each sample, by its name."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.fixture
async def exposed(queue: Queue) -> dict[str, set[str]]:
    """Everything that a queue and a worker expose."""
    await limit(queue.store, "gpu", 1)
    await succeed(queue.store, await start(queue.store, "a", groups=("gpu",)))
    metrics = QueueMetrics(queue, streams=lambda: StreamCounts(dropped={"slow": 1}))
    return {**samples_in(await metrics.text()), **samples_in(worker_text(Worker(queue).numbers))}


async def test_every_metric_of_the_dashboard_is_exposed_with_its_labels(exposed: dict[str, set[str]]) -> None:
    assert expressions()
    for expression in expressions():
        metrics = METRIC.findall(expression)
        assert metrics, f"{expression} names no metric"
        for metric in metrics:
            assert metric in exposed, f"{expression} asks for {metric}"
            for groups in LABELS.findall(expression):
                named = {label for text in groups for label in NAME_OF_LABEL.findall(text)}
                assert named <= exposed[metric], f"{expression} asks for labels {named} of {metric}"


async def test_every_metric_of_a_queue_is_on_the_dashboard(exposed: dict[str, set[str]]) -> None:
    shown = {metric for expression in expressions() for metric in METRIC.findall(expression)}
    families = {re.sub("_(sum|count|bucket)$", "", name) for name in exposed}

    assert families - {re.sub("_(sum|count|bucket)$", "", name) for name in shown} == {"qo_worker_jobs_ended_total"}


def test_every_panel_has_a_title_and_a_place_of_its_own() -> None:
    panels = DASHBOARD["panels"]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}

    assert all(panel["title"] and panel["description"] for panel in panels)
    assert len(places) == len({panel["id"] for panel in panels}) == len(panels)
