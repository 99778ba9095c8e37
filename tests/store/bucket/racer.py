"""A process that takes slots on a bucket again and again, and tells a witness what it holds, until it is killed.

It goes by its own deadline alone: it stops when that has passed, and never asks the witness for leave.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Awaitable
from datetime import timedelta
from typing import TypeVar

import msgspec

from qo.errors import StoreUnavailable
from qo.store.bucket import BucketSlots
from qo.store.bucket.clocks import elapsed_seconds, utc_now

Answer = TypeVar("Answer")

GROUP, LIMIT = "api", 3
LEASE_SECONDS = 1.0
REQUEST_SECONDS = 0.5
POLL_SECONDS = 0.02
ENTER, RENEWED, LEAVE = "enter", "renewed", "leave"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    what: str
    pid: int
    slot_id: int
    token: int
    deadline: float
    """by the clock that all processes of a machine share"""


class Racer:
    def __init__(self, slots: BucketSlots, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._slots, self._reader, self._writer = slots, reader, writer

    async def race(self, name: str) -> None:
        number = 0
        while not self._reader.at_eof():  # without a witness there is no test, and nobody to kill this
            number += 1
            holder = f"{name}-{number}"
            slot_id = await _or_none(self._slots.try_acquire(GROUP, LIMIT, holder, name, LEASE_SECONDS))
            if slot_id is None:
                await asyncio.sleep(random.uniform(0.02, 0.1))
                continue
            await self._hold(slot_id, holder)
            await _or_none(self._slots.release(GROUP, slot_id, holder))

    async def _hold(self, slot_id: int, holder: str) -> None:
        # Mostly short, so that slots change hands often; sometimes so long that they have to be renewed.
        until = elapsed_seconds() + (random.uniform(0, 0.1) if random.random() < 0.9 else 2 * LEASE_SECONDS)
        renew_at = _next_renewal()
        await self._tell(ENTER, slot_id, holder)
        while elapsed_seconds() < until and self._slots.still_held(GROUP, slot_id, holder):
            await asyncio.sleep(POLL_SECONDS)
            if elapsed_seconds() >= renew_at:
                renew_at = _next_renewal()
                if await _or_none(self._slots.renew(GROUP, slot_id, holder)):
                    await self._tell(RENEWED, slot_id, holder)
        await self._tell(LEAVE, slot_id, holder)

    async def _tell(self, what: str, slot_id: int, holder: str) -> None:
        """Once this has returned, the witness knows."""
        lease = self._slots.lease(GROUP, slot_id, holder)
        assert lease is not None
        # A lease that was taken away has a deadline of minus infinity, which JSON has no word for.
        deadline = 0.0 if what == LEAVE else lease.deadline
        report = Report(what=what, pid=os.getpid(), slot_id=slot_id, token=lease.token, deadline=deadline)
        self._writer.write(msgspec.json.encode(report) + b"\n")
        await self._reader.readline()


def _next_renewal() -> float:
    """Later than anybody should, so that who takes over only a little too early is found out."""
    return elapsed_seconds() + random.uniform(0.3, 0.8) * LEASE_SECONDS


async def _or_none(call: Awaitable[Answer]) -> Answer | None:
    try:
        return await call
    except StoreUnavailable:
        return None  # a bad day for the bucket is no news here


async def main(url: str, witness_port: str, name: str, minutes_wrong: str) -> None:
    wrong_by = timedelta(minutes=float(minutes_wrong))
    reader, writer = await asyncio.open_connection("127.0.0.1", int(witness_port))
    slots = await BucketSlots.open(url, wall_clock=lambda: utc_now() + wrong_by, request_seconds=REQUEST_SECONDS)
    await Racer(slots, reader, writer).race(name)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
