"""The settings of the tests of semaphores, and their stores.

A test module imports the fixtures it uses, always `overrides_fixture`, and `clock_fixture` with `clocked_fixture`.
Their functions are not called like the fixtures, so that an argument of a test does not hide an import.
"""

from __future__ import annotations

from typing import Any

import pytest

import qo
from tests.limits.semaphore_staging import NOW, SETTINGS, Staged, queue_on
from tests.worker.clocked import ClockedStore


@pytest.fixture(name="overrides")
def overrides_fixture() -> dict[str, Any]:
    return SETTINGS


@pytest.fixture(name="clock")
def clock_fixture(queue: qo.Queue) -> ClockedStore:
    return ClockedStore(queue.store, now=NOW)


@pytest.fixture(name="clocked")
def clocked_fixture(clock: ClockedStore) -> qo.Queue:
    return queue_on(clock)


@pytest.fixture(name="staged")
def staged_fixture(queue: qo.Queue) -> Staged:
    return Staged(queue.store)
