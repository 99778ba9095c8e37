"""Every metric: what a server, a worker and a limiter show to Prometheus."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from qo.limits.metrics import BY_GROUP, OF_ALL
from qo.service.metrics.exposition import queue_text, worker_text
from qo.service.metrics.numbers import FigureSum, QueueNumbers, Slots, StreamCounts
from qo.worker.numbers import WorkerNumbers, no_ends
from tools.site.reference.text import code, paragraphs, table

OF_QUEUE = """\
`/metrics` of `qo serve` and `qo up`. The numbers are the store's, so every server reports the same totals: in a query
take `max` over servers, not `sum`. Only `qo_streams_*` are each server's own. Groups with a reserved prefix are summed
under their kind (`group="user"`), so a million users are not a million series."""
OF_WORKER = "`/metrics` of the port that `qo worker --metrics-port` opens, for this one worker."
OF_LIMITER = "What `limiter.collector()` gives a registry of `prometheus_client`, for one limiter of one process."


def page() -> str:
    heads = ["series", "kind", "labels", "meaning"]
    limiter = [
        (code(each.name), each.kind, code("group") if each in BY_GROUP else "", each.help)
        for each in (*BY_GROUP, *OF_ALL)
    ]
    return paragraphs(
        [
            "# Metrics",
            "## Of the queue",
            OF_QUEUE,
            table(heads, families(queue_text(_numbers()))),
            "## Of a worker",
            OF_WORKER,
            table(heads, families(worker_text(WorkerNumbers(running=1, free=1, ended=no_ends())))),
            "## Of a limiter",
            OF_LIMITER,
            table(heads, limiter),
        ]
    )


def families(exposition: bytes) -> list[tuple[str, str, str, str]]:
    rows = []
    for family in text_string_to_metric_families(exposition.decode()):
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        name = f"{family.name}_total" if family.type == "counter" else family.name
        rows.append((code(name), family.type, ", ".join(map(code, labels)), family.documentation))
    return rows


def _numbers() -> QueueNumbers:
    """One of everything, so that every label is there."""
    figures = {name: FigureSum() for name in ("wait:50", "acquired:gpu:1", "rejected:gpu")}
    streams = StreamCounts(open=1, dropped={"slow": 1})
    return QueueNumbers(queued=1, running=1, figures=figures, slots={"gpu": Slots(active=1, limit=1)}, streams=streams)
