"""A store whose calls arrive in the order they were made, and only while they are not held up."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Collection
from typing import Any


class SlowStore:
    """Calls of the given names wait while they are held up, then reach the store in the order they were begun.

    A call that has begun arrives even if its caller has gone, as a command does that is on its way to a server. Only
    the calls of the event loop in which this was made travel slowly: other threads have connections of their own.
    """

    def __init__(self, store: Any, names: Collection[str]) -> None:
        self._store = store
        self._names = names
        self._loop = asyncio.get_running_loop()
        self._travelling: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._is_held_up = False
        self._carrying: asyncio.Task[None] | None = None
        self.begun: list[tuple[str, Any]] = []
        """The calls of these names in the order they were begun, each with its first argument."""
        self.arrived: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in self._names or not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **options: Any) -> Any:
            self.begun.append((name, args[0] if args else options))
            if asyncio.get_running_loop() is not self._loop:
                return await method(*args, **options)
            answer: asyncio.Future[Any] = self._loop.create_future()

            def arrive() -> Any:
                self.arrived.append(name)
                return method(*args, **options)

            self._travelling.append((arrive, answer))
            self._carry()
            return await answer

        return call

    def hold_up(self) -> None:
        self._is_held_up = True

    def let_through(self) -> None:
        self._is_held_up = False
        self._carry()

    def on_the_way(self) -> int:
        return len(self._travelling)

    def times(self, name: str) -> int:
        return sum(begun == name for begun, _ in self.begun)

    def _carry(self) -> None:
        if self._carrying is None or self._carrying.done():
            self._carrying = asyncio.create_task(self._carry_on())

    async def _carry_on(self) -> None:
        while self._travelling and not self._is_held_up:
            arrive, answer = self._travelling.popleft()
            try:
                result = await arrive()
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)
