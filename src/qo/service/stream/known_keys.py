"""The order keys of the jobs in line that this process has seen, so that it can say where a job was that left."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

from qo.values import InLine

MOST_KEYS = 20_000
READINGS_REMEMBERED = 3


class KnownKeys:
    """A bounded number of keys, by job. Those of the front of the line are kept longest."""

    def __init__(self, line: Sequence[InLine]) -> None:
        self._keys = OrderedDict((job.id, job.key) for job in line)
        self._last_reading: Sequence[InLine] = ()
        self._changed: deque[set[str]] = deque([set()], maxlen=READINGS_REMEMBERED)
        """The jobs that changed since each of the last readings."""

    def get(self, job_id: str) -> int | None:
        return self._keys.get(job_id)

    def change(self, job_id: str, key: int | None) -> int | None:
        """Note that a job has this key now, None if it is not in line. Returns the key that it had."""
        before = self._keys.pop(job_id, None)
        self._changed[-1].add(job_id)
        if key is not None:
            self._keys[job_id] = key
            self._forget()
        return before

    def take(self, line: Sequence[InLine]) -> None:
        """Note the jobs of a reading of the line that were not known: of a long line only the front is, and it gets
        shorter.

        A reading may be older or newer than the last change that was noted here. So it is used only when the next one
        comes, and without the jobs that changed meanwhile.
        """
        changed = set[str]().union(*self._changed)
        for job in self._last_reading:
            if job.id in self._keys:
                self._keys.move_to_end(job.id)  # it is kept longer than those further back
            elif job.id not in changed:
                self._keys[job.id] = job.key
        self._forget()
        self._last_reading = line
        self._changed.append(set())

    def _forget(self) -> None:
        while len(self._keys) > MOST_KEYS:
            self._keys.popitem(last=False)
