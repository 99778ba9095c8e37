"""The calls that one event loop makes to the store for the callers of a limiter.

Each loop makes its own, because a way to another thread and back takes longer than the call, and two threads that are
both busy hold each other up. Threads have no loop; the background thread's loop makes their calls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from qo.errors import QoError, StoreUnavailable
from qo.limits.on_store.requests import Request, Requests, State
from qo.limits.on_store.waiters import CallQueue
from qo.loops.gathering import Gathering
from qo.loops.portions import Portion, ticket_count
from qo.loops.trouble import Trouble
from qo.store.contract import Store

log = logging.getLogger("qo.limiter")

MOST_PER_CALL, CALLS_IN_FLIGHT = 16, 2
"""Small, so that callers go on while the store serves others. In large calls all would wait for each other."""
TRY_AGAIN_SECONDS = 1.0


class Background(Protocol):
    """What the calls need of the background thread."""

    async def limits_are_set(self) -> None:
        """Returns when the store has the limiter's limits."""

    def give_back_if_open(self, holder: str, token: str | None) -> bool:
        """Without a token, all that the holder has. False: the limiter has been closed."""
        ...

    def watch(self, blocked: list[Request]) -> bool:
        """Renew and listen from now on, and look up what these requests wait for. False: the limiter was closed."""
        ...


class StoreCalls:
    """Calls that come together go to the store as one."""

    def __init__(self, store: Store, requests: Requests, background: Background) -> None:
        """To be made in the loop whose calls these are."""
        self.queue = CallQueue(asyncio.get_running_loop())
        self.asking: Gathering[Request, State] = Gathering(
            self._ask,
            portion=Portion(MOST_PER_CALL, counts=lambda request: ticket_count(request.ticket)),
            calls_in_flight=CALLS_IN_FLIGHT,
        )
        self.releasing: Gathering[tuple[str, str | None], bool] = Gathering(
            self._release, portion=Portion(MOST_PER_CALL), calls_in_flight=CALLS_IN_FLIGHT
        )
        self._store = store
        self._requests = requests
        self._background = background
        self._trouble = Trouble("slots cannot be asked for now", log)

    async def _ask(self, requests: Sequence[Request]) -> list[State]:
        # Never for a request that has ended: its slots have been given back, and nobody would do so again.
        asking = [request for request in dict.fromkeys(requests) if request.is_open]
        if asking:
            try:
                await self._ask_store(asking)
                self._trouble.over()
            except Exception as error:
                # Whatever it was, the callers raise it.
                self._ask_failed(asking, error)
            except asyncio.CancelledError:
                # This loop ends. The store may take this call after what the callers have given back.
                for request in asking:
                    if request.state is not State.GRANTED:
                        self._background.give_back_if_open(request.holder, None)
                raise
        return [request.state for request in requests]

    async def _ask_store(self, asking: list[Request]) -> None:
        await self._background.limits_are_set()
        grants = await self._store.acquire([request.ticket for request in asking])
        for request, grant in zip(asking, grants, strict=True):
            if not self._requests.answer(request, grant):
                # The request ended meanwhile, and what its caller gave back may have reached the store before this.
                self._give_back(request.holder, grant.token)
        blocked = [each for each in asking if each.state is State.WAITING and each.blocked_by is None]
        if not self._background.watch(blocked):
            for request in blocked:
                if self._requests.refuse(request, closed()):
                    self._give_back(request.holder, None)

    def _ask_failed(self, asking: list[Request], error: Exception) -> None:
        for request in asking:
            if request.state is State.WAITING and isinstance(error, QoError):
                self._trouble.tell(error)
                self.queue.loop.call_later(TRY_AGAIN_SECONDS, self.asking.add, request)
            else:
                # The store may have taken the call although it failed, and after what the caller has given back.
                self._requests.refuse(request, error)
                if request.state is not State.GRANTED:
                    self._give_back(request.holder, None)

    async def _release(self, holders: Sequence[tuple[str, str | None]]) -> Sequence[bool]:
        return await self._store.release(holders)

    def _give_back(self, holder: str, token: str | None) -> None:
        # The background thread's loop outlives that of the caller. But a closed limiter is not opened again for this.
        if not self._background.give_back_if_open(holder, token):
            released = self.releasing.add((holder, token))
            released.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody waits for it


def closed() -> StoreUnavailable:
    return StoreUnavailable("The limiter was closed while this caller waited; make another one.")
