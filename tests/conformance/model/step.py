"""One step of the reference model: wholly or not at all, and never against an invariant."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from qo.job import State
from qo.values import Bounds
from tests.conformance.model.invariants import check_invariants
from tests.conformance.model.snapshots import Snapshots
from tests.conformance.model.telling import MINUTE_MS

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")
Part = TypeVar("Part", bound="Steps")


def step(
    operation: Callable[Concatenate[Part, Arguments], Answer],
) -> Callable[Concatenate[Part, Arguments], Answer]:
    """Wholly or not at all, and never against an invariant."""

    @wraps(operation)
    def whole_step(self: Part, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        self.before = self.state.copy()
        try:
            answer = operation(self, *args, **kwargs)
        except BaseException:
            self.state = self.before.copy()
            raise
        self.drop_empty_lanes()
        now = kwargs.get("now")
        if isinstance(now, int):
            self.note_depth(now)
        self.check_invariants(now if isinstance(now, int) else None)
        return answer

    return whole_step


class Steps(Snapshots):
    def __init__(self, bounds: Bounds | None = None) -> None:
        super().__init__(bounds)
        self.before = self.state.copy()

    def note_depth(self, now: int) -> None:
        depth = len(self.in_line())
        if depth != sum(job.state is State.QUEUED for job in self.before.jobs.values()):
            self.state.series["depth", now // MINUTE_MS] = (depth, 0)

    def check_invariants(self, now: int | None) -> None:
        check_invariants(self, self.before, now)
