"""What runs in a worker's process: one job after the other, as the worker sends them."""

from __future__ import annotations

import contextvars
import os
import signal
import socket
import threading
from collections.abc import Coroutine
from datetime import datetime
from functools import cache
from typing import Any, TypeVar

from qo.errors import InvalidValue
from qo.store.check_values import check_advance
from qo.values import Advance, Lease
from qo.worker.context import Context, ThreadContext, current_context
from qo.worker.declared import TaskFunction
from qo.worker.processes.failures import describe, restore
from qo.worker.processes.lifeline import end_with
from qo.worker.processes.messages import (
    LENGTH_BYTES,
    Answer,
    Extend,
    Raised,
    Report,
    Returned,
    Run,
    ToProcess,
    decode_in_process,
    packed,
)
from qo.worker.processes.reference import Reference, find
from qo.worker.result import encode_in_process
from qo.worker.task import Task, define_task

T = TypeVar("T")


def main(connection_descriptor: int, lifeline_descriptor: int) -> None:
    """Run jobs until the worker closes the connection."""
    end_with(lifeline_descriptor)
    _leave_stopping_to_the_worker()
    connection = Connection(connection_descriptor)
    while (order := connection.receive()) is not None:
        assert isinstance(order, Run)
        surroundings = contextvars.copy_context()  # so that a job finds nothing of the one before it
        connection.send(surroundings.run(_run, order, connection))


def _leave_stopping_to_the_worker() -> None:
    """systemd sends SIGTERM to all processes of a unit, and the worker lets running jobs end. Not by SIG_IGN, which the
    programs that a handler starts would keep."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))


def _run(order: Run, connection: Connection) -> Returned | Raised:
    try:
        task = _task(order.handler, order.task)
        context = Context(_lease(order), order.stages, report=connection.report, extend=connection.extend)
        current_context.set(context)
        result = task.handler(*task.arguments(task.decode(order.payload), ProcessContext(context)))
        return Returned(encode_in_process(result))
    except BaseException as error:
        # A handler may raise anything, and every error ends this job, never the process.
        return Raised(describe(error))


@cache
def _task(reference: Reference, name: str) -> Task:
    found = find(reference)
    if isinstance(found, TaskFunction):
        task: Task = found.definition
        return task
    return define_task(
        found,
        name=name,
        max_concurrent=None,
        groups=(),
        stages=(),
        timeout=None,
        max_attempts=None,
        process=False,
    )


def _lease(order: Run) -> Lease:
    return Lease.of(
        order.job,
        token=order.token,
        expires_at_ms=0,  # the worker renews it
        slots=order.slots,
        payload=order.payload,
        checkpoint=order.checkpoint,
    )


class ProcessContext(ThreadContext):
    """The context of a function in a process. What it reports goes through the worker."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def state(self) -> Any:
        raise InvalidValue(
            "A function in a process has no ctx.state: what @worker.lifespan yields lives in the worker's own process. "
            "Open what the function needs in its module, once for each process."
        )

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        # `report` and `extend` block, so the coroutine gets to its end without a pause.
        try:
            work.send(None)
        except StopIteration as ended:
            answer: T = ended.value
            return answer
        raise AssertionError("a report of a process waits for something else than its connection")


class Connection:
    """The way to the worker. May be used from any thread of the handler."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)
        self._lock = threading.Lock()

    def send(self, message: Returned | Raised) -> None:
        self._socket.sendall(packed(message))

    def receive(self) -> ToProcess | None:
        """Return the next message; None when the worker has closed the connection."""
        head = self._read(LENGTH_BYTES)
        if not head:
            return None
        message: ToProcess = decode_in_process(self._read(int.from_bytes(head, "big")))
        return message

    async def report(self, advance: Advance) -> None:
        check_advance(advance)  # here: the worker could not even read values of other types
        self._ask(Report(advance))

    async def extend(self, milliseconds: int) -> datetime:
        answer = self._ask(Extend(milliseconds))
        assert answer.expires_at is not None
        return answer.expires_at

    def _ask(self, question: Report | Extend) -> Answer:
        with self._lock:
            self._socket.sendall(packed(question))
            answer = self.receive()
        assert isinstance(answer, Answer)
        if answer.failure is not None:
            raise restore(answer.failure)
        return answer

    def _read(self, length: int) -> bytes:
        parts = []
        while length:
            part = self._socket.recv(min(length, 1 << 20))
            if not part:
                return b""  # the worker is gone
            parts.append(part)
            length -= len(part)
        return b"".join(parts)
