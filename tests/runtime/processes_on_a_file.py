"""A queue on a file that worker processes share, its events, and whether somebody holds up its writes.

A test module imports both fixtures. Their functions are not called like the fixtures, so that an argument of a test
does not hide an import.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

import pytest

import qo
from qo.event import Event

LEASE_SECONDS = 2
SETTINGS: dict[str, Any] = {
    "concurrency": {"default_lease_duration_secs": LEASE_SECONDS},
    "retries": {"first_delay_secs": 0.01, "max_delay_secs": 0.1},
}
LOOK_AGAIN_SECONDS = 0.005
PROBE_SECONDS = 1.0
"""for a write by somebody else, while a process is stopped that may be in the middle of one of its own"""


@pytest.fixture(name="url")
def url_fixture(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'qo.db'}"


@pytest.fixture(name="queue")
async def queue_fixture(url: str) -> AsyncIterator[qo.Queue]:
    async with await qo.connect(url, settings=SETTINGS) as opened:
        yield opened


async def events_of(queue: qo.Queue, kinds: Collection[str]) -> list[Event]:
    """All of these kinds since the beginning."""
    events: list[Event] = []
    cursor = 0
    while True:
        feed = await queue.store.events(cursor, kinds=kinds)
        assert not feed.reset
        events += feed.events
        if feed.cursor == cursor or not feed.events:
            return events
        cursor = feed.cursor


async def can_write(queue: qo.Queue) -> bool:
    """Whether nobody is stopped in the middle of a write. Too slow a machine looks the same."""
    written = asyncio.ensure_future(queue.store.observe([]))
    await asyncio.wait({written}, timeout=PROBE_SECONDS)
    return written.done()
