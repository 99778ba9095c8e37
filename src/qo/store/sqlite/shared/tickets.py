"""A ticket's row in SQLite: a caller that waits for slots without a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import apsw
import msgspec

from qo.store.row import Json
from qo.store.sqlite.shared import sql


class TicketRow(msgspec.Struct):
    holder: str
    key: int
    groups: Json
    expires_at: int
    lease_ms: int
    wait_ms: int
    worker: str | None
    joined_at: int
    passed: int = 0
    turn: bool = False


TICKET_COLUMNS = ", ".join(TicketRow.__struct_fields__)


def select_tickets(db: apsw.Connection, where: str, bindings: Sequence[Any] = ()) -> Iterator[TicketRow]:
    return (TicketRow(*row) for row in sql.rows(db, f"SELECT {TICKET_COLUMNS} FROM ticket WHERE {where}", bindings))
