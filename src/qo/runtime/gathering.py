"""Many items in few calls: single ones gather while calls are in flight, long lists go in portions."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from qo.runtime.portions import Portion

Item = TypeVar("Item")
Answer = TypeVar("Answer")

MOST_PER_CALL = 100


class Gathering(Generic[Item, Answer]):
    """Sends single items as lists, in the order they came. A lone item is sent at once.

    A call that fails as a whole fails for every item in it.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        *,
        check: Callable[[Item], None] | None = None,
        portion: Portion[Item] | None = None,
        calls_in_flight: int = 1,
    ) -> None:
        """`check` raises for an item that `send` would refuse, and with it all others of the call.
        `portion` is what goes in one call.
        `calls_in_flight` above 1: when a whole call has gathered, it does not wait for the one before."""
        self._send = send
        self._check = check
        self._portion = portion or Portion(MOST_PER_CALL)
        self._calls_in_flight = calls_in_flight
        self._gathered: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._in_flight = 0
        self._senders: set[asyncio.Task[None]] = set()

    async def send(self, item: Item) -> Answer:
        if not self._in_flight:
            return await self._send_alone(item)
        if self._check is not None:
            self._check(item)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._gathered.append((item, answer))
        if len(self._gathered) >= self._portion.most and self._in_flight < self._calls_in_flight:
            self._send_more()
        return await answer

    async def _send_alone(self, item: Item) -> Answer:
        """By its caller, because a task would begin only in the next turn of the event loop."""
        self._in_flight += 1
        try:
            (answer,) = await self._send([item])
        finally:
            self._in_flight -= 1
            if self._gathered:
                self._send_more()
        return answer

    def _send_more(self) -> None:
        self._in_flight += 1
        sender = asyncio.create_task(self._send_gathered())
        self._senders.add(sender)
        sender.add_done_callback(self._senders.discard)

    async def _send_gathered(self) -> None:
        while self._gathered:
            length = self._portion.length(item for item, _ in self._gathered)
            batch, self._gathered = self._gathered[:length], self._gathered[length:]
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
        self._in_flight -= 1


async def in_portions(
    send: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]], items: Sequence[Item], *, portion: Portion[Item]
) -> AsyncGenerator[Sequence[Answer]]:
    """The answers to one portion after the other, in order. While they are looked at, the next one is under way.

    When one fails, those sent before it have happened, and the one under way may have.
    """
    under_way: deque[asyncio.Future[Sequence[Answer]]] = deque()
    try:
        first = 0
        while length := portion.length(items[place] for place in range(first, len(items))):
            under_way.append(asyncio.ensure_future(send(items[first : first + length])))
            first += length
            if len(under_way) == 2:
                yield await under_way.popleft()
        if under_way:
            yield await under_way.popleft()
    finally:
        for call in under_way:
            call.cancel()
