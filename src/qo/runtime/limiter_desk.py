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
    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop, *, unheard: Callable[[str], None]) -> None:
        """`unheard` is called with the holder of a request when the store has answered it and nobody waits for that."""
        self.mailbox = Mailbox(loop)
        self.asking: Gathering[Ticket, Grant] = Gathering(
            store.acquire,
            unheard=lambda ticket: unheard(ticket.holder),
            portion=Portion(MOST_PER_CALL, counts=ticket_count),
            calls_in_flight=CALLS_IN_FLIGHT,
        )
        self.leaving: Gathering[tuple[str, str | None], bool] = Gathering(
            store.release, portion=Portion(MOST_PER_CALL), calls_in_flight=CALLS_IN_FLIGHT
        )
