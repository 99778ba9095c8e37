"""The operators' stream: frames of what changes in the line, the groups and the workers.

One reader serves all streams of a process, and nothing is read while nobody watches. Each frame is encoded once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from itertools import dropwhile

import msgspec

from qo.loops.repeating import repeat
from qo.loops.trouble import Trouble
from qo.queue.inbox import Inbox
from qo.queue.queue import Queue
from qo.service.stream.encoding import frame
from qo.service.stream.frames import FRAME, Frame
from qo.service.stream.job import RESET
from qo.service.stream.live_reader import LiveReader, TooMuchChanged

log = logging.getLogger("qo.stream")

FRAME_EVERY_SECONDS = 0.25
AFTER_RESET_SECONDS = 1.0
"""How long nothing is sent after a reset: every page reads its window again then."""
TRY_AGAIN_SECONDS = 1.0
KEPT_FRAMES = 256
"""The frames that a client that comes back can still get."""
KEPT_BYTES = 4 * 1024 * 1024
IDLE_SECONDS = 60.0
"""When nobody has watched for so long, reading begins anew, and a client that comes back gets a reset."""


class _Sent(msgspec.Struct, frozen=True, gc=False):
    """A frame, as the bytes that every watcher gets. It leads from the cursor `since` to the next."""

    number: int
    since: int
    data: bytes


class LiveStreams:
    """The operators' streams of one process."""

    def __init__(self, queue: Queue) -> None:
        self._system = queue.system
        self.reader = LiveReader(queue)
        self._inboxes: set[Inbox[_Sent]] = set()
        self._last_id = 0
        """The cursor that the last frame led to. Every id that clients have was such a cursor."""
        self._kept: deque[_Sent] = deque()
        """The last frames, without a gap: each leads on from where the one before it led to."""
        self._kept_bytes = 0
        self._number = 0
        """How many frames and resets there were."""
        self._present: tuple[int, msgspec.Raw] | None = None
        """The present state as JSON, and the number of the last frame that is in it."""
        self._starting = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None
        self._pause_seconds = FRAME_EVERY_SECONDS
        self._left_at: float | None = None
        """When nobody was left to watch. None before the first watcher has left."""

    @property
    def watching(self) -> int:
        return len(self._inboxes)

    async def stream(self, *, after: int | None = None) -> AsyncGenerator[bytes]:
        """Yields a `frame` with all groups, workers and the overview, then one for what changes, for as long as the
        caller listens.

        With `after`, the frames follow that the client has missed. Where they are not kept, or the cursor is none that
        this process gave, the first event is a `reset`, and the client has to read its rows again. A reset also comes
        later, in place of frames that the caller did not read in time, and when too much has changed for a frame.
        """
        inbox = Inbox[_Sent]()
        try:
            async with self._starting:
                await self._start()
                self._inboxes.add(inbox)
            # No frame can come between these lines, because nothing is awaited.
            missed = [] if after is None else self._missed_after(after)
            told = self._number
            if missed is None:
                yield self._all_of_it(RESET, id=self._last_id)
            else:
                yield self._all_of_it(FRAME, id=self._last_id if after is None else after)
            for each in missed or ():
                yield each.data
            while True:
                found = await inbox.get()
                if not isinstance(found, _Sent):
                    told = self._number
                    yield self._all_of_it(RESET, id=self._last_id)
                elif found.number > told:  # else it is in the reset that was yielded before
                    yield found.data
        finally:
            self._leave(inbox)

    async def close(self) -> None:
        self.reader.overviews.stop()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None

    # --- reading while somebody watches -----------------------------------------------------------------------

    async def _start(self) -> None:
        if self._reading is not None:
            return
        if self._left_at is not None and self._system.monotonic() - self._left_at < IDLE_SECONDS:
            await self._read_next(wait=False)  # a client that was away for a moment can go on
        else:
            await self._begin_anew()
        self._reading = asyncio.create_task(self._read_on(), name="qo-live")

    def _leave(self, inbox: Inbox[_Sent]) -> None:
        self._inboxes.discard(inbox)
        if not self._inboxes and self._reading is not None:
            self._reading.cancel()
            self._reading = None
            self.reader.overviews.stop()
            self._left_at = self._system.monotonic()

    async def _read_on(self) -> None:
        trouble = Trouble("operators are not told for now what changes", log)
        await repeat(
            self._read_next, pause=lambda: self._pause_seconds, retry_seconds=TRY_AGAIN_SECONDS, trouble=trouble
        )

    async def _read_next(self, *, wait: bool = True) -> None:
        try:
            found = await self.reader.next(wait=wait)
        except TooMuchChanged:
            await self._begin_anew()
            self._pause_seconds = AFTER_RESET_SECONDS
        else:
            self._pause_seconds = FRAME_EVERY_SECONDS
            if found is not None:
                self._send(found)

    async def _begin_anew(self) -> None:
        """Read the present state, and let every watcher do so too."""
        await self.reader.begin()
        self._number += 1
        self._last_id = self.reader.cursor
        self._kept.clear()
        self._kept_bytes = 0
        for inbox in self._inboxes:
            inbox.put_reset()

    # --- sending ----------------------------------------------------------------------------------------------

    def _send(self, found: Frame) -> None:
        self._number += 1
        sent = _Sent(self._number, self._last_id, frame(FRAME, id=self.reader.cursor, data=found))
        self._last_id = self.reader.cursor
        self._keep(sent)
        for inbox in self._inboxes:
            inbox.put_event(sent)

    def _keep(self, sent: _Sent) -> None:
        self._kept.append(sent)
        self._kept_bytes += len(sent.data)
        while len(self._kept) > KEPT_FRAMES or self._kept_bytes > KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popleft().data)

    def _missed_after(self, cursor: int) -> list[_Sent] | None:
        """The frames behind this cursor. None: they are not kept, or no frame led to it."""
        if cursor == self._last_id:
            return []
        missed = list(dropwhile(lambda sent: sent.since != cursor, self._kept))
        return missed or None

    def _all_of_it(self, name: str, *, id: int) -> bytes:
        """The present state, which is encoded once for all that come before the next frame."""
        if self._present is None or self._present[0] != self._number:
            self._present = self._number, msgspec.Raw(msgspec.json.encode(self.reader.present()))
        return frame(name, id=id, data=self._present[1])
