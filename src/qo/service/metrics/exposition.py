"""Numbers as Prometheus' text, through its own library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from qo.errors import SettingsError
from qo.job import ENDED
from qo.policy.figures import HIGHEST_WAIT_BUCKET_SECONDS, PROMISE_KEPT, PROMISE_MISSED, WAIT_BUCKETS_SECONDS
from qo.service.metrics.group_labels import group_of
from qo.service.metrics.numbers import FigureSum, QueueNumbers
from qo.worker.numbers import WorkerNumbers

try:
    from prometheus_client import generate_latest
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        SummaryMetricFamily,
    )
    from prometheus_client.registry import Collector
except ImportError:
    raise SettingsError(
        "Metrics need the library of Prometheus; install it with: pip install 'qo-queue[server]'."
    ) from None

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily | SummaryMetricFamily

NOTHING = FigureSum()
SAME_ON_ALL = "Every server reports the same total: take the maximum of all servers, not their sum."


def queue_text(numbers: QueueNumbers) -> bytes:
    """The exposition of a queue's numbers."""
    return _text([*_jobs(numbers), *_concurrency(numbers), *_streams(numbers), *_history(numbers)])


def worker_text(numbers: WorkerNumbers) -> bytes:
    """The exposition of one worker's numbers."""
    ended = CounterMetricFamily(
        "qo_worker_jobs_ended",
        "Runs that have ended since the worker started, by the state that the job went into. `scheduled` will be "
        "repeated, `queued` was handed back, of `lost` the lease was given away.",
        labels=["state"],
    )
    for state, count in numbers.ended.items():
        ended.add_metric([state], count)
    return _text(
        [
            GaugeMetricFamily("qo_worker_jobs_running", "Jobs that this worker runs.", value=numbers.running),
            GaugeMetricFamily("qo_worker_places_free", "How many more jobs it may run now.", value=numbers.free),
            ended,
        ]
    )


class _Collected(Collector):
    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Sequence[Family]:
        return self._families


def _text(families: Sequence[Family]) -> bytes:
    text: bytes = generate_latest(_Collected(families))
    return text


def _jobs(numbers: QueueNumbers) -> Iterable[Family]:
    figures = numbers.figures
    yield GaugeMetricFamily("qo_jobs_queued", "Jobs in line.", value=numbers.queued)
    yield GaugeMetricFamily("qo_jobs_running", "Jobs that live workers run.", value=numbers.running)
    submitted = figures.get("submitted", NOTHING)
    yield CounterMetricFamily("qo_jobs_submitted", f"Jobs submitted. {SAME_ON_ALL}", value=submitted.count)
    ended = CounterMetricFamily(
        "qo_jobs_ended",
        f"Jobs that ended, by state. `scheduled` counts runs that are repeated. {SAME_ON_ALL}",
        labels=["state"],
    )
    ends = {**{str(state): NOTHING for state in ENDED}, **_by_rest("ended", figures)}
    for state, found in sorted(ends.items()):
        ended.add_metric([state], found.count)
    yield ended
    wait = SummaryMetricFamily(
        "qo_job_wait_seconds", "How long jobs were in line before they started.", labels=["priority"], unit="seconds"
    )
    for priority, found in sorted(_by_rest("wait", figures).items(), key=lambda item: int(item[0])):
        wait.add_metric([priority], found.count, found.highest_ms / 1000)
    yield wait
    ran = figures.get("ended:succeeded", NOTHING)
    yield SummaryMetricFamily(
        "qo_job_run_seconds",
        "How long the jobs that succeeded ran.",
        count_value=ran.count,
        sum_value=ran.highest_ms / 1000,
        unit="seconds",
    )
    turns = figures.get("turns", NOTHING)
    yield CounterMetricFamily("qo_turns", "Turns taken by jobs and callers that were passed too often.", turns.count)
    estimates = CounterMetricFamily(
        "qo_estimates", "Starts of jobs with an estimate, by whether its first range was kept.", labels=["inside"]
    )
    for inside, name in (("true", PROMISE_KEPT), ("false", PROMISE_MISSED)):
        estimates.add_metric([inside], figures.get(name, NOTHING).count)
    yield estimates


def _concurrency(numbers: QueueNumbers) -> Iterable[Family]:
    active = GaugeMetricFamily(
        "qo_concurrency_slots_active", "Slots that are held, in groups that have a limit.", labels=["group"]
    )
    limit = GaugeMetricFamily("qo_concurrency_slots_limit", "Slots there are.", labels=["group"])
    acquisition = CounterMetricFamily(
        "qo_concurrency_acquisition",
        "Slots taken, and jobs and callers put aside because the group had no room.",
        labels=["group", "result"],
    )
    wait = HistogramMetricFamily(
        "qo_concurrency_wait_seconds", "How long those that took a slot had waited.", labels=["group"], unit="seconds"
    )
    for label, slots in sorted(numbers.slots.items()):
        active.add_metric([label], slots.active)
        limit.add_metric([label], slots.limit)
    figures = numbers.figures
    with_figures = {group for name in figures if (group := group_of(name)) is not None}
    for label in sorted(with_figures.union(numbers.slots)):
        by_seconds = {seconds: figures.get(f"acquired:{label}:{seconds}", NOTHING) for seconds in WAIT_BUCKETS_SECONDS}
        acquisition.add_metric([label, "acquired"], sum(found.count for found in by_seconds.values()))
        acquisition.add_metric([label, "rejected"], figures.get(f"rejected:{label}", NOTHING).count)
        waited_ms = sum(found.highest_ms for found in by_seconds.values())
        wait.add_metric([label], _buckets(by_seconds), waited_ms / 1000)
    return active, limit, acquisition, wait


def _buckets(by_seconds: Mapping[int, FigureSum]) -> list[tuple[str, int]]:
    """Each bucket with all shorter waits. The store's highest one has all longer waits too, so it has no bound."""
    buckets, count = [], 0
    for seconds, found in by_seconds.items():
        count += found.count
        buckets.append(("+Inf" if seconds == HIGHEST_WAIT_BUCKET_SECONDS else f"{seconds}.0", count))
    return buckets


def _streams(numbers: QueueNumbers) -> Iterable[Family]:
    yield GaugeMetricFamily("qo_streams_open", "Event streams that this server has open.", value=numbers.streams.open)
    dropped = CounterMetricFamily(
        "qo_streams_dropped", "Event streams that this server ended by itself, by reason.", labels=["reason"]
    )
    for reason, count in sorted(numbers.streams.dropped.items()):
        dropped.add_metric([reason], count)
    yield dropped


def _history(numbers: QueueNumbers) -> Iterable[Family]:
    outbox = numbers.outbox
    if outbox is None:
        return
    yield GaugeMetricFamily(
        "qo_history_outbox_entries", "Records that wait for the history's recorder.", value=outbox.length
    )
    yield GaugeMetricFamily(
        "qo_history_lag_seconds", "How long the oldest of them has waited.", value=outbox.age_seconds, unit="seconds"
    )
    yield CounterMetricFamily(
        "qo_history_dropped", f"Records that a full outbox has dropped. {SAME_ON_ALL}", value=outbox.dropped
    )


def _by_rest(what: str, figures: Mapping[str, FigureSum]) -> dict[str, FigureSum]:
    """The figures `what:<rest>`, by the rest."""
    prefix = f"{what}:"
    return {name.removeprefix(prefix): found for name, found in figures.items() if name.startswith(prefix)}
