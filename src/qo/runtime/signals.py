"""SIGTERM and SIGINT for the workers of a process: the first is a request, the second an order."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

log = logging.getLogger("qo.worker")

STOPPING = (signal.SIGTERM, signal.SIGINT)


class Stoppable(Protocol):
    def stop(self) -> None: ...
    def stop_now(self) -> None: ...


_workers: list[Stoppable] = []
"""all that run in the main thread's event loop; a signal is for every one of them"""
_signals_seen = 0


@contextmanager
def heeding_signals(worker: Stoppable) -> Iterator[None]:
    """Stop the worker on a signal, as long as the block runs. Outside of the main thread signals are not ours."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    global _signals_seen
    loop = asyncio.get_running_loop()
    if not _workers:
        _signals_seen = 0
        for number in STOPPING:
            loop.add_signal_handler(number, _heed, number)
    _workers.append(worker)
    try:
        yield
    finally:
        _workers.remove(worker)
        if not _workers:
            for number in STOPPING:
                loop.remove_signal_handler(number)


def _heed(number: int) -> None:
    global _signals_seen
    _signals_seen += 1
    name = signal.Signals(number).name
    if _signals_seen == 1:
        log.warning("%s: stopping after what runs has ended; a second signal stops at once", name)
    else:
        log.warning("%s again: stopping at once, what runs goes back in line", name)
    for worker in tuple(_workers):
        if _signals_seen == 1:
            worker.stop()
        else:
            worker.stop_now()
