"""Many items in few calls: single ones gather while calls are in flight, long lists go in portions."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from itertools import islice
from typing import Generic, TypeVar

from qo.loops.portions import Portion

Item = TypeVar("Item")
Answer = TypeVar("Answer")

MOST_PER_CALL = 100


class Gathering(Generic[Item, Answer]):
    """Sends single items as lists, in the order they came. A lone item is sent at once.

    A call that fails fails for every item in it. An item takes effect in its place among the calls of this event loop,
    or not at all (`order` in store/__init__.py).
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
        self._gathered: dict[asyncio.Future[Answer], Item] = {}
        """What waits to be sent, by the future of its answer."""
        self._in_flight = 0
        self._senders: set[asyncio.Task[None]] = set()

    async def send(self, item: Item) -> Answer:
        """Send an item and return its answer. An item whose caller is cancelled before it was sent is never sent."""
        if not self._in_flight:
            return await self._send_alone(item)
        answer = self.add(item)
        try:
            return await answer
        finally:
            self._gathered.pop(answer, None)  # there only if the caller was cancelled before it was sent

    def add(self, item: Item) -> asyncio.Future[Answer]:
        """Send an item in a task of the gathering's own: the call goes on when the caller is cancelled."""
        if self._check is not None:
            self._check(item)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._gathered[answer] = item
        if not self._in_flight or (
            len(self._gathered) >= self._portion.most and self._in_flight < self._calls_in_flight
        ):
            self._send_more()
        return answer

    async def cancel(self) -> None:
        """Cancel the calls under way, and send nothing of what has gathered."""
        self._gathered.clear()
        for sender in self._senders:
            sender.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)

    async def _send_alone(self, item: Item) -> Answer:
        """In the caller's own task, because a new one would begin only in the next turn of the event loop."""
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
            batch = list(islice(self._gathered, self._portion.length(self._gathered.values())))
            items = [self._gathered.pop(waiting) for waiting in batch]
            try:
                answers = await self._send(items)
            except Exception as error:
                for waiting in batch:
                    if not waiting.done():
                        waiting.set_exception(error)
            else:
                for waiting, answer in zip(batch, answers, strict=True):
                    if not waiting.done():
                        waiting.set_result(answer)
        self._in_flight -= 1


async def in_portions(
    send: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]], items: Sequence[Item], *, portion: Portion[Item]
) -> AsyncGenerator[Sequence[Answer]]:
    """Yield the answers of one portion after the other, in order. The next portion is under way meanwhile.

    When a portion fails, those before it have happened, and the one behind it may have.
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
