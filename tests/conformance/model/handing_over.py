"""Handing over in the reference model: free slots go to waiting callers, past no job that could start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from qo.event import GRANTED
from qo.store.contract import HANDED_OVER_LEASE_MS
from qo.values import Suspicion, looks
from tests.conformance.model.admission import Admission
from tests.conformance.model.candidates import Candidates
from tests.conformance.model.kept import Kept
from tests.conformance.model.state import JobRow, Lane, TicketRow, certain
from tests.conformance.model.turns import kept_now, pass_over


class HandingOver(Candidates, Admission):
    def hand_over(self, now: int, asking: Collection[str] = ()) -> None:
        """Give free slots to waiting callers, first in order first, past nobody who could go now.

        `asking` are the callers in whose own call this happens: their tickets are alive, and what they get is a
        full lease.
        """
        kept = kept_now(self, now)
        spoken_for = Counter[str]()  # slots by group, for jobs that their workers will take
        promised = Counter[str]()  # how many jobs by worker, likewise
        done_with: list[JobRow | TicketRow] = []
        done_lanes: set[Lane] = set()
        granted: list[tuple[int, tuple[str, ...]]] = []
        put_aside: list[JobRow | TicketRow] = []
        overdue: list[JobRow] = []
        examined = 0
        while examined < self.bounds.examine:
            waiting = self.next_to_hand_over(spoken_for, promised, done_with, done_lanes, kept, now)
            if waiting is None:
                break
            blocking = self.first_without_room_for(waiting, kept)
            groups = self.all_groups(waiting)
            examined += looks(len(groups))
            if isinstance(waiting, TicketRow) and self.is_given_up(waiting, asking, now):
                del self.state.tickets[waiting.holder]
                kept = kept.without(waiting)
            elif isinstance(waiting, JobRow) and self.is_overdue(waiting, now):
                self.fail_overdue(waiting, now)
                overdue.append(waiting)
            elif blocking is not None:
                self.park(waiting, blocking, now)
                put_aside.append(waiting)
            elif not all(self.has_room_for(group, waiting, kept, spoken_for[group]) for group in groups):
                done_lanes.add(self.lane_of(waiting))
            elif isinstance(waiting, TicketRow):
                self.grant(waiting, now, in_own_call=waiting.holder in asking)
                granted.append((waiting.key, groups))
                kept = kept.without(waiting)
            else:
                done_with.append(waiting)
                spoken_for.update(groups)
                promised[self.workers_with_a_place(waiting.task, promised, now)[0]] += 1
                kept = kept.without(waiting)
        pass_over(self, granted, put_aside, now)
        self.give_quota_back(overdue, now)

    def is_given_up(self, ticket: TicketRow, asking: Collection[str], now: int) -> bool:
        return ticket.expires_at <= self.counted(now) and ticket.holder not in asking

    def next_to_hand_over(
        self,
        spoken_for: Counter[str],
        promised: Counter[str],
        done_with: list[JobRow | TicketRow],
        done_lanes: set[Lane],
        kept: Kept,
        now: int,
    ) -> JobRow | TicketRow | None:
        """The first candidate, or None as soon as no caller is among them."""

        def is_open(waiting: JobRow | TicketRow) -> bool:
            if self.lane_of(waiting) in done_lanes or any(waiting is other for other in done_with):
                return False
            return self.is_candidate(waiting, kept)

        def has_taker(job: JobRow) -> bool:
            has_capacity = bool(self.workers_with_a_place(job.task, promised, now))
            return has_capacity and self.gates_have_room(job, kept, spoken_for)

        tickets = [ticket for ticket in self.state.tickets.values() if is_open(ticket)]
        if not tickets:
            return None
        innocent = [job for job in self.in_line() if job.suspicion is Suspicion.NONE]
        jobs = [job for job in innocent if is_open(job) and has_taker(job)]
        candidates: list[JobRow | TicketRow] = [*tickets, *jobs]
        return min(candidates, key=lambda waiting: certain(waiting.key))

    def workers_with_a_place(self, task: str, promised: Counter[str], now: int) -> list[str]:
        """The live workers that handle a task and have free capacity, by name."""
        return sorted(
            worker.name
            for worker in self.state.workers.values()
            if worker.expires_at > now
            and worker.handles(task)
            and worker.capacity - self.running(worker.name) - promised[worker.name] > 0
            and not self.runs_alone(worker.name)
        )

    def grant(self, ticket: TicketRow, now: int, *, in_own_call: bool) -> None:
        del self.state.tickets[ticket.holder]
        lease = self.take(
            ticket.holder,
            groups=ticket.groups,
            waited_ms=now - ticket.joined_at,
            is_job=False,
            claim=None,
            worker=ticket.worker,
            lease_ms=ticket.lease_ms if in_own_call else min(ticket.lease_ms, HANDED_OVER_LEASE_MS),
            now=now,
        )
        if not in_own_call:
            detail = {"token": str(lease.token), "slots": self.limited_slots(lease), "expires_at": self.ends_at(lease)}
            self.tell(GRANTED, ticket.holder, detail, now)
