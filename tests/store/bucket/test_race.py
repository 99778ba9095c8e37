"""Eight processes race for three slots on a bucket, are killed, and lose requests and replies, on clocks that disagree
by minutes. An outside witness counts."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from qo.store.bucket.clocks import elapsed_seconds
from tests.processes import Process, command_of
from tests.store.bucket.proxy import Proxy
from tests.store.bucket.racer import ENTER, GROUP, LEASE_SECONDS, LEAVE, LIMIT, Report
from tests.store.bucket.staging import Clock, Place, acquire, place_fixture, proxy_fixture

__all__ = ["place_fixture", "proxy_fixture"]

PROCESSES = 8
KILL_EVERY_SECONDS = 0.8
FAULTS_SHARE = 0.05


class Witness:
    """Hears who is inside. A process tells through one connection, which dies with it."""

    def __init__(self) -> None:
        self.port = 0
        self.entries = 0
        self.most = 0
        self.wrong: list[str] = []
        self._inside: dict[asyncio.StreamWriter, Report] = {}
        self._newest: dict[int, int] = {}

    @classmethod
    @asynccontextmanager
    async def listening(cls) -> AsyncIterator[Witness]:
        witness = cls()
        server = await asyncio.start_server(witness._listen, "127.0.0.1", 0)
        witness.port = server.sockets[0].getsockname()[1]
        try:
            yield witness
        finally:
            server.close()

    def live(self) -> list[Report]:
        """Inside, and by their own word still holding: who is past its deadline and only slow to leave is the stated
        exception."""
        now = elapsed_seconds()
        return [report for report in self._inside.values() if now < report.deadline]

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self._hear(msgspec.json.decode(line, type=Report), writer)
                writer.write(b"heard\n")
        except ConnectionError:
            pass
        finally:
            self._inside.pop(writer, None)
            writer.close()

    def _hear(self, report: Report, writer: asyncio.StreamWriter) -> None:
        if report.what == LEAVE:
            del self._inside[writer]
            return
        self._inside[writer] = report
        if report.what == ENTER:
            self.entries += 1
            if report.token <= self._newest.get(report.slot_id, 0):
                self.wrong.append(f"the token of slot {report.slot_id} did not grow")
            self._newest[report.slot_id] = report.token
        live = self.live()
        self.most = max(self.most, len(live))
        if len(live) > LIMIT:
            self.wrong.append(f"{len(live)} at once")
        if len({each.slot_id for each in live}) != len(live):
            self.wrong.append("one slot was held by two")


class Field:
    """The processes of a race. None of them outlives it."""

    def __init__(self, url: str, witness: Witness) -> None:
        self._url, self._witness = url, witness
        self._racers: list[Process] = []
        self._started = 0
        self.ended_by_themselves = 0
        self.killed_inside = 0

    async def start(self) -> None:
        self._started += 1
        arguments = [self._url, str(self._witness.port), f"racer{self._started}", str(random.uniform(-15, 15))]
        self._racers.append(Process(command_of("tests.store.bucket.racer", *arguments)))

    async def kill_one(self) -> None:
        """One that is inside, if any is: what it held is what the others have to get over."""
        inside = {report.pid for report in self._witness.live()}
        racer = random.choice([each for each in self._racers if each.pid in inside] or self._racers)
        self._racers.remove(racer)
        self.ended_by_themselves += not await self._kill(racer)
        self.killed_inside += racer.pid in inside

    async def kill_all(self) -> None:
        self.ended_by_themselves += [await self._kill(racer) for racer in self._racers].count(False)

    async def _kill(self, racer: Process) -> bool:
        """Whether it was still running."""
        racer.signal(signal.SIGKILL)
        return await racer.ended() == -signal.SIGKILL


async def race(place: Place, proxy: Proxy, *, seconds: float) -> None:
    async with Witness.listening() as witness:
        field = Field(place.server.url(place.prefix, port=proxy.port), witness)
        try:
            for _ in range(PROCESSES):
                await field.start()
            proxy.at_random(FAULTS_SHARE)
            end = elapsed_seconds() + seconds
            while elapsed_seconds() < end:
                await asyncio.sleep(KILL_EVERY_SECONDS)
                await field.kill_one()
                await field.start()
        finally:
            await field.kill_all()

    assert witness.wrong == []
    assert field.ended_by_themselves == 0, "their errors are above"
    assert witness.most == LIMIT, "the slots were never all taken: this proves nothing"
    assert witness.entries > seconds
    assert field.killed_inside > LIMIT, "so few that no slot had to be taken over"
    assert proxy.faults > seconds
    await check_no_slot_is_lost(place)


async def check_no_slot_is_lost(place: Place) -> None:
    """Whatever the dead have left, a lease later all slots can be taken."""
    clock = Clock()
    slots = await place.slots(clock)
    await slots.get_status(GROUP)
    clock.elapsed += LEASE_SECONDS

    taken = [await acquire(slots, f"h{n}", group=GROUP, limit=LIMIT) for n in range(LIMIT + 1)]

    assert {*taken} == {*range(LIMIT), None}


async def test_killed_processes_and_lost_replies_never_let_a_fourth_in(place: Place, proxy: Proxy) -> None:
    await race(place, proxy, seconds=8)


@pytest.mark.nightly
async def test_the_same_for_a_minute(place: Place, proxy: Proxy) -> None:
    await race(place, proxy, seconds=60)
