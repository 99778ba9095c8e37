"""Traces: a job is a part of the trace in which it was submitted, and its handler runs in a span that links back.

Only OpenTelemetry's API is used, and only where the program has imported it: without that, and without a provider of
spans, nothing is made and nothing is loaded.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

SYSTEM = "qo"
API = "opentelemetry.trace"
TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")

_given: ContextVar[str | None] = ContextVar("qo_trace", default=None)


def is_traceparent(text: str) -> bool:
    """Whether a text is a `traceparent` header as the W3C defines it."""
    return TRACEPARENT.fullmatch(text) is not None


@contextmanager
def submitting_in(traceparent: str | None) -> Iterator[None]:
    """What is submitted in this block belongs to this trace, such as that of an HTTP request. A text that is no
    `traceparent` is not heeded."""
    before = _given.set(traceparent if traceparent is not None and is_traceparent(traceparent) else None)
    try:
        yield
    finally:
        _given.reset(before)


def current_trace() -> str | None:
    """The trace that a submit belongs to now, as a `traceparent`."""
    given = _given.get()
    if given is not None:
        return given
    api = sys.modules.get(API)
    if api is None:
        return None
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def is_traced() -> bool:
    """Whether the program has a provider of spans."""
    api = sys.modules.get(API)
    return api is not None and not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)


@contextmanager
def handling(*, task: str, job_id: str, attempt: int, trace: str | None) -> Iterator[None]:
    """Run a handler in a span of its own, with a link to the span in which the job was submitted. Only where
    `is_traced`."""
    api = sys.modules[API]
    span = api.get_tracer(SYSTEM).start_as_current_span(
        f"process {task}",
        kind=api.SpanKind.CONSUMER,
        links=_links(api, trace),
        attributes={
            "messaging.system": SYSTEM,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": task,
            "messaging.message.id": job_id,
            "qo.attempt": attempt,
        },
        # The text of an error may have secrets, which the worker removes only from what users see.
        record_exception=False,
        set_status_on_exception=False,
    )
    with span as begun:
        try:
            yield
        except BaseException as error:
            kind = type(error).__name__
            begun.set_attribute("error.type", kind)
            begun.set_status(api.Status(api.StatusCode.ERROR, kind))
            raise


def _links(api: ModuleType, trace: str | None) -> list[Any]:
    found = None if trace is None else TRACEPARENT.fullmatch(trace)
    if found is None:
        return []
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    context = api.SpanContext(trace_id, span_id, is_remote=True, trace_flags=api.TraceFlags(flags))
    return [api.Link(context)]
