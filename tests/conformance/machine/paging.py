"""Actions of the state machine: a list is read page by page, while everything else goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hypothesis import strategies as st

from qo.job import State
from tests.conformance.machine.scene import Scene, action
from tests.conformance.model.state import certain


class Paging(Scene):
    after: str | None = None
    newest_first: bool = False
    found: Counter[str]
    stayed: Mapping[str, tuple[bool, int]] = MappingProxyType({})
    """The jobs that have been at the same place since the first page, with that place."""

    def do(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        answer = super().do(operation, *args, **kwargs)
        self.note_places()
        return answer

    def note_places(self) -> None:
        places = self.places()
        self.stayed = {job_id: place for job_id, place in self.stayed.items() if places.get(job_id) == place}

    @action(4, limit=st.integers(1, 4), newest_first=st.booleans())
    def read_a_page(self, limit: int, newest_first: bool) -> None:
        """The next page; after the last one everything is read anew. A job that stayed where it was came once."""
        if self.after is None:
            self.newest_first, self.found, self.stayed = newest_first, Counter(), self.places()
        page = self.both.do("jobs", limit=limit, newest_first=self.newest_first, after=self.after)
        self.after = page.next
        self.found.update(job.id for job in page.jobs)
        if self.after is None:
            came = {job_id: self.found[job_id] for job_id in self.stayed}
            assert set(came.values()) <= {1}, f"{came}\n{self.both.history()}"

    def places(self) -> dict[str, tuple[bool, int]]:
        jobs = self.state.jobs.values()
        return {job.id: (True, certain(job.key)) if job.state is State.QUEUED else (False, job.number) for job in jobs}

    @action(limit=st.integers(0, 3))
    def read_the_line(self, limit: int) -> None:
        page = self.both.do("line", limit=limit)
        if page.next is not None:
            self.both.do("line", limit=limit, after=page.next)
