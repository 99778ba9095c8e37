"""A clock that stands still for limiters in process. A test module imports the fixture."""

from __future__ import annotations

import pytest

from qo.runtime import limiter as limiter_module
from qo.runtime.limiter_in_process import SlotsInProcess


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(name="clock")
def clock_fixture(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(limiter_module, "SlotsInProcess", lambda: SlotsInProcess(clock=clock))
    return clock
