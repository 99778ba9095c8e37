"""A Hypothesis state machine that drives the reference model and a store under test side by side.

It names no store. Every action is one or a few steps; `SideBySide` compares answers, whole state and some reads after
each of them. What an action works on (jobs, leases, slots) is picked from the model's present state, so that most
steps mean something; stale tokens, unknown ids and repeated calls are picked now and then.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from model_state import ModelState
from side_by_side import SideBySide, StoreUnderTest
from strategies import (
    CALLERS,
    DAY_MS,
    LEASE_MS,
    OWN_GROUPS,
    PARENTS,
    SECOND_MS,
    START,
    TASKS,
    USERS,
    WORKERS,
    averages,
    batches,
    by,
    errors,
    groups,
    limits,
    maybe,
    messages,
    phase_submissions,
    priorities,
    progress,
    registrations,
    seldom,
    slots,
    some_of,
    standings,
    submissions,
    tickets,
    tiered_submissions,
)

from qo.event import GRANTED, LEASE_LOST, RESCHEDULED
from qo.job import ENDED, HELD, JobError, State
from qo.store.check_value import OUTCOMES
from qo.store.values import (
    Advance,
    Average,
    Bounds,
    Claimed,
    Limit,
    Outcome,
    Registration,
    Renewal,
    Source,
    Submission,
    TaskOptions,
    Ticket,
)

UNKNOWN = "nobody"


class Action(NamedTuple):
    """A thing the machine may do next: how likely, when it makes sense, and what it draws."""

    weight: int
    when: Callable[[Any], Any]
    drawn: dict[str, st.SearchStrategy[Any]]
    takes_data: bool
    run: Callable[..., None]


ACTIONS: list[Action] = []


def action(
    weight: int = 1, /, *, when: Callable[[Any], Any] = lambda machine: True, **drawn: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like Hypothesis's `rule`, with a weight: with all equally likely, hardly a job would start before the history
    is over. `data` is given to those that ask for it."""

    def note(run: Callable[..., None]) -> Callable[..., None]:
        takes_data = "data" in inspect.signature(run).parameters
        ACTIONS.append(Action(weight, when, drawn, takes_data, run))
        return run

    return note


class StoreMachine(RuleBasedStateMachine):
    under_test: StoreUnderTest
    bounds: Bounds

    def __init__(self) -> None:
        super().__init__()
        self.both = SideBySide(self.under_test, self.bounds)
        self.now = START
        self.submitted = 0
        self.claims = 0
        self.seen_tokens: list[tuple[str, str]] = []

    def teardown(self) -> None:
        self.both.close()

    @property
    def state(self) -> ModelState:
        return self.both.model.state

    def do(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        before = self.state.copy()
        answer = self.both.do(operation, *args, **kwargs, now=self.now)
        for what in noteworthy(before, self.both.model):
            event(what)
        for lease in self.state.leases.values():
            if (lease.holder, str(lease.token)) not in self.seen_tokens:
                self.seen_tokens.append((lease.holder, str(lease.token)))
        return answer

    # --- picking ----------------------------------------------------------------------------------------------

    def jobs_in(self, *states: State) -> list[str]:
        return [job.id for job in self.state.jobs.values() if job.state in states]

    def pick_job(self, data: st.DataObject, *states: State) -> str:
        """Mostly one in these states, sometimes any, sometimes none that exists."""
        fitting, everything = self.jobs_in(*states), [*self.state.jobs, UNKNOWN]
        return data.draw(st.sampled_from(fitting or everything) | seldom(st.sampled_from(everything), everything[0]))

    def pick_lease(self, data: st.DataObject, *, of_jobs: bool) -> tuple[str, str]:
        """Mostly a live one, sometimes an old or another's token."""
        live = [(one.holder, str(one.token)) for one in self.state.leases.values() if one.is_job == of_jobs]
        stale = [*self.seen_tokens, (UNKNOWN, "1")]
        return data.draw(st.sampled_from(live or stale) | seldom(st.sampled_from(stale), (live or stale)[0]))

    # --- the scene --------------------------------------------------------------------------------------------

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """A few workers, limits and jobs, so that short histories are about something."""
        for worker in data.draw(some_of(WORKERS, most=2)):
            tasks = tuple(TaskOptions(name=task) for task in TASKS)
            places = data.draw(st.integers(1, 3))
            self.do("register", Registration(name=worker, tasks=tasks, places=places, lifetime_ms=DAY_MS))
        wanted = data.draw(st.lists(limits, max_size=4))
        if wanted:
            self.do("set_limits", wanted)
        if data.draw(st.booleans()):
            self.submit_the_phases_of_a_parent(data)
        # What a history never does matters as much as what it does.
        self.left_out = set(data.draw(st.lists(st.sampled_from(range(len(ACTIONS))), max_size=8)))
        kinds = st.sampled_from([submissions, submissions, phase_submissions, tiered_submissions])
        for _ in range(data.draw(st.integers(1, 3))):
            self.submit(data, data.draw(kinds))

    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        likely = [
            action
            for number, action in enumerate(ACTIONS)
            if number not in self.left_out and action.when(self)
            for _ in range(action.weight)
        ]
        chosen = data.draw(st.sampled_from(likely))
        drawn = {name: data.draw(strategy) for name, strategy in chosen.drawn.items()}
        chosen.run(self, **drawn, **({"data": data} if chosen.takes_data else {}))

    # --- submitting -------------------------------------------------------------------------------------------

    def submit(self, data: st.DataObject, kind: Callable[..., st.SearchStrategy[Any]]) -> None:
        batch = data.draw(batches(self.submitted, self.now, kind))
        self.submitted += len(batch)
        self.do("submit", batch)

    @action(3)
    def submit_jobs(self, data: st.DataObject) -> None:
        self.submit(data, submissions)

    @action()
    def submit_phases(self, data: st.DataObject) -> None:
        self.submit(data, phase_submissions)

    @action()
    def submit_the_phases_of_a_parent(self, data: st.DataObject) -> None:
        """In any order, and on one task, so that they get to run."""
        parent, task = data.draw(st.sampled_from(PARENTS)), data.draw(st.sampled_from(TASKS))
        for phase in data.draw(st.permutations([1, 2, 3])):
            fixed = {"parent": parent, "phase": phase, "task": task, "groups": (), "cap": None}
            self.do("submit", [data.draw(submissions(self.submitted, self.now, **fixed))])
            self.submitted += 1

    @action(2)
    def submit_for_users_with_a_tier(self, data: st.DataObject) -> None:
        self.submit(data, tiered_submissions)

    @action(when=lambda self: self.state.jobs)
    def submit_a_known_id(self, data: st.DataObject) -> None:
        known = data.draw(st.sampled_from(list(self.state.jobs)))
        self.do("submit", [data.draw(submissions(0, self.now, id=known))])

    # --- running ----------------------------------------------------------------------------------------------

    def claim(self, worker: str, tasks: Iterable[str], places: int, lease_ms: int, claim_id: str) -> Claimed:
        return self.do("claim", worker=worker, tasks=list(tasks), places=places, lease_ms=lease_ms, claim_id=claim_id)

    def new_claim_id(self) -> str:
        self.claims += 1
        return f"claim-{self.claims}"

    @action(10, worker=st.sampled_from(WORKERS), places=st.integers(1, 8))
    def claim_many(self, worker: str, places: int) -> None:
        self.claim(worker, TASKS, places, LEASE_MS, self.new_claim_id())

    @action(
        3,
        worker=st.sampled_from(WORKERS),
        tasks=some_of((*TASKS, UNKNOWN), most=3),
        places=st.integers(1, 3),
        lease_ms=st.sampled_from([LEASE_MS, 20 * SECOND_MS]),
    )
    def claim_some(self, worker: str, tasks: tuple[str, ...], places: int, lease_ms: int) -> None:
        self.claim(worker, tasks, places, lease_ms, self.new_claim_id())

    @action(when=lambda self: self.claims)
    def claim_again(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, self.claims))
        self.claim(data.draw(st.sampled_from(WORKERS)), TASKS, 2, LEASE_MS, f"claim-{number}")

    @action(2, when=lambda self: self.seen_tokens, worker=seldom(st.sampled_from(WORKERS)))
    def renew(self, data: st.DataObject, worker: str | None) -> None:
        renewals = []
        for of_jobs in data.draw(st.lists(st.booleans(), max_size=3)):
            holder, token = self.pick_lease(data, of_jobs=of_jobs)
            lease_ms = data.draw(st.sampled_from([LEASE_MS, LEASE_MS, 0]))
            extend_ms = data.draw(st.sampled_from([0, 0, 7 * SECOND_MS]))
            renewals.append(Renewal(holder=holder, token=token, lease_ms=lease_ms, extend_ms=extend_ms))
        waiting = list(data.draw(some_of(CALLERS)))
        self.do("renew", renewals, worker=worker, tickets=waiting)

    @action(2, when=lambda self: self.seen_tokens)
    def advance(self, data: st.DataObject) -> None:
        advances = []
        for _ in range(data.draw(st.integers(1, 2))):
            job_id, token = self.pick_lease(data, of_jobs=True)
            advances.append(
                Advance(
                    job_id=job_id,
                    token=token,
                    stage=data.draw(st.sampled_from([None, "code", "checks"])),
                    progress=data.draw(progress),
                    checkpoint=data.draw(st.sampled_from([None, b"half"])),
                    iteration=data.draw(maybe(st.integers(0, 3))),
                    message=data.draw(messages),
                )
            )
        self.do("advance", advances)

    def outcome(self, data: st.DataObject, holder: str, token: str, state: State) -> Outcome:
        retry_at = self.now + data.draw(st.sampled_from([0, 5 * SECOND_MS, LEASE_MS]))
        return Outcome(
            job_id=holder,
            token=token,
            state=state,
            result=b'{"ok":true}' if state is State.SUCCEEDED else None,
            error=data.draw(errors) if state in (State.FAILED, State.SCHEDULED) else None,
            message=data.draw(messages),
            retry_at_ms=retry_at if state is State.SCHEDULED else None,
            averages=data.draw(averages),
        )

    @action(5, when=lambda self: self.jobs_in(*HELD))
    def finish_with_success(self, data: st.DataObject) -> None:
        held = [(one.holder, str(one.token)) for one in self.state.leases.values() if one.is_job]
        chosen = data.draw(st.lists(st.sampled_from(held), min_size=1, max_size=3, unique=True))
        self.do("finish", [self.outcome(data, *lease, State.SUCCEEDED) for lease in chosen])

    @action(
        8,
        when=lambda self: self.seen_tokens,
        states=st.lists(st.sampled_from(sorted(OUTCOMES)), min_size=1, max_size=3),
    )
    def finish_in_any_way(self, data: st.DataObject, states: list[State]) -> None:
        self.do("finish", [self.outcome(data, *self.pick_lease(data, of_jobs=True), state) for state in states])

    @action(2, when=lambda self: self.jobs_in(*HELD))
    def hand_back(self, data: st.DataObject) -> None:
        """Because groups whose slots are kept elsewhere were found full."""
        held = [(one.holder, str(one.token)) for one in self.state.leases.values() if one.is_job]
        holder, token = data.draw(st.sampled_from(held))
        until = self.now + data.draw(st.sampled_from([0, SECOND_MS, LEASE_MS]))
        closed = dict.fromkeys(data.draw(some_of(OWN_GROUPS)), until)
        self.do("finish", [Outcome(job_id=holder, token=token, state=State.QUEUED, closed=closed)])

    # --- changes by people ------------------------------------------------------------------------------------

    @action(2, when=lambda self: self.state.jobs, priority=priorities, by=by)
    def set_priority(self, data: st.DataObject, priority: int, by: str | None) -> None:
        job_id = self.pick_job(data, State.QUEUED, State.SCHEDULED, State.WAITING, State.CONFIRMING)
        self.do("set_priority", priority, job_id=job_id, by=by)

    @action(
        when=lambda self: self.state.parents, parent=st.sampled_from([*PARENTS, UNKNOWN]), priority=priorities, by=by
    )
    def set_priority_of_a_parent(self, parent: str, priority: int, by: str | None) -> None:
        self.do("set_priority", priority, parent=parent, by=by)

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

    @action(2, when=lambda self: self.jobs_of_deferring_users())
    def cancel_for_a_refund(self, data: st.DataObject) -> None:
        """So that deferred jobs move forward."""
        self.do("cancel", job_id=data.draw(st.sampled_from(self.jobs_of_deferring_users())))

    def jobs_of_deferring_users(self) -> list[str]:
        users = {job.user for job in self.state.jobs.values() if job.deferred}
        return [job.id for job in self.state.jobs.values() if job.user in users and job.started_at is None]

    @action(when=lambda self: self.state.parents, parent=st.sampled_from([*PARENTS, UNKNOWN]), message=messages, by=by)
    def cancel_a_parent(self, parent: str, message: str | None, by: str | None) -> None:
        self.do("cancel", parent=parent, message=message, by=by)

    @action(2, when=lambda self: self.jobs_in(State.FAILED), by=by)
    def retry(self, data: st.DataObject, by: str | None) -> None:
        self.do("retry", self.pick_job(data, State.FAILED), by=by)

    @action(4, when=lambda self: self.jobs_in(State.CONFIRMING), by=by)
    def confirm(self, data: st.DataObject, by: str | None) -> None:
        self.do("confirm", self.pick_job(data, State.CONFIRMING), by=by)

    @action(2, user=st.sampled_from(USERS), standing=standings, by=by)
    def set_tier(self, user: str, standing: Any, by: str | None) -> None:
        self.do("set_tier", user, standing, by=by)

    # --- limits -----------------------------------------------------------------------------------------------

    @action(2, wanted=st.lists(limits, min_size=1, max_size=2), by=by)
    def set_limits(self, wanted: list[Limit], by: str | None) -> None:
        self.do("set_limits", wanted, by=by)

    @action(2, when=lambda self: self.limited_groups(), number=slots, by=by)
    def change_a_limit(self, data: st.DataObject, number: int, by: str | None) -> None:
        group = data.draw(st.sampled_from(self.limited_groups()))
        self.do("set_limits", [Limit(group=group, slots=number, source=Source.OPERATOR)], by=by)

    @action(2, when=lambda self: self.limited_groups(), by=by)
    def remove_limit(self, data: st.DataObject, by: str | None) -> None:
        self.do("remove_limit", data.draw(st.sampled_from([*self.limited_groups(), UNKNOWN])), by=by)

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

    # --- slots without a job ----------------------------------------------------------------------------------

    @action(3, asked=st.lists(tickets(), min_size=1, max_size=3))
    def acquire(self, asked: list[Ticket]) -> None:
        self.do("acquire", asked)

    @action(2, caller=st.sampled_from(CALLERS), number=st.integers(0, 1), group=st.sampled_from(["gpu", "providers"]))
    def acquire_where_it_is_tight(self, caller: str, number: int, group: str) -> None:
        self.do("set_limits", [Limit(group=group, slots=number, source=Source.CONFIGURATION)])
        self.do("acquire", [Ticket(holder=caller, groups=(group, "api"), lease_ms=LEASE_MS, wait_ms=DAY_MS)])

    @action(3, when=lambda self: self.state.tickets or any(not one.is_job for one in self.state.leases.values()))
    def release(self, data: st.DataObject) -> None:
        holders = []
        for with_token in data.draw(st.lists(st.booleans(), min_size=1, max_size=2)):
            if with_token:
                holders.append(self.pick_lease(data, of_jobs=False))
            else:
                holders.append((data.draw(st.sampled_from(CALLERS)), None))
        self.do("release", holders)

    @action()
    def callers_compete_with_jobs(self, data: st.DataObject) -> None:
        """A worker with few places, jobs it could take, and callers behind them, all for the slots of one group."""
        tasks = tuple(TaskOptions(name=task) for task in TASKS)
        self.do("register", Registration(name="w1", tasks=tasks, places=data.draw(st.integers(1, 2))))
        number = data.draw(st.integers(1, 3))
        self.do("set_limits", [Limit(group="gpu", slots=number, source=Source.OPERATOR)])
        jobs = [Submission(id=f"g{self.submitted + index}", task="scan", groups=("gpu",)) for index in range(2)]
        self.submitted += len(jobs)
        self.do("submit", jobs)
        for caller in data.draw(some_of(CALLERS)):
            self.do("acquire", [Ticket(holder=caller, groups=("gpu",), lease_ms=LEASE_MS)])

    @action(4, when=lambda self: self.groups_with_callers())
    def make_room_for_callers(self, data: st.DataObject) -> None:
        """Slots that become free are handed over to those that wait."""
        group = data.draw(st.sampled_from(self.groups_with_callers()))
        holders = [(one.holder, None) for one in self.both.model.holders(group) if not one.is_job]
        if self.both.model.group_row(group).paused:
            self.do("set_paused", group, False)
        elif holders and data.draw(st.booleans()):
            self.do("release", holders)
        else:
            self.do("set_limits", [Limit(group=group, slots=data.draw(slots), source=Source.OPERATOR)])

    def groups_with_callers(self) -> list[str]:
        """Those that waiting callers are put aside in."""
        return sorted({ticket.parked for ticket in self.state.tickets.values() if ticket.parked is not None})

    # --- workers ----------------------------------------------------------------------------------------------

    @action(registration=registrations)
    def register(self, registration: Registration) -> None:
        self.do("register", registration)

    # --- time and upkeep --------------------------------------------------------------------------------------

    @action(5, span=st.sampled_from([1, SECOND_MS, 6 * SECOND_MS, 16 * SECOND_MS, LEASE_MS // 2, LEASE_MS]))
    def time_passes(self, span: int) -> None:
        self.now += span

    @action()
    def the_clock_jumps(self, data: st.DataObject) -> None:
        to_midnight = DAY_MS - self.now % DAY_MS
        jumps = [2 * LEASE_MS, to_midnight, to_midnight + SECOND_MS, 3 * DAY_MS]
        jumps += [-1, -LEASE_MS, -LEASE_MS - 1, -2 * LEASE_MS, -DAY_MS]
        self.now += data.draw(st.sampled_from(jumps))

    @action(2, lease_ms=st.sampled_from([LEASE_MS, 5 * LEASE_MS]))
    def catch_up(self, lease_ms: int) -> None:
        self.do("catch_up", lease_ms=lease_ms)

    @action(2, when=lambda self: self.state.leases)
    def leases_run_out(self, data: st.DataObject) -> None:
        """Upkeep goes on, nobody renews: without a gap, leases end."""
        for _ in range(data.draw(st.integers(2, 4))):
            self.now += LEASE_MS // 2
            self.do("catch_up", lease_ms=LEASE_MS)

    @action(2, period_ms=st.sampled_from([1, SECOND_MS, LEASE_MS]))
    def age(self, period_ms: int) -> None:
        self.do("age", period_ms=period_ms)

    @action(2, when=lambda self: self.jobs_in(State.CONFIRMING), after_ms=st.sampled_from([1, LEASE_MS]))
    def fail_unconfirmed(self, after_ms: int) -> None:
        self.do("fail_unconfirmed", after_ms=after_ms, error=JobError(message="Nobody confirmed."))

    @action(
        4,
        when=lambda self: self.jobs_in(State.CONFIRMING),
        ages_ms=st.sampled_from([(0,), (SECOND_MS, LEASE_MS), (0, 1, DAY_MS)]),
    )
    def take_reminders(self, ages_ms: tuple[int, ...]) -> None:
        self.do("take_reminders", ages_ms=ages_ms)

    @action(
        2,
        keep_ms=st.sampled_from([0, SECOND_MS, LEASE_MS, DAY_MS]),
        keep_jobs=st.sampled_from([0, 1, 2, 100]),
        keep_events=st.sampled_from([0, 5, 1000]),
    )
    def forget(self, keep_ms: int, keep_jobs: int, keep_events: int) -> None:
        self.do("forget", keep_ms=keep_ms, keep_jobs=keep_jobs, keep_events=keep_events)

    @action(value=st.sampled_from([0.5, 30.0, 900.0]), weight=st.sampled_from([0.0, 0.3, 1.0]))
    def observe(self, value: float, weight: float) -> None:
        self.both.do("observe", [(Average(name="tier:fast", first=900.0, weight=weight), value)])

    @action(ratios=st.lists(st.sampled_from([0.5, 1.0, 2.5]), min_size=1, max_size=3), keep=st.integers(1, 4))
    def record_estimate_errors(self, ratios: list[float], keep: int) -> None:
        self.both.do("record_estimate_errors", "build", ratios, keep=keep)
        self.both.do("estimate_errors", "build")

    @action(
        name=st.sampled_from(["key:1", "key:2"]),
        value=st.sampled_from([{"a": 1}, "text", None]),
        version=st.integers(0, 2),
    )
    def put_record(self, name: str, value: Any, version: int) -> None:
        self.both.do("put_record", name, value, version=version)
        self.both.do("record", name)
        self.both.do("records", "key:")


def machine_for(under_test: StoreUnderTest, bounds: Bounds) -> type[StoreMachine]:
    return type(f"{under_test.name}Machine", (StoreMachine,), {"under_test": under_test, "bounds": bounds})


# --- what a step was about, for Hypothesis's statistics ---------------------------------------------------------


def noteworthy(before: ModelState, model: Any) -> Iterable[str]:
    """What happened in a step that a history should have had to be worth anything."""
    after: ModelState = model.state
    new = after.events[-(after.last_event - before.last_event) :] if after.last_event > before.last_event else []
    kinds = {one.kind for one in new}
    changed = [(before.jobs.get(job.id), job) for job in after.jobs.values()]
    yield from (f"event {kind}" for kind in sorted(kinds & {GRANTED, LEASE_LOST, RESCHEDULED}))
    if any(one.state is State.STARTING and (old is None or old.token != one.token) for old, one in changed):
        yield "a job started"
    if any(one.parked and (old is None or old.parked != one.parked) for old, one in changed):
        yield "a job was parked"
    if model.open_groups():
        yield "a group was open"
    if any(job.deferred for job in after.jobs.values()):
        yield "a job was deferred"
    if any(old and old.deferred and one.state is State.QUEUED and not one.deferred for old, one in changed):
        yield "a deferred job joined"
    if "moved" in kinds and sum(old.key != one.key for old, one in changed if old is not None) > 1:
        yield "a move spread others out"
    if any(not lease.is_job and token not in before.leases for token, lease in after.leases.items()):
        yield "a caller got slots"
    if len(before.tickets) > len(after.tickets) and not kinds & {GRANTED}:
        yield "a ticket was dropped or given back"
    if any(old and old.state is State.WAITING and one.state is State.QUEUED for old, one in changed):
        yield "a phase was released"
    if before.jobs.keys() - after.jobs.keys():
        yield "a job was forgotten"
    if any(row.limit is not None and len(model.holders(name)) > row.limit for name, row in after.groups.items()):
        yield "a group was over a lowered limit"
