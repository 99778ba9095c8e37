"""The reference model: the contract of `qo/store/contract.py` as a plain program, without I/O.

It is meant to be read as the specification. The rows are in `state.py`. The rules that hold for all operations, as
`qo/store/__init__.py` names them, build on each other in this order:

    telling.py       events, audit entries and figures
    rows.py          what is where, and how it stands in time
    groups.py        room, slots and limits
    lanes.py         lanes, parking and entering
    turns.py         who is passed and takes a turn; the slots that turns keep are in `kept.py`
    line.py          joining, coming back and leaving
    admission.py     tiers and the daily quota
    suspects.py      which jobs a worker may look at
    candidates.py    examining for a claim
    handing_over.py  slots for callers that wait
    upkeep.py        what time does

Reading is in `job_reads.py` and `reads.py`, the snapshot in `snapshots.py`. The operations are in `submit.py`,
`running.py`, `people.py` and, for callers, workers, upkeep and figures, here.

Every writing operation is one step: an error leaves everything as it was, and after each step the invariants of
the design are checked on the model's own rows (`step.py`, `invariants.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from qo.job import moment
from qo.values import (
    Audited,
    Average,
    Grant,
    Portion,
    Record,
    Registered,
    Registration,
    Source,
    Ticket,
    UpkeepDone,
    UpkeepRules,
)
from tests.conformance.model.people import People
from tests.conformance.model.running import Running
from tests.conformance.model.state import TicketRow, WorkerRow
from tests.conformance.model.step import step
from tests.conformance.model.submit import Submitting


class Model(Submitting, Running, People):
    # --- slots without a job --------------------------------------------------------------------------------------

    @step
    def acquire(self, tickets: Sequence[Ticket], *, now: int) -> list[Grant]:
        if not tickets:
            return []
        self.deal_with_what_is_due(now)
        asking: list[str] = []
        for ticket in tickets:
            asking.append(ticket.holder)
            if self.lease_of_caller(ticket.holder) is None:
                self.ask(ticket, now)
            self.hand_over(now, asking)
            if ticket.wait_ms == 0:
                self.state.tickets.pop(ticket.holder, None)
        return [self.granted(ticket.holder) for ticket in tickets]

    def ask(self, ticket: Ticket, now: int) -> None:
        """Wait in line for the slots, or go on waiting: at the same place, for the same groups."""
        waiting = self.state.tickets.get(ticket.holder)
        if waiting is not None:
            waiting.lease_ms, waiting.wait_ms = ticket.lease_ms, ticket.wait_ms
            waiting.expires_at = self.counted(now) + ticket.wait_ms
            return
        self.drop_empty_lanes()
        row = TicketRow(
            holder=ticket.holder,
            groups=ticket.groups,
            lease_ms=ticket.lease_ms,
            wait_ms=ticket.wait_ms,
            worker=ticket.worker,
            key=self.draw_key(ticket.priority, boost=0),
            joined_at=now,
            expires_at=self.counted(now) + ticket.wait_ms,
        )
        self.state.tickets[ticket.holder] = row
        self.enter(row, now)

    def granted(self, holder: str) -> Grant:
        lease = self.lease_of_caller(holder)
        if lease is None:
            return Grant(holder=holder, waiting=holder in self.state.tickets)
        return Grant(
            holder=holder,
            token=str(lease.token),
            slots=self.limited_slots(lease),
            expires_at=moment(self.ends_at(lease)),
        )

    @step
    def release(self, holders: Sequence[tuple[str, str | None]], *, now: int) -> list[bool]:
        answers = [self.release_one(holder, token) for holder, token in holders]
        self.hand_over(now)
        return answers

    def release_one(self, holder: str, token: str | None) -> bool:
        if token is None and self.state.tickets.pop(holder, None) is not None:
            return True
        lease = self.lease_of_caller(holder)
        if lease is None or token not in (None, str(lease.token)):
            return False
        del self.state.leases[lease.token]
        return True

    # --- workers --------------------------------------------------------------------------------------------------

    @step
    def register(self, registration: Registration, *, now: int) -> Registered:
        known = self.state.workers.get(registration.name)
        is_own = known is not None and known.instance == registration.instance
        if not registration.tasks:
            if is_own:
                del self.state.workers[registration.name]
            self.hand_over(now)
            return Registered(now_ms=now)
        if known is not None and known.expires_at > now and not is_own and known.instance != registration.replaces:
            return Registered(namesake=self.worker_info(known), now_ms=now)
        self.state.workers[registration.name] = WorkerRow(
            name=registration.name,
            instance=registration.instance,
            tasks=registration.tasks,
            capacity=registration.capacity,
            lifetime_ms=registration.lifetime_ms,
            registered_at=now,
            heard_at=now,
            expires_at=now + registration.lifetime_ms,
            host=registration.host,
            pid=registration.pid,
        )
        changed, ignored = self.set_limits_by(registration.limits, registration.name, now)
        for options in registration.tasks:
            no_longer_named = set(self.options_of(options.name).groups) - set(options.groups)
            self.state.tasks[options.name] = options
            for job in self.in_line():
                if job.task == options.name and self.parked(job) in no_longer_named:
                    self.look_at_lane(job, now)
            ignored += self.grant_limit(options.name, options.limit, Source.TASK, now)
        self.state.lease_ms, self.state.turn_after = registration.lease_ms, registration.turn_after
        self.hand_over(now)
        return Registered(changed=tuple(changed), ignored=tuple(ignored), now_ms=now)

    # --- upkeep ---------------------------------------------------------------------------------------------------

    @step
    def catch_up(self, *, now: int) -> Portion:
        return self.deal_with_what_is_due(now)

    @step
    def upkeep(self, rules: UpkeepRules, *, now: int) -> UpkeepDone:
        self.left, self.left_over = self.bounds.portion, False
        aged = [] if rules.aging_period_ms is None else self.age_jobs(rules.aging_period_ms, now)
        failed = []
        if rules.unconfirmed_after_ms is not None and rules.unconfirmed_error is not None:
            failed = self.fail_those_unconfirmed(rules.unconfirmed_after_ms, rules.unconfirmed_error, now)
        reminders = self.hand_out_reminders(rules.reminder_ages_ms, now)
        forgotten = [] if rules.keep is None else self.forget_the_past(rules.keep, now)
        self.hand_over(now)
        return UpkeepDone(
            aged=tuple(aged),
            failed=tuple(failed),
            reminders=tuple(reminders),
            forgotten=tuple(forgotten),
            more=self.left_over,
        )

    # --- figures for estimates, service data ----------------------------------------------------------------------

    @step
    def observe(
        self,
        observations: Sequence[tuple[Average, float]] = (),
        *,
        errors: Mapping[str, Sequence[float]] = MappingProxyType({}),
        keep_errors: int = 500,
    ) -> None:
        for average, value in observations:
            self.move_average(average, value)
        for task, ratios in errors.items():
            self.state.estimate_errors[task] = (*self.state.estimate_errors.get(task, ()), *ratios)[-keep_errors:]

    @step
    def put_record(self, name: str, value: Any, *, version: int, audited: Audited | None = None, now: int) -> bool:
        if self.state.records.get(name, Record()).version != version:
            return False
        if value is None:
            self.state.records.pop(name, None)
        else:
            self.state.records[name] = Record(version=version + 1, value=value)
        if audited is not None:
            self.audit_entry(audited.by, audited.action, audited.subject, audited.detail, now)
        return True
