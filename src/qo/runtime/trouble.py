"""What fails for now and is tried again, told once."""

from __future__ import annotations

import logging

from qo.errors import QoError

log = logging.getLogger("qo.worker")


class Trouble:
    """Something that fails for now and is tried again: told when it begins, and then not until it has worked."""

    def __init__(self, words: str) -> None:
        self._words = words
        self._told = False

    def tell(self, error: QoError) -> None:
        log.log(logging.DEBUG if self._told else logging.WARNING, "%s, trying again: %s", self._words, error)
        self._told = True

    def over(self) -> None:
        self._told = False
