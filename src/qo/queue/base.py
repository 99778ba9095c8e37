"""The state that every part of a queue uses: its store, its settings, its system and the event loop it belongs to."""

from __future__ import annotations

import asyncio

from qo.errors import WrongEventLoop
from qo.loops.system import System
from qo.settings import Settings
from qo.store.contract import Store


class QueueBase:
    """The base of the parts of `Queue`, which sets these attributes."""

    store: Store
    settings: Settings
    system: System
    _loop: asyncio.AbstractEventLoop | None

    def check_loop(self) -> None:
        """Raises `WrongEventLoop` outside the event loop in which the queue was first used.

        The background tasks and pending calls belong to that loop: in another one, their answers would never arrive.
        """
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if self._loop is not loop:
            which = "has ended" if self._loop.is_closed() else "is another one"
            raise WrongEventLoop(
                f"This queue belongs to the event loop in which it was first used, and that {which}; connect again in "
                "each event loop (each asyncio.run), or use qo.sync, which serves all threads."
            )

    @property
    def store_here(self) -> Store:
        """The store, for a call in the queue's own event loop."""
        self.check_loop()
        return self.store
