"""Phases as people meet them: what a waiting one says, and what makes it go on."""

from __future__ import annotations

import pytest

import qo
from qo.job import State
from qo.queue.queue import Queue
from qo.worker.upkeep import Upkeep
from tests.worker.clocked import ClockedStore
from tests.worker.running import soon

MUCH_LATER = 1_900_000_000_000


async def test_a_phase_behind_a_cancelled_phase_says_so_and_goes_on_when_that_is_submitted_again(
    queue: qo.Queue, worker: qo.Worker
) -> None:
    worker.task("build")(lambda: None)
    one = await queue.submit("build", parent="app", phase=1)
    two = await queue.submit("build", parent="app", phase=2)
    await queue.cancel(one.id)

    told = (await queue.why(two.id)).sentence
    await queue.submit("build", parent="app", phase=1)
    await soon(worker.run_until_idle())

    assert told == (
        "It waits for phase 1 of parent app, which was cancelled; "
        "submit that phase again under a new id and this one goes on."
    )
    assert [job.state for job in (await queue.parent("app")).jobs] == [
        State.CANCELLED,
        State.SUCCEEDED,
        State.SUCCEEDED,
    ]


async def test_a_phase_that_is_taken_is_refused_with_what_to_do(queue: qo.Queue) -> None:
    await queue.submit("build", id="one", parent="app", phase=1)

    with pytest.raises(qo.PhaseTaken, match=r"already job 'one'; .* or cancel that job first"):
        await queue.submit("build", parent="app", phase=1)


async def test_a_phase_submitted_after_the_retention_of_the_phase_before_says_what_to_do(
    queue: qo.Queue, worker: qo.Worker
) -> None:
    worker.task("build")(lambda: None)
    await queue.submit("build", parent="app", phase=1)
    await soon(worker.run_until_idle())
    clocked = Queue(ClockedStore(queue.store, now=MUCH_LATER), queue.settings)
    await Upkeep(clocked, notifier=None, cursor=0).tend()  # type: ignore[arg-type]

    two = await queue.submit("build", parent="app", phase=2)
    told = (await queue.why(two.id)).sentence
    await queue.submit("build", parent="app", phase=1)
    await soon(worker.run_until_idle())

    assert two.state is State.WAITING
    assert "it has not been submitted yet, or it ended so long ago that it is no longer kept; submit it" in told
    assert (await queue.get(two.id)).state is State.SUCCEEDED
