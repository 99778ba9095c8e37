"""A clock that stands still for limiters in process. A test module imports the fixture."""

from __future__ import annotations

import pytest

from qo.limits import limiter as limiter_module
from qo.limits.in_process.slots import SlotsInProcess


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(name="clock")
def clock_fixture(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(limiter_module, "SlotsInProcess", lambda: SlotsInProcess(clock=clock))
    return clock
