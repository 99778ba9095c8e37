"""What fails for now and is tried again, told once."""

from __future__ import annotations

import logging

from qo.errors import QoError

worker_log = logging.getLogger("qo.worker")


class Trouble:
    """Something that fails for now and is tried again: told when it begins, and then not until it has worked."""

    def __init__(self, words: str, log: logging.Logger = worker_log) -> None:
        self._words = words
        self._log = log
        self._told = False

    def tell(self, error: QoError) -> None:
        self._log.log(logging.DEBUG if self._told else logging.WARNING, "%s, trying again: %s", self._words, error)
        self._told = True

    @property
    def is_told(self) -> bool:
        """Whether it failed when it was last tried."""
        return self._told

    def over(self) -> None:
        self._told = False
