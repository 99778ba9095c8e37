"""Threads for calls that block. Python shuts its own pools down when the main thread ends, also while a worker or a
server goes on in another thread; these go on with it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class DaemonThreads(Executor):
    """At most so many threads, each started when it is first needed."""

    def __init__(self, most: int, *, name: str) -> None:
        self._most = most
        self._name = name
        self._threads: list[threading.Thread] = []
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._is_shut_down = False

    def submit(self, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        answer: Future[R] = Future()
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError(f"The threads {self._name} were shut down.")
            self._calls.put(lambda: _carry_out(answer, call, *args, **kwargs))
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
                name = f"{self._name}-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
                self._threads[-1].start()
        return answer

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Carry out the submitted calls, then end the threads. Shutting down twice is harmless."""
        with self._lock:
            if not self._is_shut_down:
                for _ in self._threads:
                    self._calls.put(None)
            self._is_shut_down = True
        if wait:
            for thread in self._threads:
                thread.join()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # a thread that waits keeps nothing alive
            self._idle.release()


async def in_thread(call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Make a call that blocks in a thread of its own, and return its answer."""
    answer: Future[R] = Future()
    thread = threading.Thread(target=_carry_out, args=(answer, call, *args), kwargs=kwargs, daemon=True)
    thread.start()
    result = await asyncio.wrap_future(answer)
    thread.join()  # it has nothing left to do but to end
    return result


def _carry_out(answer: Future[Any], call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    if not answer.set_running_or_notify_cancel():
        return  # the caller was cancelled
    try:
        result = call(*args, **kwargs)
    except BaseException as error:
        answer.set_exception(error)
    else:
        answer.set_result(result)
