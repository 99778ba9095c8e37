"""One step of the reference model: wholly or not at all, and never against an invariant."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from model_invariants import check_invariants
from model_reads import Reads
from model_state import ModelState

from qo.store.values import Bounds

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def step(
    operation: Callable[Concatenate[Steps, Arguments], Answer],
) -> Callable[Concatenate[Steps, Arguments], Answer]:
    """Wholly or not at all, and never against an invariant."""

    @wraps(operation)
    def whole_step(self: Steps, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        self.before = self.state.copy()
        try:
            answer = operation(self, *args, **kwargs)
        except BaseException:
            self.state = self.before.copy()
            raise
        self.check_invariants()
        return answer

    return whole_step


class Steps(Reads):
    def __init__(self, bounds: Bounds | None = None) -> None:
        super().__init__(bounds)
        self.before: ModelState = self.state.copy()

    def check_invariants(self) -> None:
        check_invariants(self, self.before)
