"""Something that fails for now and is tried again is logged once."""

from __future__ import annotations

import logging

from qo.errors import QoError

worker_log = logging.getLogger("qo.worker")


class Trouble:
    """Logs the first failure of something that is tried again, and then none until it has worked.

    An error of qo is a warning. Any other error is a fault of a program, so it is logged with its traceback. An error
    of another class than those logged before is news, and is logged too.
    """

    def __init__(self, words: str, log: logging.Logger = worker_log) -> None:
        self._words = words
        self._log = log
        self._logged: set[type[Exception]] = set()

    def tell(self, error: Exception) -> None:
        """Log this failure, as a warning or error if it is news, else for debugging."""
        expected, known = isinstance(error, QoError), type(error) in self._logged
        level = logging.DEBUG if known else logging.WARNING if expected else logging.ERROR
        self._log.log(level, "%s, trying again: %s", self._words, error, exc_info=None if expected or known else error)
        self._logged.add(type(error))

    @property
    def is_told(self) -> bool:
        """Whether it failed when it was last tried."""
        return bool(self._logged)

    def over(self) -> None:
        """It has worked, so the next failure is logged again."""
        if self._logged:
            self._logged.clear()
