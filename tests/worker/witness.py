"""An outside witness: handlers report their tokens and slots to it, and it records which of them were inside together.

A process reports through one connection, which ends with it, so a process that is killed is gone, too. The witness does
what a careful resource does (SPEC.md, section 3): it keeps the newest token of each job and refuses older ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec

import qo
from qo.event import LEASE_LOST, Event

ENTER, WRITE, LEAVE = "enter", "write", "leave"
ACCEPTED, REFUSED = b"accepted\n", b"refused\n"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """`lost` is the flag of the handler's context when it reports."""

    what: str
    process: str
    job: str
    attempt: int
    token: int
    slots: dict[str, int]
    lost: bool


# --- in the handlers ------------------------------------------------------------------------------------------


class Refused(Exception):
    """The witness has seen a newer token of this job."""


class Reporter:
    """A process's one connection to the witness. `process` is the name it goes by."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, process: str) -> None:
        self._reader, self._writer, self._process = reader, writer, process
        self._turn = asyncio.Lock()

    @classmethod
    async def connect(cls, port: int, process: str) -> Reporter:
        return cls(*await asyncio.open_connection("127.0.0.1", port), process)

    @asynccontextmanager
    async def inside(self, ctx: qo.Context) -> AsyncIterator[None]:
        """Enter, and leave however the block ends. Raises Refused when it may not enter."""
        try:
            await self.tell(ENTER, ctx)  # in here, because a handler that is cancelled meanwhile has entered too
            yield
        finally:
            try:
                await self.tell(LEAVE, ctx)
            except Refused:
                pass  # it is outside either way

    async def tell(self, what: str, ctx: qo.Context) -> None:
        """Once this has returned, the witness knows. Raises Refused, and then nothing happened."""
        report = Report(
            what=what,
            process=self._process,
            job=ctx.job.id,
            attempt=ctx.attempt,
            token=int(ctx.token),
            slots=dict(ctx.slots),
            lost=ctx.lost,
        )
        # Shielded: a handler that is cancelled in here must not leave its answer to the next one.
        if await asyncio.shield(self._ask(report)) != ACCEPTED:
            raise Refused(f"{what} of {report.job} with the token {report.token}")

    async def _ask(self, report: Report) -> bytes:
        async with self._turn:
            self._writer.write(msgspec.json.encode(report) + b"\n")
            return await self._reader.readline()


# --- outside --------------------------------------------------------------------------------------------------


class Lives(NamedTuple):
    """When leases began and ended against their holders' will, as the numbers of the store's events."""

    began: dict[tuple[str, int], int]
    """When each lease began, by job and attempt."""
    ended: dict[int, int]
    """When each lease was lost, by token."""

    @classmethod
    def told_by(cls, events: Iterable[Event]) -> Lives:
        lives = cls({}, {})
        for event in events:
            if event.kind == qo.State.STARTING:
                lives.began[event.subject, event.detail["attempt"]] = event.id
            elif event.kind == LEASE_LOST:
                lives.ended[int(event.detail["token"])] = event.id
        return lives

    def lived_at(self, event_id: int, report: Report) -> bool:
        end = self.ended.get(report.token)
        return self.began[report.job, report.attempt] <= event_id and (end is None or event_id < end)


class Witness:
    def __init__(self) -> None:
        self.port = 0
        self.newest: dict[str, int] = {}
        """The newest token seen, by job."""
        self.writes: list[Report] = []
        self.refused: list[Report] = []
        self._inside: dict[int, tuple[Report, asyncio.BaseTransport]] = {}
        self._connections: set[asyncio.Transport] = set()
        self._meetings: list[tuple[Report, ...]] = []
        """The handlers that were inside, each time that one entered."""

    @classmethod
    @asynccontextmanager
    async def listening(cls) -> AsyncIterator[Witness]:
        witness = cls()
        server = await asyncio.get_running_loop().create_server(lambda: _Connection(witness), "127.0.0.1", 0)
        witness.port = server.sockets[0].getsockname()[1]
        try:
            yield witness
        finally:
            server.close()
            await server.wait_closed()
            await witness._hang_up()

    def inside(self, process: str | None = None) -> list[Report]:
        return [report for report, _ in self._inside.values() if process in (None, report.process)]

    def crowds(self, lives: Lives) -> Iterator[list[Report]]:
        """Yield the handlers that were inside together with leases that lived at the same time, for each such time.

        A stopped process that has not noticed yet that its lease ran out is inside without one. That is the stated
        exception, and the only fact for which this trusts the store.
        """
        for meeting in self._meetings:
            for report in meeting:
                moment = lives.began[report.job, report.attempt]
                yield [each for each in meeting if lives.lived_at(moment, each)]

    def hear(self, report: Report, connection: asyncio.BaseTransport) -> bool:
        if report.what == LEAVE:
            self._inside.pop(report.token, None)
        if report.token < self.newest.get(report.job, 0):
            self.refused.append(report)
            return False
        self.newest[report.job] = report.token
        if report.what == ENTER:
            self._inside[report.token] = report, connection
            self._meetings.append(tuple(self.inside()))
        elif report.what == WRITE:
            self.writes.append(report)
        return True

    def greet(self, connection: asyncio.Transport) -> None:
        self._connections.add(connection)

    async def _hang_up(self) -> None:
        """End the connections of processes that were killed a moment ago: their ends may not have been seen yet."""
        for connection in self._connections:
            connection.abort()
        await asyncio.sleep(0)  # in which the loop closes what was aborted

    def see_off(self, connection: asyncio.Transport) -> None:
        self._connections.discard(connection)
        self._inside = {token: each for token, each in self._inside.items() if each[1] is not connection}


class _Connection(asyncio.Protocol):
    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        self._unfinished = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._witness.greet(transport)

    def data_received(self, data: bytes) -> None:
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        for line in lines:
            accepted = self._witness.hear(msgspec.json.decode(line, type=Report), self._transport)
            self._transport.write(ACCEPTED if accepted else REFUSED)

    def connection_lost(self, error: Exception | None) -> None:
        self._witness.see_off(self._transport)


def most_inside(witness: Witness, lives: Lives, groups: Collection[str]) -> dict[str, int]:
    """Return how many were inside of each group at once. Asserts that no two shared a job or a slot's number."""
    most: Counter[str] = Counter()
    for crowd in witness.crowds(lives):
        assert len({report.job for report in crowd}) == len(crowd), "a job was run by two at once"
        for group in groups:
            numbers = [report.slots[group] for report in crowd if group in report.slots]
            assert len(set(numbers)) == len(numbers), f"two had the same slot of {group}"
            most[group] = max(most[group], len(numbers))
    return dict(most)
