"""Counts the replays of the line that a module of qo makes."""

from __future__ import annotations

from types import ModuleType

import pytest

from qo.policy.estimates.forecast import Forecast, forecast_line
from qo.policy.estimates.situation import Situation
from qo.settings import Settings


def counted_replays(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> list[int]:
    """How many jobs were in line at each replay from now on."""
    counted: list[int] = []

    def counting(situation: Situation, settings: Settings) -> Forecast:
        counted.append(len(situation.line))
        return forecast_line(situation, settings)

    monkeypatch.setattr(module, "forecast_line", counting)
    return counted
