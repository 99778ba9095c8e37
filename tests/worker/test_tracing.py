"""Traces: from a submit into the handler, whose span links back."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import qo
from qo.tracing import current_trace, is_traceparent, submitting_in

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What the provider of a program gets. A program sets one for good; other tests run in this process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter


def processed(spans: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name.startswith("process ")]


async def test_the_span_of_a_handler_links_to_the_span_of_the_submit(spans: InMemorySpanExporter) -> None:
    async with await qo.connect("memory://") as queue:
        worker = qo.Worker(queue)

        @worker.task("build")
        async def build(data: object) -> None:
            with trace.get_tracer("program").start_as_current_span("inside"):
                pass

        with trace.get_tracer("program").start_as_current_span("request") as request:
            job = await queue.submit("build")
        await worker.run_until_idle()

    (handled,) = processed(spans)
    (link,) = handled.links
    assert link.context.span_id == request.get_span_context().span_id
    assert link.context.trace_id == request.get_span_context().trace_id
    assert (handled.kind, handled.name) == (trace.SpanKind.CONSUMER, "process build")
    assert handled.attributes is not None
    assert dict(handled.attributes) == {
        "messaging.system": "qo",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "build",
        "messaging.message.id": job.id,
        "qo.attempt": 1,
    }
    (inside,) = [span for span in spans.get_finished_spans() if span.name == "inside"]
    assert inside.parent is not None
    assert handled.context is not None
    assert inside.parent.span_id == handled.context.span_id


async def test_a_handler_in_a_thread_runs_in_its_span_too(spans: InMemorySpanExporter) -> None:
    async with await qo.connect("memory://") as queue:
        worker = qo.Worker(queue)
        seen = []

        @worker.task("build")
        def build(data: object) -> None:
            seen.append(trace.get_current_span().get_span_context().span_id)

        await queue.submit("build")
        await worker.run_until_idle()

    (handled,) = processed(spans)
    assert handled.context is not None
    assert seen == [handled.context.span_id]
    assert handled.links == ()


async def test_a_failure_is_named_and_its_text_is_not_kept(spans: InMemorySpanExporter) -> None:
    async with await qo.connect("memory://") as queue:
        worker = qo.Worker(queue)

        @worker.task("build")
        async def build(data: object) -> None:
            raise ValueError("password=hunter2")

        await queue.submit("build", max_attempts=1)
        await worker.run_until_idle()

    (handled,) = processed(spans)
    assert handled.status.status_code is trace.StatusCode.ERROR
    assert handled.attributes is not None
    assert handled.attributes["error.type"] == "ValueError"
    assert "hunter2" not in handled.to_json()


async def test_a_trace_that_was_given_counts_before_the_programs_own(spans: InMemorySpanExporter) -> None:
    async with await qo.connect("memory://") as queue:
        with trace.get_tracer("program").start_as_current_span("request"), submitting_in(TRACEPARENT):
            job = await queue.submit("build")

    assert job.trace == TRACEPARENT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        TRACEPARENT.upper(),
        TRACEPARENT + "-00",
        "01" + TRACEPARENT[2:],
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
    ],
)
def test_a_text_that_is_no_traceparent_is_not_heeded(text: str) -> None:
    assert not is_traceparent(text)
    with submitting_in(text):
        assert current_trace() is None


def test_without_opentelemetry_nothing_is_loaded() -> None:
    program = (
        "import sys, asyncio, qo\n"
        "async def main():\n"
        "    async with await qo.connect('memory://') as queue:\n"
        "        worker = qo.Worker(queue)\n"
        "        @worker.task('build')\n"
        "        async def build(data): pass\n"
        "        job = await queue.submit('build')\n"
        "        await worker.run_until_idle()\n"
        "        assert (await queue.get(job.id)).trace is None\n"
        "asyncio.run(main())\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
