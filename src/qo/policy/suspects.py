"""Suspects: jobs whose lease ran out. `store/contract.py` has the rule, and a worker keeps its half of it here."""

from __future__ import annotations

from qo.values import Suspicion

FIRST_ALLOWANCE = 1
"""How many suspects a worker runs at once when it begins."""


def suspicion_of(*, attempts: int, max_attempts: int) -> Suspicion:
    """The suspicion of a suspect that has had so many starts."""
    return Suspicion.LAST if attempts + 1 >= max_attempts else Suspicion.SUSPECT


class Allowance:
    """How many suspects a worker may run at once: twice as many each time that number of them ended, in whatever way,
    without ending the process."""

    def __init__(self) -> None:
        self.suspects = FIRST_ALLOWANCE
        self._ended = 0

    def note_end(self) -> None:
        """A suspect has ended, and the process lives."""
        self._ended += 1
        if self._ended == self.suspects:
            self.suspects *= 2
            self._ended = 0
