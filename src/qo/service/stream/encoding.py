"""Frames of an event stream: the bytes of one event, of a heartbeat, and of the wait before a client comes back."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime

import msgspec

from qo.event import Event

HEARTBEAT = b": heartbeat\n\n"
MOST_FRAMES = 1024
"""How many frames of feed events are kept. All watchers read an event within a moment of each other."""

_encode = msgspec.json.Encoder().encode


def frame(name: str, *, id: int, data: object) -> bytes:
    """One event. `name` is a constant of ours; JSON escapes every line break in the data, so `data:` is one line."""
    return b"event: %b\nid: %d\ndata: %b\n\n" % (name.encode(), id, _encode(data))


def retry_frame(seconds: float) -> bytes:
    """Tells the client how long to wait before it connects again."""
    return b"retry: %d\n\n" % round(seconds * 1000)


class EventFrames:
    """The frames of feed events. Each is made once, however many watchers of this process get it."""

    def __init__(self) -> None:
        self.made = 0
        """How many frames were made, and not found."""
        self._frames: OrderedDict[tuple[int, datetime, str], bytes] = OrderedDict()

    def get(self, event: Event, *, name: str, data: object) -> bytes:
        """The frame of this event. Every watcher gives the same data, so that of the first is encoded."""
        # The time is part of the key, because the ids of a store that was emptied begin again.
        key = (event.id, event.at, event.subject)
        found = self._frames.get(key)
        if found is None:
            found = self._frames[key] = frame(name, id=event.id, data=data)
            self.made += 1
            if len(self._frames) > MOST_FRAMES:
                self._frames.popitem(last=False)
        return found
