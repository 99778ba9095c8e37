"""From a command to its queue and back: connect, do it, close."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from qo.cli.logs import show_warnings
from qo.cli.options import Target
from qo.runtime.connecting import connect_when_there, open_queue
from qo.runtime.queue import Queue
from qo.runtime.signals import heeding_signals
from qo.runtime.timing import unless
from qo.settings import load_settings

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
    """What `work` answers for the queue that the call is for. A `QoError` is left to `main`, which says it.

    `creates`: where there is no store yet, make it.
    """
    show_warnings(sys.stderr, as_json=target.as_json)

    async def connected() -> T:
        chosen = load_settings({**(settings or {}), **target.overrides()})
        async with await open_queue(chosen, create=creates) as queue:
            return await work(queue)

    return asyncio.run(connected())


def reading(target: Target, work: Callable[[Queue], Awaitable[T]]) -> T:
    """The same for what only reads; people are told of which store that is."""

    async def told(queue: Queue) -> T:
        if not target.as_json:
            click.echo(f"({queue.store.location})", err=True)
        return await work(queue)

    return on_queue(target, told)


def on_queue_when_there(
    target: Target, work: Callable[[Queue], Awaitable[None]], *, settings: Mapping[str, Any] | None = None
) -> bool:
    """The same for commands that work until they are stopped: a store that is away is waited for. False: a signal came
    before it was there, and nothing was done."""
    show_warnings(sys.stderr, as_json=target.as_json)

    async def connected() -> bool:
        waiting = _Waiting()
        with heeding_signals(waiting):
            queue = await waiting.for_(connect_when_there({**(settings or {}), **target.overrides()}))
        if queue is None:
            return False
        async with queue:
            if not waiting.stopped:  # also not in the very moment in which the store was there
                await work(queue)
        return not waiting.stopped

    return asyncio.run(connected())


class _Waiting:
    """A signal ends it, as it would end a worker."""

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
    """The same for the bucket that the call's url names."""
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
