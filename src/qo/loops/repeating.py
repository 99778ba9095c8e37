"""A step that is repeated in the background, whatever goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from qo.loops.trouble import Trouble


async def repeat(
    step: Callable[[], Awaitable[object]],
    *,
    pause: Callable[[], float],
    trouble: Trouble,
    retry_seconds: float | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Call `step` until cancelled, each time after `pause()` seconds.

    An error, of whatever class, is logged once (`trouble`) and never ends the loop: the next step may succeed. After
    an error the pause is `retry_seconds`, if they are given.
    """
    pause_seconds = pause()
    while True:
        await sleep(pause_seconds)
        try:
            await step()
        except Exception as error:
            trouble.tell(error)
            pause_seconds = pause() if retry_seconds is None else retry_seconds
        else:
            trouble.over()
            pause_seconds = pause()
