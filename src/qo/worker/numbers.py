"""The numbers of one worker: what it runs, and how its runs have ended."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from qo.job import State

LOST = "lost"
"""Stands among the states for a run whose lease was given away, so that the job's state is no longer this worker's."""


class WorkerNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker does now, and what it has done."""

    running: int
    """How many jobs run or are about to."""
    free: int
    """How many more jobs may run; none in a worker that does not run or is about to stop."""
    ended: Mapping[str, int]
    """How many runs have ended since the worker was made, by the state that the job went into, and `lost`."""


def no_ends() -> dict[str, int]:
    """A count of 0 for each way in which a run can end."""
    ends = (State.SUCCEEDED, State.FAILED, State.CANCELLED, State.SCHEDULED, State.CONFIRMING, State.QUEUED)
    return {**{str(state): 0 for state in ends}, LOST: 0}
