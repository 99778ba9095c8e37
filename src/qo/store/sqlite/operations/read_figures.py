"""Reading figures, averages and records."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.rows import decode
from qo.store.sqlite.shared.view import View
from qo.values import Mean, Observed, Record, SeriesPoint


def series(view: View, *, prefix: str = "", since_minute: int = 0) -> tuple[SeriesPoint, ...]:
    rows = view.db.execute(
        "SELECT name, minute, count, total_ms FROM figure WHERE minute >= ? AND substr(name, 1, ?) = ?"
        " ORDER BY name, minute",
        (since_minute, len(prefix), prefix),
    )
    return tuple(
        SeriesPoint(name=name, minute=minute, count=count, total_ms=total_ms) for name, minute, count, total_ms in rows
    )


def observed(view: View, names: Sequence[str] = (), *, tasks: Sequence[str] = ()) -> Observed:
    return Observed(averages=_averages(view.db, names), errors={task: _errors(view.db, task) for task in tasks})


def _averages(db: apsw.Connection, names: Sequence[str]) -> dict[str, Mean]:
    found = {}
    for name in names:
        row = sql.row(db, "SELECT value, square, count FROM average WHERE name = ?", (name,))
        if row is not None:
            found[name] = Mean(value=row[0], square=row[1], count=row[2])
    return found


def _errors(db: apsw.Connection, task: str) -> tuple[float, ...]:
    return tuple(
        ratio for (ratio,) in db.execute("SELECT ratio FROM estimate_error WHERE task = ? ORDER BY id", (task,))
    )


def records(view: View, name: str | None = None, *, prefix: str = "") -> dict[str, Record]:
    where, bindings = ("name = ?", (name,)) if name is not None else ("substr(name, 1, ?) = ?", (len(prefix), prefix))
    rows = view.db.execute(f"SELECT name, version, value FROM record WHERE {where} ORDER BY name", bindings)
    return {name: Record(version=version, value=decode(value)) for name, version, value in rows}
