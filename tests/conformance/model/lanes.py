"""Lanes in the reference model: alike jobs or callers, of which only the first is looked at, and their parking."""

from __future__ import annotations

from qo.job import State
from qo.policy.groups import kind_of
from tests.conformance.model.groups import Groups
from tests.conformance.model.state import JobRow, Lane, TicketRow, certain


class Lanes(Groups):
    def lane_of(self, waiting: JobRow | TicketRow) -> Lane:
        if isinstance(waiting, TicketRow):
            return ("", waiting.groups)
        job = waiting
        return (job.task, job.priority, job.user, job.project, job.tier, job.parent, job.own_groups, job.suspicion)

    def parked(self, waiting: JobRow | TicketRow) -> str | None:
        """The group in which its lane is parked; None where the lane is ready, or the job is not in line."""
        if isinstance(waiting, JobRow) and waiting.state is not State.QUEUED:
            return None
        return self.state.lanes[self.lane_of(waiting)]

    def is_first_of_its_lane(self, waiting: JobRow | TicketRow) -> bool:
        lane = self.lane_of(waiting)
        keys = [certain(one.key) for one in self.state.in_lanes() if self.lane_of(one) == lane]
        return min(keys) == waiting.key

    def drop_empty_lanes(self) -> None:
        used = {self.lane_of(one) for one in self.state.in_lanes()}
        self.state.lanes = {lane: parked for lane, parked in self.state.lanes.items() if lane in used}

    def look_at_lane(self, first: JobRow | TicketRow, now: int) -> None:
        """Park the lane in the first of its groups that has no room; else it is ready."""
        self.park(first, self.first_without_room(self.groups_to_park_in(first)), now)

    def park(self, first: JobRow | TicketRow, group: str | None, now: int) -> None:
        lane = self.lane_of(first)
        if group is not None and group != self.state.lanes.get(lane):
            self.count(f"rejected:{kind_of(group)}", 0, now)
        self.state.lanes[lane] = group

    def enter(self, waiting: JobRow | TicketRow, now: int) -> None:
        self.drop_empty_lanes()
        if self.is_first_of_its_lane(waiting):
            self.look_at_lane(waiting, now)
