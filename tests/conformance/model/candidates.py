"""Examining in the reference model: the job that a claim looks at next, and by definition all that it must take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from tests.conformance.model.kept import Kept
from tests.conformance.model.line import Line
from tests.conformance.model.rows import gates
from tests.conformance.model.state import JobRow, TicketRow
from tests.conformance.model.suspects import Suspects, Taker
from tests.conformance.model.turns import kept_now


class Candidates(Line, Suspects):
    def is_candidate(self, waiting: JobRow | TicketRow, kept: Kept) -> bool:
        """Ready, or parked in a group that has room for it by now. Of several in one lane, the first is looked at."""
        group = self.parked(waiting)
        return group is None or self.has_room_for(group, waiting, kept)

    def gates_have_room(self, job: JobRow, kept: Kept, spoken_for: Counter[str] | None = None) -> bool:
        spoken_for = spoken_for or Counter()
        return all(self.has_room_for(gate, job, kept, spoken_for[gate]) for gate in gates(job.task))

    def first_candidate(self, tasks: Collection[str], kept: Kept, taker: Taker) -> JobRow | None:
        """The job that a claim looks at next."""
        wanted = (job for job in self.in_line() if job.task in tasks and self.may_look_at(job, taker))
        behind_gates = (job for job in wanted if self.gates_have_room(job, kept))
        return next((job for job in behind_gates if self.is_candidate(job, kept)), None)

    def search_whole_line(self, tasks: Collection[str], capacity: int, taker: Taker) -> list[str]:
        """The rule of qo itself, without parking: the first in line whose every group has room for it, again and
        again. What a claim takes must be the same."""
        line, taken_in, taker = self.in_line(), Counter[str](), replace(taker)
        kept = kept_now(self, taker.now)
        taken: list[str] = []

        def could_start(job: JobRow) -> bool:
            groups = self.groups_of_job(job)
            if job.id in taken or self.is_overdue(job, taker.now):
                return False
            return all(self.has_room_for(one, job, kept, taken_in[one]) for one in groups)

        while len(taken) < capacity:
            eligible = (job for job in line if job.task in tasks and self.may_look_at(job, taker) and could_start(job))
            first = next(eligible, None)
            if first is None or not taker.may_take(first):
                break
            taken.append(first.id)
            taken_in.update(self.groups_of_job(first))
            kept = kept.without(first)
            taker.note(first)
        return taken
