"""Suspects: jobs that may have ended the process that ran them. These rules are a part of the store's contract.

suspect   A job whose lease ran out is a suspect until a lease of it ends in another way: by any outcome, handed back
          included, or because it was revoked. A job that failed when its lease ran out is a suspect if it is retried.
last      A suspect whose next start is its last one (attempts + 1 = max_attempts) is a last suspect. It runs alone:
          only a worker that holds no job lease takes it, nothing else is taken with it, and while it runs
          (`Lease.suspicion` says so), the claims of its worker take nothing.
emptying  A worker that holds job leases passes last suspects by. One worker becomes empty for them instead: when its
          next candidate is a last suspect that could start, its claim ends there. It is the worker with the fewest job
          leases (the first by name of several) among the live workers that handle the task and that the store has
          heard of in the last L ms (`noting` in `store/__init__.py`).
callers   A hand-over (`Store.acquire`) does not look at suspects, so callers may pass them. A worker that runs a last
          suspect has no free capacity for it; one that becomes empty has.
worker    A worker runs one suspect at first, and twice as many each time that number ended (`Allowance`).
"""

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
