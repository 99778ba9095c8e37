"""A step in the background is repeated whatever goes wrong, and the log has each trouble once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from qo.errors import StoreAway, StoreUnavailable
from qo.loops.repeating import repeat
from qo.loops.trouble import Trouble

LOG = logging.getLogger("qo.test")
EVERY_SECONDS, RETRY_SECONDS = 60.0, 1.0


class Steps:
    """Raises or returns what it is given, one a step, and then ends the loop. Notes the pauses."""

    def __init__(self, *results: Exception | None) -> None:
        self._results = list(results)
        self.pauses: list[float] = []

    async def step(self) -> None:
        result = self._results.pop(0)
        if result is not None:
            raise result

    async def sleep(self, seconds: float) -> None:
        if not self._results:
            raise asyncio.CancelledError
        self.pauses.append(seconds)


async def repeated(steps: Steps, *, retry_seconds: float | None = None) -> None:
    trouble = Trouble("it cannot be done for now", LOG)
    with pytest.raises(asyncio.CancelledError):
        await repeat(
            steps.step,
            pause=lambda: EVERY_SECONDS,
            trouble=trouble,
            retry_seconds=retry_seconds,
            sleep=steps.sleep,
        )


async def test_it_pauses_before_every_step_and_less_after_a_failure() -> None:
    steps = Steps(None, StoreAway("away"), StoreAway("away"), None, None)

    await repeated(steps, retry_seconds=RETRY_SECONDS)

    assert steps.pauses == [EVERY_SECONDS, EVERY_SECONDS, RETRY_SECONDS, RETRY_SECONDS, EVERY_SECONDS]


async def test_an_error_of_the_store_is_one_warning_until_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    away = [StoreAway("away")] * 3

    with caplog.at_level(logging.INFO, logger="qo.test"):
        await repeated(Steps(*away, None, *away))

    assert caplog.messages == ["it cannot be done for now, trying again: away"] * 2
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


async def test_an_unexpected_error_is_logged_once_with_its_traceback_and_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="qo.test"):
        await repeated(Steps(TypeError("a fault"), TypeError("a fault"), TypeError("a fault")))

    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "TypeError: a fault" in caplog.text


async def test_an_error_of_another_class_is_news(caplog: pytest.LogCaptureFixture) -> None:
    errors = [StoreUnavailable("full"), KeyError("a fault"), StoreUnavailable("full"), KeyError("a fault")]

    with caplog.at_level(logging.INFO, logger="qo.test"):
        await repeated(Steps(*errors))

    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


@pytest.mark.parametrize("step", [asyncio.Event().wait])
async def test_a_cancellation_ends_it_in_the_middle_of_a_step(step: Callable[[], Awaitable[object]]) -> None:
    repeating = asyncio.create_task(repeat(step, pause=lambda: 0.0, trouble=Trouble("it cannot be done", LOG)))
    await asyncio.sleep(0.01)
    repeating.cancel()

    with pytest.raises(asyncio.CancelledError):
        await repeating
