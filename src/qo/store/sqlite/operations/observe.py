"""observe: exponential moving averages and how wrong estimates were.

Writes   averages; the newest estimate errors of a task
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from qo.store.sqlite.shared.step import Step
from qo.values import Average


def observe(
    step: Step,
    observations: Sequence[tuple[Average, float]] = (),
    *,
    errors: Mapping[str, Sequence[float]] = MappingProxyType({}),
    keep_errors: int = 500,
) -> None:
    for average, value in observations:
        move_average(step, average, value)
    for task, ratios in errors.items():
        _remember_errors(step, task, ratios, keep_errors)


def move_average(step: Step, average: Average, value: float) -> None:
    step.writes.add(
        "average",
        "INSERT INTO average VALUES (?1, ?2 + ?3 * (?4 - ?2), ?2 * ?2 + ?3 * (?4 * ?4 - ?2 * ?2), 1)"
        " ON CONFLICT DO UPDATE SET value = value + ?3 * (?4 - value),"
        " square = square + ?3 * (?4 * ?4 - square), count = count + 1",
        (average.name, float(average.first), float(average.weight), float(value)),
    )


def _remember_errors(step: Step, task: str, ratios: Sequence[float], keep: int) -> None:
    step.db.executemany(
        "INSERT INTO estimate_error (task, ratio) VALUES (?, ?)", [(task, float(ratio)) for ratio in ratios]
    )
    step.db.execute(
        "DELETE FROM estimate_error WHERE task = ?1 AND id <="
        " (SELECT id FROM estimate_error WHERE task = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
        (task, keep),
    )
