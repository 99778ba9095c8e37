"""Actions of the state machine: what people change about jobs, users and limits."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from qo.job import ENDED, HELD, State
from qo.values import Limit, Source, Unlimited
from tests.conformance.machine.scene import UNKNOWN, Scene, action
from tests.conformance.machine.strategies import (
    PARENTS,
    USERS,
    by,
    configured_limits,
    groups,
    limits,
    messages,
    priorities,
    slots,
    sources,
    standings,
)


class People(Scene):
    """Jobs are reprioritised, moved, cancelled, retried, confirmed; users change their tier."""

    @action(2, when=lambda self: self.state.jobs, priority=priorities, by=by)
    def set_priority(self, data: st.DataObject, priority: int, by: str | None) -> None:
        job_id = self.pick_job(data, State.QUEUED, State.SCHEDULED, State.WAITING, State.CONFIRMING)
        self.do("set_priority", priority, job_id=job_id, by=by)

    @action(
        when=lambda self: self.state.parents, parent=st.sampled_from([*PARENTS, UNKNOWN]), priority=priorities, by=by
    )
    def set_priority_of_a_parent(self, parent: str, priority: int, by: str | None) -> None:
        self.do("set_priority", priority, parent=parent, by=by)

    @action(3, when=lambda self: any(entry.action in ("priority", "move") for entry in self.state.audit), by=by)
    def undo_a_priority(self, data: st.DataObject, by: str | None) -> None:
        entry = self.an_entry(data, "priority", "move")
        former = entry.detail["from"]
        priority = former if entry.action == "priority" else former["priority"]
        self.do("set_priority", priority, job_id=entry.subject, by=by, undoes=entry.id)

    @action(3, when=lambda self: any(entry.action == "move" for entry in self.state.audit), by=by)
    def undo_a_move(self, data: st.DataObject, by: str | None) -> None:
        entry = self.an_entry(data, "move")
        former = {side: entry.detail["from"][side] for side in ("before", "after")}
        beside = [{side: other} for side, other in former.items() if other not in (None, entry.subject)]
        if beside:
            self.do("move", entry.subject, **data.draw(st.sampled_from(beside)), by=by, undoes=entry.id)

    def move_beside(self, data: st.DataObject, job_id: str, other: str, by: str | None) -> None:
        side = data.draw(st.sampled_from(["before", "after"]))
        self.do("move", job_id, **{side: other}, by=by)

    @action(2, when=lambda self: len(self.jobs_in(State.QUEUED)) > 1, by=by)
    def move(self, data: st.DataObject, by: str | None) -> None:
        job_id, other = self.pick_job(data, State.QUEUED), self.pick_job(data, State.QUEUED)
        if job_id != other:
            self.move_beside(data, job_id, other, by)

    @action(2, when=lambda self: len(self.jobs_in(State.QUEUED)) > 2)
    def move_many_beside_one(self, data: st.DataObject) -> None:
        """Until there is no place left there and others have to be spread out."""
        other, *moved = data.draw(st.permutations(self.jobs_in(State.QUEUED)))
        side = data.draw(st.sampled_from(["before", "after"]))
        for turn in range(data.draw(st.sampled_from([8, 3]))):
            if other in self.jobs_in(State.QUEUED) and moved[turn % len(moved)] in self.jobs_in(State.QUEUED):
                self.do("move", moved[turn % len(moved)], **{side: other})

    @action(2, when=lambda self: self.state.jobs, message=messages, by=by)
    def cancel(self, data: st.DataObject, message: str | None, by: str | None) -> None:
        job_id = self.pick_job(data, *set(State) - ENDED)
        self.do("cancel", job_id=job_id, message=message, by=by)

    @action(2, when=lambda self: self.jobs_in(*HELD))
    def cancel_a_job_that_runs(self, data: st.DataObject) -> None:
        self.do("cancel", job_id=data.draw(st.sampled_from(self.jobs_in(*HELD))))

    @action(9, when=lambda self: self.jobs_of_deferring_users())
    def cancel_for_a_refund(self, data: st.DataObject) -> None:
        """So that deferred jobs move forward."""
        self.do("cancel", job_id=data.draw(st.sampled_from(self.jobs_of_deferring_users())))

    def jobs_of_deferring_users(self) -> list[str]:
        users = {job.user for job in self.state.jobs.values() if job.deferred}
        return [job.id for job in self.state.jobs.values() if job.user in users and job.started_at is None]

    @action(when=lambda self: self.state.parents, parent=st.sampled_from([*PARENTS, UNKNOWN]), message=messages, by=by)
    def cancel_a_parent(self, parent: str, message: str | None, by: str | None) -> None:
        self.do("cancel", parent=parent, message=message, by=by)

    @action(6, when=lambda self: self.jobs_in(State.FAILED), by=by)
    def retry(self, data: st.DataObject, by: str | None) -> None:
        self.do("retry", self.pick_job(data, State.FAILED), by=by)

    @action(8, when=lambda self: self.jobs_in(State.CONFIRMING), by=by)
    def confirm(self, data: st.DataObject, by: str | None) -> None:
        self.do("confirm", self.pick_job(data, State.CONFIRMING), by=by)

    @action(2, user=st.sampled_from(USERS), standing=standings, by=by)
    def set_tier(self, user: str, standing: Any, by: str | None) -> None:
        self.do("set_tier", user, standing, by=by)


class Limits(Scene):
    """Limits are set, changed and removed, groups paused, slots revoked."""

    @action(2, wanted=st.lists(limits, min_size=1, max_size=2), by=by)
    def set_limits(self, wanted: list[Limit], by: str | None) -> None:
        self.do("set_limits", wanted, by=by)

    @action(2, when=lambda self: self.limited_groups(), number=slots, by=by)
    def change_a_limit(self, data: st.DataObject, number: int, by: str | None) -> None:
        group = data.draw(st.sampled_from(self.limited_groups()))
        self.do("set_limits", [Limit(group=group, slots=number, source=Source.OPERATOR)], by=by)

    @action(2, when=lambda self: self.limited_groups(), by=by)
    def remove_limit(self, data: st.DataObject, by: str | None) -> None:
        group = data.draw(st.sampled_from([*self.limited_groups(), UNKNOWN]))
        self.do("set_limits", [Unlimited(group=group)], by=by)

    @action(wanted=configured_limits, by=by)
    def apply_the_configuration(self, wanted: tuple[Limit, ...], by: str | None) -> None:
        self.do("set_limits", list(wanted), exactly=Source.CONFIGURATION, by=by)

    @action(when=lambda self: self.limited_groups(), source=sources)
    def remove_a_limit_of_one_source(self, data: st.DataObject, source: Source) -> None:
        group = data.draw(st.sampled_from(self.limited_groups()))
        self.do("set_limits", [Unlimited(group=group, only=source)])

    @action(3, when=lambda self: any(entry.action == "limit" for entry in self.state.audit), by=by)
    def undo_a_limit(self, data: st.DataObject, by: str | None) -> None:
        entry = self.an_entry(data, "limit")
        wanted: list[Limit | Unlimited] = [Unlimited(group=entry.subject)]
        if entry.detail["from"] is not None:
            source = Source(entry.detail["from_source"])
            wanted.append(Limit(group=entry.subject, slots=entry.detail["from"], source=source))
        self.do("set_limits", wanted, by=by, undoes=entry.id)

    @action(3, when=lambda self: any(entry.action in ("pause", "resume") for entry in self.state.audit), by=by)
    def undo_a_pause(self, data: st.DataObject, by: str | None) -> None:
        entry = self.an_entry(data, "pause", "resume")
        self.do("set_paused", entry.subject, entry.action == "resume", by=by, undoes=entry.id)

    def limited_groups(self) -> list[str]:
        return [name for name, row in self.state.groups.items() if row.limit is not None]

    @action(group=groups, by=by)
    def pause(self, group: str, by: str | None) -> None:
        self.do("set_paused", group, True, by=by)

    @action(3, when=lambda self: self.paused_groups(), by=by)
    def resume(self, data: st.DataObject, by: str | None) -> None:
        self.do("set_paused", data.draw(st.sampled_from([*self.paused_groups(), "global"])), False, by=by)

    def paused_groups(self) -> list[str]:
        return [name for name, row in self.state.groups.items() if row.paused]

    @action(2, when=lambda self: self.state.leases, force=st.booleans(), by=by)
    def revoke(self, data: st.DataObject, force: bool, by: str | None) -> None:
        held = [(group, number) for lease in self.state.leases.values() for group, number in lease.slots.items()]
        group, number = data.draw(st.sampled_from([*held, ("global", 0), ("gpu", 3)]))
        self.do("revoke", group, number, force=force, by=by)
