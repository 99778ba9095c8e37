"""observe: exponential moving averages and how wrong estimates were.

Writes   averages; the newest estimate errors of a task
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.step import Step
from qo.values import Average

SET_AVERAGE = sql.Insert(
    "average",
    columns=4,
    on_conflict="ON CONFLICT DO UPDATE SET value = excluded.value, square = excluded.square, count = excluded.count",
)


def observe(
    step: Step,
    observations: Sequence[tuple[Average, float]] = (),
    *,
    errors: Mapping[str, Sequence[float]] = MappingProxyType({}),
    keep_errors: int = 500,
) -> None:
    move_averages(step, observations)
    for task, ratios in errors.items():
        _remember_errors(step, task, ratios, keep_errors)


def move_averages(step: Step, observations: Sequence[tuple[Average, float]]) -> None:
    moved: dict[str, tuple[float, float, int]] = {}
    for average, seen in observations:
        name, weight = average.name, average.weight
        value, square, count = moved.get(name) or _average(step, name) or (average.first, average.first**2, 0)
        moved[name] = value + weight * (seen - value), square + weight * (seen * seen - square), count + 1
    SET_AVERAGE.run(step.db, [(name, *figures) for name, figures in moved.items()])


def _average(step: Step, name: str) -> tuple[float, float, int] | None:
    figures: tuple[float, float, int] | None = sql.row(
        step.db, "SELECT value, square, count FROM average WHERE name = ?", (name,)
    )
    return figures


def _remember_errors(step: Step, task: str, ratios: Sequence[float], keep: int) -> None:
    step.db.executemany(
        "INSERT INTO estimate_error (task, ratio) VALUES (?, ?)", [(task, float(ratio)) for ratio in ratios]
    )
    step.db.execute(
        "DELETE FROM estimate_error WHERE task = ?1 AND id <="
        " (SELECT id FROM estimate_error WHERE task = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
        (task, keep),
    )
