"""What a scrape says, read with the parser of Prometheus' own library."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from qo.service.metrics import QueueMetrics

Numbers = dict[tuple[str, ...], float]
COUNTERS = ("_total", "_count", "_sum", "_bucket")


def numbers_in(text: bytes) -> Numbers:
    """By name and the values of its labels, in the order of their names."""
    numbers: Numbers = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = (sample.name, *(value for _, value in sorted(sample.labels.items())))
            assert key not in numbers, f"{key} is there twice"
            numbers[key] = sample.value
    return numbers


async def scrape(metrics: QueueMetrics) -> Numbers:
    return numbers_in(await metrics.text())


def counters_in(numbers: Numbers) -> Numbers:
    return {key: value for key, value in numbers.items() if key[0].endswith(COUNTERS)}


def named(numbers: Numbers, name: str) -> dict[tuple[str, ...], float]:
    """The samples of one name, by the values of their labels."""
    return {labels: value for (each, *rest), value in numbers.items() if each == name for labels in [tuple(rest)]}


def assert_none_went_down(before: Numbers, after: Numbers) -> None:
    for key, value in counters_in(before).items():
        assert after.get(key, -1) >= value, f"{key} went from {value} to {after.get(key)}"
