"""Batches by nature: while one call is in flight, the next items gather and go together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

MOST_PER_CALL = 100


class Gathering(Generic[Item, Answer]):
    """Sends single items as lists, in the order they came, one call at a time. A lone item is sent at once.

    A call that fails as a whole fails for every item in it.
    """

    def __init__(self, send: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]]) -> None:
        self._send = send
        self._gathered: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._is_sending = False
        self._sender: asyncio.Task[None] | None = None

    async def send(self, item: Item) -> Answer:
        if not self._is_sending:
            return await self._send_alone(item)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._gathered.append((item, answer))
        return await answer

    async def _send_alone(self, item: Item) -> Answer:
        """By its caller, because a task would begin only in the next turn of the event loop."""
        self._is_sending = True
        try:
            (answer,) = await self._send([item])
        finally:
            self._sender = asyncio.create_task(self._send_all()) if self._gathered else None
            self._is_sending = self._sender is not None
        return answer

    async def _send_all(self) -> None:
        while self._gathered:
            batch, self._gathered = self._gathered[:MOST_PER_CALL], self._gathered[MOST_PER_CALL:]
            try:
                answers = await self._send([item for item, _ in batch])
            except Exception as error:
                for _, waiting in batch:
                    if not waiting.done():
                        waiting.set_exception(error)
            else:
                for (_, waiting), answer in zip(batch, answers, strict=True):
                    if not waiting.done():
                        waiting.set_result(answer)
        self._is_sending = False
