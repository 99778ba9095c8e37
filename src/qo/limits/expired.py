"""Ending the leases that have run out, for the manager and for semaphores."""

from __future__ import annotations

from qo.event import LEASE_LOST
from qo.store.contract import Store

PAGE = 1000


async def end_expired(store: Store, group: str) -> int:
    """End every lease that has run out, and return how many of them held a slot of this group."""
    cursor = (await store.events(None)).cursor
    held = {slot.token for slot in (await store.groups([group]))[0].slots}
    while (await store.catch_up()).more:
        pass
    return len(held & await _expired_since(store, cursor))


async def _expired_since(store: Store, cursor: int) -> set[str]:
    """The tokens of leases of any group that ran out. Those given back or revoked are not among them."""
    tokens: set[str] = set()
    while True:
        feed = await store.events(cursor, kinds=[LEASE_LOST], limit=PAGE)
        tokens |= {event.detail["token"] for event in feed.events if event.detail["reason"] == "expired"}
        cursor = feed.cursor
        if len(feed.events) < PAGE:
            return tokens
