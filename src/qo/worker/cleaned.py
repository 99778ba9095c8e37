"""Logs which slots were freed because their lease ran out, once however many workers look."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from qo.errors import StoreUnavailable
from qo.event import LEASE_LOST, Event
from qo.policy.words import counted
from qo.store.contract import Store
from qo.values import Record

log = logging.getLogger("qo.upkeep")

RECORD = "cleaned_slots"
"""The store's record of the last event that was logged."""
GROUPS_LOGGED_AT_MOST = 20
PAGE = 1000


class CleanedSlots:
    """Reads the feed from `cursor` on, because any step of any process may have ended a lease."""

    def __init__(self, store: Store, cursor: int) -> None:
        self._store = store
        self._cursor = cursor

    async def log_new(self) -> None:
        more = True
        while more:
            feed = await self._store.events(self._cursor, kinds=[LEASE_LOST], limit=PAGE)
            log_cleaned(await self._not_logged_yet(feed.events))
            self._cursor = feed.cursor  # only now: if logging failed, these events are read again
            more = len(feed.events) == PAGE

    async def _not_logged_yet(self, events: tuple[Event, ...]) -> list[Event]:
        """The events that no worker has logged. This worker has to log them now."""
        while events:
            record = (await self._store.records(RECORD)).get(RECORD, Record())
            logged_until: int = record.value or 0
            new = [event for event in events if event.id > logged_until]
            try:
                if not new or await self._store.put_record(RECORD, new[-1].id, version=record.version):
                    return new
            except StoreUnavailable:
                # A Redis server whose memory is full takes no records, but still ends leases. Then several workers may
                # log them, which is better than none.
                return new
        return []


def log_cleaned(events: Iterable[Event]) -> None:
    slots = Counter(
        group for event in events if event.detail.get("reason") == "expired" for group in event.detail.get("groups", ())
    )
    by_number = sorted(slots.items(), key=lambda each: (-each[1], each[0]))
    for group, number in by_number[:GROUPS_LOGGED_AT_MOST]:
        log.warning("cleaned %s in group %s", counted(number, "expired slot"), group)
    if others := by_number[GROUPS_LOGGED_AT_MOST:]:
        number = sum(number for _, number in others)
        log.warning("cleaned %s in %s", counted(number, "expired slot"), counted(len(others), "more group"))
