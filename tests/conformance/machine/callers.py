"""Actions of the state machine: callers take and give back slots without a job."""

from __future__ import annotations

from hypothesis import strategies as st

from qo.values import Limit, Registration, Source, Submission, TaskOptions, Ticket
from tests.conformance.machine.scene import Scene, action
from tests.conformance.machine.strategies import (
    CALLERS,
    DAY_MS,
    LEASE_MS,
    SECOND_MS,
    TASKS,
    hurried_submissions,
    one_to_four,
    slots,
    some_of,
    tickets,
)


class Callers(Scene):
    """Alone, and in one line with jobs."""

    @action(3, asked=st.lists(tickets(), min_size=1, max_size=3))
    def acquire(self, asked: list[Ticket]) -> None:
        self.do("acquire", asked)

    @action(2, caller=st.sampled_from(CALLERS), number=st.integers(0, 1), group=st.sampled_from(["gpu", "providers"]))
    def acquire_where_it_is_tight(self, caller: str, number: int, group: str) -> None:
        self.do("set_limits", [Limit(group=group, slots=number, source=Source.CONFIGURATION)])
        self.do("acquire", [Ticket(holder=caller, groups=(group, "api"), lease_ms=LEASE_MS, wait_ms=DAY_MS)])

    @action(3, when=lambda self: self.state.tickets or any(not one.is_job for one in self.state.leases.values()))
    def release(self, data: st.DataObject) -> None:
        holders: list[tuple[str, str | None]] = []
        for with_token in data.draw(st.lists(st.booleans(), min_size=1, max_size=2)):
            if with_token:
                holders.append(self.pick_lease(data, of_jobs=False))
            else:
                holders.append((data.draw(st.sampled_from(CALLERS)), None))
        self.do("release", holders)

    @action()
    def callers_compete_with_jobs(self, data: st.DataObject) -> None:
        """A worker of little capacity, jobs it could take, and callers behind them, all for the slots of one group."""
        tasks = tuple(TaskOptions(name=task) for task in TASKS)
        self.do("register", Registration(name="w1", tasks=tasks, capacity=data.draw(st.integers(1, 2))))
        number = data.draw(st.integers(1, 3))
        self.do("set_limits", [Limit(group="gpu", slots=number, source=Source.OPERATOR)])
        jobs = [Submission(id=f"g{self.submitted + index}", task="scan", groups=("gpu",)) for index in range(2)]
        self.submitted += len(jobs)
        self.do("submit", jobs)
        for caller in data.draw(some_of(CALLERS)):
            self.do("acquire", [Ticket(holder=caller, groups=("gpu",), lease_ms=LEASE_MS)])

    @action(2)
    def a_slot_comes_free_before_jobs_that_are_overdue(self, data: st.DataObject) -> None:
        """And before a caller behind them. Some of the jobs have a user whose deferred ones then move forward."""
        tasks = tuple(TaskOptions(name=task) for task in TASKS)
        self.do("register", Registration(name="w1", tasks=tasks, capacity=data.draw(one_to_four), lifetime_ms=DAY_MS))
        self.do("set_limits", [Limit(group="gpu", slots=1, source=Source.OPERATOR)])
        self.do("acquire", [Ticket(holder="c1", groups=("gpu",), lease_ms=LEASE_MS)])
        for _ in range(data.draw(one_to_four)):
            self.do("submit", [data.draw(hurried_submissions(f"h{self.submitted}", task="scan", groups=("gpu",)))])
            self.submitted += 1
        self.do("acquire", [Ticket(holder="c2", groups=("gpu",), lease_ms=LEASE_MS, wait_ms=DAY_MS)])
        self.now += SECOND_MS
        self.do("release", [("c1", None)])

    @action(4, when=lambda self: self.groups_with_callers())
    def make_room_for_callers(self, data: st.DataObject) -> None:
        """Slots that become free are handed over to those that wait."""
        group = data.draw(st.sampled_from(self.groups_with_callers()))
        holders = [(one.holder, None) for one in self.both.model.holders(group) if not one.is_job]
        if self.both.model.group_row(group).paused:
            self.do("set_paused", group, False)
        elif bool(holders) and data.draw(st.booleans()):
            self.do("release", holders)
        else:
            self.do("set_limits", [Limit(group=group, slots=data.draw(slots), source=Source.OPERATOR)])

    def groups_with_callers(self) -> list[str]:
        """Those that waiting callers are put aside in."""
        groups = {self.both.model.parked(ticket) for ticket in self.state.tickets.values()}
        return sorted(group for group in groups if group is not None)
