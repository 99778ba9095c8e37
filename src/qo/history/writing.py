"""Records into PostgreSQL: a portion is one transaction, and what the server refuses is found by halving it."""

from __future__ import annotations

import base64
import logging
from collections.abc import Sequence
from datetime import date

import asyncpg
import msgspec

from qo.errors import HistoryAway
from qo.history.database import VERSION, connect, explained, location_of, migrate
from qo.history.records import Record

log = logging.getLogger("qo.history")

RECORD = "SELECT recorded, renumbered FROM history.record($1, $2, $3, $4, $5, $6)"
NOT_READABLE = "it is not a record that this version of qo can read"
REFUSALS = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.ProgramLimitExceededError)
_encode = msgspec.json.Encoder().encode


class Written(msgspec.Struct, frozen=True, kw_only=True):
    recorded: int = 0
    """How many were new."""
    renumbered: int = 0
    """How many of them have another id now, because the store gave ids again that it had lost."""
    rejected: int = 0

    def __add__(self, other: Written) -> Written:
        return Written(
            recorded=self.recorded + other.recorded,
            renumbered=self.renumbered + other.renumbered,
            rejected=self.rejected + other.rejected,
        )


class Writer:
    """One connection, opened by the first call and again after an error."""

    def __init__(self, url: str, *, namespace: str, keep_days: int) -> None:
        self.location = location_of(url)
        self._url = url
        self._namespace = namespace
        self._keep_days = keep_days
        self._connection: asyncpg.Connection | None = None

    async def open(self) -> None:
        """Migrate, where this role may; otherwise see that the schema is there. Raises `HistoryAway`, and
        `SettingsError` where waiting does not help."""
        connection = await self._connected()
        with explained(self._url):
            try:
                await migrate(connection, keep_days=self._keep_days)
            except asyncpg.InsufficientPrivilegeError:
                log.debug("the role of history.url does not own the history, so it is not migrated")
            await self._call(connection, [], None)

    async def write(self, records: Sequence[Record]) -> Written:
        """Write the records, each once ever. Raises `HistoryAway`, and then some of them may be written."""
        readable = [record for record in records if record.row is not None]
        written = await self._write(readable)
        for record in records:
            if record.row is None:
                written += await self._reject(record, NOT_READABLE)
        return written

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.terminate()

    async def _connected(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(self._url, writes=True)
        return self._connection

    async def _write(self, records: Sequence[Record]) -> Written:
        if not records:
            return Written()
        try:
            return await self._attempt(records, None)
        except REFUSALS as refusal:
            if len(records) == 1:
                return await self._reject(records[0], str(refusal))
        except HistoryAway as away:
            took_too_long = isinstance(away.__cause__, asyncpg.QueryCanceledError)  # longer than its statement_timeout
            if len(records) == 1 or not took_too_long:
                raise
        middle = len(records) // 2
        return await self._write(records[:middle]) + await self._write(records[middle:])

    async def _reject(self, record: Record, reason: str) -> Written:
        await self._attempt([record], reason)
        log.error("entry %d of the outbox was put into history.rejected: %s", record.id, reason)
        return Written(rejected=1)

    async def _attempt(self, records: Sequence[Record], refused: str | None) -> Written:
        """One statement, which is a transaction of its own: a recorder that dies leaves no lock behind."""
        connection = await self._connected()
        with explained(self._url):
            try:
                return await self._call(connection, records, refused)
            except REFUSALS:
                raise
            except Exception:
                await self.close()  # whatever it was, a new connection has no part of it
                raise

    async def _call(self, connection: asyncpg.Connection, records: Sequence[Record], refused: str | None) -> Written:
        months = sorted(frozenset[date]().union(*(record.months for record in records)))
        ids = asyncpg.Range(records[0].id, records[-1].id, upper_inc=True) if records else None
        rows = [_put_aside(record) if refused is not None else record.row or "" for record in records]
        portion = f"[{','.join(rows)}]"
        found = await connection.fetchrow(RECORD, VERSION, self._namespace, months, ids, portion, refused)
        assert found is not None
        return Written(recorded=found["recorded"], renumbered=found["renumbered"])


def _put_aside(record: Record) -> str:
    packed = base64.b64encode(record.packed).decode()
    return _encode({"id": record.id, "digest": record.digest, "packed": packed}).decode()
