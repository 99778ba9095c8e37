"""Run a statement and return all rows, one row or one value.

Rows are fetched whole, because a statement that is still being read must not see its own step's writes.
"""

from __future__ import annotations

from collections.abc import Sequence
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
