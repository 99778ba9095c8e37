"""Where the tasks of one event loop ask for slots and give them back: in their own loop.

A way to another thread and back takes longer than the call, and two threads that are both busy hold each other up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from qo.runtime.gathering import Gathering
from qo.runtime.limiter_callers import Mailbox
from qo.runtime.portions import Portion, ticket_count
from qo.store.base import Store
from qo.store.values import Grant, Ticket

MOST_PER_CALL, CALLS_IN_FLIGHT = 16, 2
"""small, so that callers go on while the store is busy with others; large ones would all wait for each other"""


class Desk:
    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self.mailbox = Mailbox(loop)
        self.asking: Gathering[Ticket, Grant] = Gathering(
            store.acquire, portion=Portion(MOST_PER_CALL, counts=ticket_count), calls_in_flight=CALLS_IN_FLIGHT
        )
        self.leaving: Gathering[tuple[str, str | None], bool] = Gathering(
            store.release, portion=Portion(MOST_PER_CALL), calls_in_flight=CALLS_IN_FLIGHT
        )
        self._giving_back: set[asyncio.Task[None]] = set()

    def give_back_later(self, holder: str, token: str | None, *, otherwise: Callable[[], None]) -> None:
        """Behind what was asked here for this holder, so that nothing can be given to it afterwards; `otherwise` when
        the store does not take it or the loop ends before."""
        task = self.mailbox.loop.create_task(self._give_back(holder, token, otherwise))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _give_back(self, holder: str, token: str | None, otherwise: Callable[[], None]) -> None:
        try:
            await self.leaving.send((holder, token))
        except Exception:
            otherwise()  # whatever it was, others wait for slots that nobody uses
        except asyncio.CancelledError:
            otherwise()
            raise
