"""SIGTERM and SIGINT for the workers of a process: the first stops them gracefully, the second at once."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

from qo.forking import when_forked

log = logging.getLogger("qo.worker")

STOPPING = (signal.SIGTERM, signal.SIGINT)


class Stoppable(Protocol):
    """A worker. Both methods may be called from any thread."""

    def stop(self) -> None: ...
    def stop_now(self) -> None: ...


class _Signals:
    """A signal stops every worker that runs in this process. When the last one ends, the former handlers are back."""

    def __init__(self) -> None:
        self.workers: list[Stoppable] = []
        self._before: dict[signal.Signals, Any] = {}
        self._seen = 0
        when_forked(self, _Signals._begin_anew)

    def _begin_anew(self) -> None:
        # No worker runs in a forked process, and the handler that forked it may want to end it by a signal.
        for worker in tuple(self.workers):
            self.remove(worker)

    def add(self, worker: Stoppable) -> None:
        if not self.workers:
            self._seen = 0
            self._before = {number: signal.signal(number, self._heed) for number in STOPPING}
        self.workers.append(worker)

    def remove(self, worker: Stoppable) -> None:
        self.workers.remove(worker)
        if not self.workers:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def _heed(self, number: int, frame: FrameType | None) -> None:
        self._seen += 1
        name = signal.Signals(number).name
        if self._seen == 1:
            log.warning("%s: stopping when what runs has ended; a second signal stops at once", name)
        else:
            log.warning("%s again: stopping at once, what runs goes back in line", name)
        for worker in tuple(self.workers):
            if self._seen == 1:
                worker.stop()
            else:
                worker.stop_now()


_signals = _Signals()


@contextmanager
def heeding_signals(worker: Stoppable) -> Iterator[None]:
    """Stop the worker on a signal, as long as the block runs. Does nothing outside of the main thread, which alone gets
    signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _signals.add(worker)
    try:
        yield
    finally:
        _signals.remove(worker)
