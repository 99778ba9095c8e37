"""The end of a worker's run: what runs ends within the grace period, and the rest goes back to its place in line."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from qo.worker.exchange import Exchange
from qo.worker.execution import Interruption
from qo.worker.places import Places

log = logging.getLogger("qo.worker")

STOP_PATIENCE_SECONDS = 1.0
"""How long handlers may go on after the grace period, before they are given up."""
HAND_BACK_SECONDS = 10.0
"""How long a worker that stops tries to send its last outcomes."""


@asynccontextmanager
async def drained(places: Places, exchange: Exchange, *, grace_seconds: float) -> AsyncIterator[None]:
    """At the end of the block, bring the worker's jobs to an end. After a cancellation there is no grace period."""
    try:
        yield
    except asyncio.CancelledError:
        places.stop_now()
        raise
    finally:
        places.stop()
        await exchange.end()
        await asyncio.gather(*places.admitting.values(), return_exceptions=True)
        await _let_handlers_end(places, exchange, grace_seconds)
        await _hand_back_the_rest(places, exchange)


async def _let_handlers_end(places: Places, exchange: Exchange, grace_seconds: float) -> None:
    end_of_grace = asyncio.get_running_loop().call_later(grace_seconds, places.stop_now)
    while places.running and not places.grace_is_over:
        await exchange.next()
        if places.running:
            await exchange.wait()
    end_of_grace.cancel()


async def _hand_back_the_rest(places: Places, exchange: Exchange) -> None:
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + HAND_BACK_SECONDS
    for execution in tuple(places.running.values()):
        execution.interrupt(Interruption.STOPPED, patience_seconds=STOP_PATIENCE_SECONDS)
    while (places.running or exchange.is_wanted()) and loop.time() < give_up_at:
        await exchange.next()
        if places.running:
            await exchange.wait()
    if places.outcomes:
        log.error("%d outcomes could not be stored; those jobs run again when their leases end", len(places.outcomes))
