"""The network between one process and the store: it delays requests and replies, and loses some.

A lost request never reaches the store. After a lost reply the step has happened, and the caller does not know. In both
cases the caller gets StoreUnavailable. On each connection requests arrive in the order in which they were sent, as the
contract of a store promises (`order`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextvars import Context
from random import Random
from typing import Any

from qo.errors import StoreAway
from qo.event import SIGNALS, Feed
from qo.store.sqlite.store import SIGNALS_SECONDS, SQLiteStore
from tests.simulation.loop import CONNECTION, Process

LOCAL = frozenset({"promise", "location", "retention", "bounds"})
SERVER = Context()
"""The store's own callbacks belong to no process."""


class Conditions:
    """How well the network works at present, the same for all processes."""

    def __init__(self, chance: Random, *, longest_delay: float, lost_share: float, longest_timeout: float) -> None:
        self.chance = chance
        self.longest_delay = longest_delay
        self.lost_share = lost_share
        self.longest_timeout = longest_timeout
        """How long a caller waits at most for a reply that was lost."""

    def delay(self) -> float:
        return self.chance.uniform(0.0, self.longest_delay)

    def loses(self) -> bool:
        return self.chance.random() < self.lost_share

    def timeout(self) -> float:
        return self.chance.uniform(0.0, self.longest_timeout)


Note = Callable[[str, str], None]
"""Called with a process's name and one line about it."""


class Network:
    """A store as one process sees it."""

    def __init__(
        self,
        store: SQLiteStore,
        process: Process,
        conditions: Conditions,
        *,
        note: Note,
        served: Callable[[str, Any], None],
    ) -> None:
        """`served` is called with the name and the answer of each operation that was carried out."""
        self._store = store
        self._process = process
        self._conditions = conditions
        self._note = note
        self._served = served
        self._loop = asyncio.get_running_loop()
        self._is_cut = False
        self._pending: dict[asyncio.Future[Any], None] = {}
        self._arrived: dict[str, float] = {}
        """By connection, when the last request arrived, or will."""
        self.disturbed_at = 0.0
        """When a message of this process was last lost."""
        self._number = 0

    def cut(self) -> None:
        """From now on every message is lost."""
        self._is_cut = True
        for answer in tuple(self._pending):
            self._loop.call_later(self._conditions.timeout(), self._fail, answer, context=SERVER)

    def mend(self) -> None:
        self._is_cut = False
        self.disturbed_at = self._loop.time()

    async def close(self) -> None:
        """The store belongs to the simulation."""

    def __getattr__(self, name: str) -> Any:
        if name in LOCAL:
            return getattr(self._store, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._call(name, args, kwargs)

        return call

    async def signals(self, worker: str, after: int) -> AsyncGenerator[Feed]:
        while True:
            feed = await self._call("events", (after,), {"kinds": SIGNALS})
            yield feed
            after = feed.cursor
            await self._call("wait_for_events", (after,), {"kinds": SIGNALS, "timeout_seconds": SIGNALS_SECONDS})

    async def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._number += 1
        number = self._number
        loop, conditions = self._loop, self._conditions
        answer: asyncio.Future[Any] = loop.create_future()
        self._pending[answer] = None
        serving: list[asyncio.Task[None]] = []
        if self._loses():
            self._note(self._process.name, f"{number} {name} is lost {_shown(args, kwargs)}")
            loop.call_later(conditions.timeout(), self._fail, answer, context=SERVER)
        else:
            self._note(self._process.name, f"{number} {name} is sent {_shown(args, kwargs)}")
            connection = CONNECTION.get()
            arrives = max(self._arrived.get(connection, 0.0), loop.time() + conditions.delay())
            self._arrived[connection] = arrives
            loop.call_at(arrives, self._arrive, number, name, args, kwargs, answer, serving, context=SERVER)
        try:
            return await answer
        finally:
            self._pending.pop(answer, None)
            if _waits(kwargs) and serving:
                serving[0].cancel()

    def _arrive(
        self,
        number: int,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        answer: asyncio.Future[Any],
        serving: list[asyncio.Task[None]],
    ) -> None:
        if _waits(kwargs) and answer.done():
            return  # the caller has gone
        serving.append(self._loop.create_task(self._serve(number, name, args, kwargs, answer), context=SERVER))

    async def _serve(
        self, number: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], answer: asyncio.Future[Any]
    ) -> None:
        result, error = None, None
        try:
            result = await getattr(self._store, name)(*args, **kwargs)
        except Exception as raised:
            error = raised
        self._note(self._process.name, f"{number} {name} is answered {result!r} {error!r}")
        if error is None:
            self._served(name, result)
        if self._loses():
            self._note(self._process.name, f"{number} {name} has its reply lost")
            self._loop.call_later(self._conditions.timeout(), self._fail, answer)
        else:
            self._loop.call_later(self._conditions.delay(), _settle, answer, result, error)

    def _loses(self) -> bool:
        lost = self._conditions.loses() or self._is_cut
        if lost:
            self.disturbed_at = self._loop.time()
        return lost

    def _fail(self, answer: asyncio.Future[Any]) -> None:
        self.disturbed_at = self._loop.time()
        _settle(answer, None, StoreAway("The simulated network lost a message."))


def _settle(answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)


def _waits(kwargs: dict[str, Any]) -> bool:
    """Whether the store answers this call only when something happened, or its time is up."""
    return "timeout_seconds" in kwargs


def _shown(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The same text in every process: sets in order, and no addresses of functions."""
    named = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in kwargs.items()}
    return f"{args} { {name: value for name, value in named.items() if not callable(value)} }"
