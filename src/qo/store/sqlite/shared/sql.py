"""Run a statement and return all rows, one row or one value; insert many rows.

Rows are fetched whole, because a statement that is still being read must not see its own step's writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import apsw


def rows(db: apsw.Connection, statement: str, bindings: Sequence[Any] = ()) -> list[Any]:
    return db.execute(statement, bindings).fetchall()


def row(db: apsw.Connection, statement: str, bindings: Sequence[Any] = ()) -> Any:
    """The first row, or None."""
    return db.execute(statement, bindings).fetchone()


def value(db: apsw.Connection, statement: str, bindings: Sequence[Any] = ()) -> Any:
    """The first column of the first row, or None."""
    found = db.execute(statement, bindings).fetchone()
    return None if found is None else found[0]


class Insert:
    """Inserts rows by a few long statements.

    A row takes less than half the time that it takes as an execution of its own. It also leaves more room for other
    statements: apsw prepares anew what it did not run within its last executions (`STATEMENTS_CACHED`).
    """

    ROWS_AT_ONCE = (32, 8, 4, 2, 1)

    def __init__(self, into: str, *, columns: int, on_conflict: str = "") -> None:
        row = f"({', '.join('?' * columns)})"
        self._statements = {
            count: f"INSERT INTO {into} VALUES {', '.join([row] * count)} {on_conflict}" for count in self.ROWS_AT_ONCE
        }

    def run(self, db: apsw.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        for_all = self._statements.get(len(rows))
        if for_all is not None:
            db.execute(for_all, tuple(chain.from_iterable(rows)))
            return
        begin = 0
        for count, statement in self._statements.items():
            while len(rows) - begin >= count:
                db.execute(statement, tuple(chain.from_iterable(rows[begin : begin + count])))
                begin += count
