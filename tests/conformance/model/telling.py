"""What every step of the reference model writes besides its rows: events, audit entries and figures."""

from __future__ import annotations

from typing import Any

from qo.event import Event
from qo.job import moment
from qo.policy.audit import audit_entry
from qo.values import Average, Bounds, Mean
from tests.conformance.model.state import ModelState

MINUTE_MS = 60_000


class Telling:
    """The state and the bounds, and what is told and counted of a change."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.bounds = bounds or Bounds()
        self.state = ModelState()

    def tell(self, kind: str, subject: str, detail: dict[str, Any], now: int) -> None:
        self.state.last_event += 1
        self.state.events.append(Event(self.state.last_event, moment(now), str(kind), subject, detail))

    def audit_entry(self, by: str | None, action: str, subject: str, detail: dict[str, Any], now: int) -> None:
        self.state.last_audit += 1
        self.state.audit.append(audit_entry(self.state.last_audit, moment(now), by, action, subject, detail))

    def count(self, name: str, total_ms: int, now: int) -> None:
        minute = (name, now // MINUTE_MS)
        count, total = self.state.series.get(minute, (0, 0))
        self.state.series[minute] = (count + 1, total + total_ms)

    def move_average(self, average: Average, new: float) -> None:
        mean = self.state.averages.get(average.name)
        if mean is None:
            mean = Mean(value=average.first, square=average.first * average.first, count=0)
        value = mean.value + average.weight * (new - mean.value)
        square = mean.square + average.weight * (new * new - mean.square)
        self.state.averages[average.name] = Mean(value=value, square=square, count=mean.count + 1)
