"""What the runtime takes from the system it runs on: the time, chance, new ids, and threads.

A queue hands its `System` to everything that works for it. A simulation gives its own, with simulated time, seeded
chance and tasks instead of threads, and runs the same code.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from qo import chance, ids
from qo.clock import Clock, ReadClock, system_ms
from qo.job import moment
from qo.loops.background import Background, LoopThread, Work
from qo.threads import in_thread

T = TypeVar("T")


class CallInThread(Protocol):
    def __call__(self, call: Callable[..., T], /, *args: Any) -> Awaitable[T]: ...


class System(msgspec.Struct, frozen=True, kw_only=True):
    clock: ReadClock = system_ms
    """Returns whole milliseconds since 1970. Only the store's clock decides; this one is for words and estimates."""
    monotonic: Callable[[], float] = time.monotonic
    """Returns seconds that nobody sets. May be called from any thread."""
    draw: Callable[[], float] = chance.draw
    """Returns a random number from 0 to below 1."""
    new_id: Callable[[], str] = ids.new_id
    """Returns an id that nobody has."""
    new_secret: Callable[[], bytes] = ids.new_secret
    """Returns bytes that nobody can guess."""
    start_background: Callable[[Work, str], Background] = LoopThread
    """Starts work, under a name, that goes on while the caller's event loop is blocked."""
    call_in_thread: CallInThread = in_thread
    """Makes a call that takes long beside the event loop, and returns its answer."""

    @property
    def test_clock(self) -> Clock | None:
        """The clock that a test sets, which is the store's too. None where time passes by itself."""
        return self.clock if isinstance(self.clock, Clock) else None

    def now(self) -> datetime:
        """This machine's time, for words such as "tomorrow"."""
        return moment(self.clock())

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.draw()


SYSTEM = System()
