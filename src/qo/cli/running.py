"""From a command to its queue and back: connect, do it, close."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from qo.cli.logs import show_warnings
from qo.cli.options import Target
from qo.runtime.connecting import connect
from qo.runtime.queue import Queue

T = TypeVar("T")


def on_queue(target: Target, work: Callable[[Queue], Awaitable[T]], *, settings: Mapping[str, Any] | None = None) -> T:
    """What `work` answers for the queue that the call is for. A `QoError` is left to `main`, which says it."""
    show_warnings(sys.stderr, as_json=target.as_json)

    async def connected() -> T:
        async with await connect(settings={**(settings or {}), **target.overrides()}) as queue:
            return await work(queue)

    return asyncio.run(connected())
