"""How a command uses its queue: connect, do the work, close."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from qo.cli.logs import show_warnings
from qo.cli.options import Target
from qo.cli.terminal import note
from qo.loops.timing import unless
from qo.queue.connect import connect_when_there, open_queue
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.worker.signals import heeding_signals

if TYPE_CHECKING:
    from qo.store.bucket import BucketSlots

T = TypeVar("T")


def on_queue(
    target: Target,
    work: Callable[[Queue], Awaitable[T]],
    *,
    creates: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> T:
    """Run `work` on the queue that the call names, and return its result. `main` prints a `QoError`.

    With `creates`, a store that does not exist yet is made.
    """
    show_warnings(sys.stderr, as_json=target.as_json)

    async def connected() -> T:
        chosen = load_settings({**(settings or {}), **target.overrides()})
        async with await open_queue(chosen, create=creates) as queue:
            return await work(queue)

    return asyncio.run(connected())


def reading(target: Target, work: Callable[[Queue], Awaitable[T]]) -> T:
    """`on_queue` for work that only reads. Prints which store it read, except with --json."""

    async def located(queue: Queue) -> T:
        if not target.as_json:
            note(f"({queue.store.location})")
        return await work(queue)

    return on_queue(target, located)


def on_queue_when_there(
    target: Target,
    work: Callable[[Queue], Awaitable[None]],
    *,
    settings: Mapping[str, Any] | None = None,
    timeout_seconds: float | None = None,
) -> bool:
    """`on_queue` for commands that run until they are stopped: it waits for a store that is away. Later calls wait
    for it `timeout_seconds`, or as long as the store's own timeout.

    Returns False when a signal came before the store could be reached, and nothing was done.
    """
    show_warnings(sys.stderr, as_json=target.as_json)

    async def connected() -> bool:
        waiting = _Waiting()
        with heeding_signals(waiting):
            chosen = {**(settings or {}), **target.overrides()}
            queue = await waiting.for_(connect_when_there(chosen, timeout_seconds=timeout_seconds))
        if queue is None:
            return False
        async with queue:
            if not waiting.stopped:  # a signal may come in the moment in which the store is reached
                await work(queue)
        return not waiting.stopped

    return asyncio.run(connected())


class _Waiting:
    """A wait for the store, which a signal ends as it would end a worker."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self.stopped = False

    async def for_(self, connecting: Coroutine[Any, Any, Queue]) -> Queue | None:
        return await unless(connecting, stopped=lambda: self.stopped, changed=self._changed)

    def stop(self) -> None:
        self.stopped = True
        self._loop.call_soon_threadsafe(self._changed.set)

    stop_now = stop


def on_bucket(target: Target, work: Callable[[BucketSlots], Awaitable[T]]) -> T:
    """Run `work` on the bucket that the call's url names, and return its result."""
    if target.namespace is not None:
        raise click.UsageError(
            "A bucket has no namespaces; give --url a prefix instead, as in s3://bucket/prefix.",
            click.get_current_context(),
        )
    from qo.store.bucket import BucketSlots

    show_warnings(sys.stderr, as_json=target.as_json)

    async def opened() -> T:
        assert target.url is not None
        slots = await BucketSlots.open(target.url)
        try:
            return await work(slots)
        finally:
            await slots.close()

    return asyncio.run(opened())
