"""The contract every store keeps.

Each operation is one atomic step: it happens wholly or not at all, and what it answers is durable
as far as the store promises. Bad input is refused with a sentence before anything is changed
(`store/check.py`). What only reads is in `store/reading.py`. `now` is whole milliseconds since 1970
and only given by tests; otherwise the store's own clock decides. `tests/conformance/model.py` is the
same contract as a program.

Rules that hold for all operations:

room        A group has room when it is not paused, not closed, and has no limit or fewer live holders than
            that. The live holders are the recorded ones, whether or not their lease has run out by the clock:
            a lease is over when a step ends it.
slots       A holder has one number in each group it is recorded in: the lowest free one. Recorded are all
            groups of a job, except that `global`, its task's group and its `priority:` group are recorded
            only while they have a limit; setting a limit where there was none records the live job leases
            that started there and are not recorded yet, in token order (what they belonged to when they were
            claimed counts, whatever has changed since). A caller is recorded in every group
            it names. Numbers last until released, also when the limit goes away or below them.
gates       `global` and a task's own group are gates: while one has no room, all jobs of the task are passed by.
entering    A job enters the line when it becomes queued, and again when its key or its groups change while it
            is: it is put aside in ("parked in") the first of its groups, gates left out, that has no room,
            else it is ready. Being put aside where it was not before counts as one rejection there.
portions    `Bounds.portion` leases, due jobs and aged jobs are dealt with in one step. One with more than eight groups
            counts as several (`policy.groups.looks`).
joining     A job that joins the line draws the next place (`ordering.drawn_place`), gets `joined_at` and
            `position_original`. Several that join in one step because they are due or released do so by
            `ordering.joining_order`. A job that comes back keeps its key.
examining   Candidates of a task are its ready jobs and the jobs parked in a group that has room. Whoever
            examines takes the smallest key of all candidates; if a group of it has no room, it is parked in the
            first such group and counts as one rejection there. Towards `bounds.examine`, a job or caller counts one
            look for each eight groups begun (`policy.groups.looks`); the first is examined whatever it counts.
callers     Waiting callers (tickets) are examined like jobs of a task of their own without gates. At the end
            of every step that writes, freed slots are handed over: see `acquire`.
noting      `claim`, `renew`, `acquire` and `catch_up` note the time at their start. L is the `lease_ms` of the worker
            that registered last, DEFAULT_LEASE_MS before that. More than L/2 since the time noted before is a gap: the
            store was away, or its clock jumped.
counted     Leases and tickets end on counted time: the store's clock without the gaps that count for nothing. A gap
            counts for nothing if a lease was renewed since the gap before, or if there was none before. Otherwise it
            counts, but not for leases that began since the gap before. A renewal that ends a gap, of a lease longer
            than 3/2 L, does not count as one: so long may pass between two of its renewals anyway.
            So a holder that renews in time keeps its lease through any outages, and a dead holder's lease ends at the
            latest when the second gap shows that nobody renews.
steady      Spans (`delay_ms`, `retry_after_ms`, closed groups) end on steady time: the store's clock without its falls.
            A fall is more than L back from the time noted before. It counts neither in steady nor in counted time.
            Times that a caller gave are times on the store's clock, whatever it does.
refunds     See `cancel`.
order       Operations that one event loop begins take effect in that order, also when nobody waits for their answers
            any more; only `renew` may come earlier. A cancelled one takes effect in its place, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from qo.job import Job, JobError
from qo.store.reading import Reading
from qo.store.values import (
    Accepted,
    Advance,
    Average,
    Bounds,
    Claimed,
    Finished,
    Grant,
    Held,
    Limit,
    LimitIgnored,
    Offer,
    Outcome,
    Portion,
    Refusal,
    Registered,
    Registration,
    Reminder,
    Renewal,
    Renewed,
    Source,
    Standing,
    Submission,
    Ticket,
)

HANDED_OVER_LEASE_MS = 10_000
"""How long a caller who was handed a slot may take to notice; the first renewal makes it a full lease."""


class Store(Reading, Protocol):
    kind: Literal["sql", "redis"]
    """what decides how long ended jobs are kept"""
    promise: str
    """what an acknowledged job survives, in one line for a log"""
    location: str
    """where the store is, in words and without any password"""
    bounds: Bounds

    # --- a job's way through ----------------------------------------------------------------------------------

    async def submit(self, submissions: Sequence[Submission], *, now: int | None = None) -> list[Accepted | Refusal]:
        """Admit each submission, or refuse it, one after the other in the order given.

        First, due jobs join the line (one portion). Then for each, in this order:
        1. A known id, or the unique key of an unfinished job: that job, unchanged.
        2. Its phase taken by a job that is not cancelled: refused.
        3. Quota. The day is that of `run_at_ms`, of `delay_ms` from `now`, or of `now`. With a quota and no room on
           that day it is deferred to the next day with room, at midnight UTC plus its jitter. The due times of one
           user's deferred jobs of a day are kept sorted: a new one is added to them (a taken millisecond: the next
           free one) and they are dealt out again in order of submission, so one user's jobs keep their order
           and the day's spread stays even. Every job with a user is charged to its day.
        4. Cap. Refused when `cap` or more jobs are in line and it would join now or in less than CAPPED_DELAY_MS;
           a deferred job and one that waits for its phase are never refused.
        A refused submission changes nothing at all, not even the user's standing.

        A standing that differs from the user's present one is applied like `set_tier` before step 3; without
        one, the user's present standing counts. Its `user_limit` and `project_limit` and the submission's
        `limits` are set like `set_limits`, before the job enters the line; those that a stronger source
        keeps out are in `ignored`. A limit of source SUBMIT is set only where there is none.

        The job is `waiting` while the phase before it has not succeeded (of a phase the newest job counts), else
        `scheduled` while `run_at` is ahead, else it joins the line. A parent is created with its first job's priority.
        Events: the job's state. Audit: "submit" where `by` is given.
        """
        ...

    async def claim(
        self,
        *,
        worker: str,
        tasks: Sequence[str],
        places: int,
        lease_ms: int,
        claim_id: str,
        now: int | None = None,
    ) -> Claimed:
        """Take up to `places` jobs, first in line first, whose every group has a free slot.

        A known claim id is answered with that claim's live leases, and nothing else happens.
        Else begins with `catch_up`, then examines candidates of `tasks` until `places` are taken, none is left,
        `bounds.examine` looks were taken (see `examining`), or the payloads and checkpoints of those taken have
        `bounds.claim_bytes` or more. A job is taken together with all its slots: it becomes `starting`,
        an attempt is counted, and its lease gets the next token, `max(previous + 1, now in µs)`. A job without
        `max_attempts` gets its task's, else DEFAULT_MAX_ATTEMPTS, and keeps it.
        Returns fewer than asked, perhaps none; being full is not an error.
        Events: starting.
        """
        ...

    async def renew(
        self,
        renewals: Sequence[Renewal],
        *,
        worker: str | None = None,
        instance: str = "",
        tickets: Sequence[str] = (),
        now: int | None = None,
    ) -> Renewed:
        """Extend every lease that is still owned, of jobs and callers; in passing keep the registration of this
        instance of the worker, and waiting tickets, alive (by their own lifetimes).

        Notes the time. A lease past its end that no step has ended yet is extended like any other, and so is a
        registration. Lost ones are reported and never added back: that would make two owners.
        """
        ...

    async def advance(self, advances: Sequence[Advance], *, now: int | None = None) -> list[Held]:
        """Record what handlers report. The first advance of a `starting` job makes it `running`.

        Repeating one changes nothing but the feed.
        Events: running; stage; progress, as far as given.
        """
        ...

    async def finish(self, outcomes: Sequence[Outcome], *, now: int | None = None) -> list[Finished]:
        """End leases with their outcomes; all slots of a lease are freed in the same step.

        Only the present owner's token counts; a stale one changes nothing and is answered `lost`; the token
        that finished the job before is answered as then. A `starting` job passes through `running` on its way
        to succeeded or confirming. When a cancel is wanted, scheduled, queued and confirming become cancelled.
        All outcomes are applied in order (slots freed, groups closed) before any job enters the line again.
        A phase that succeeded releases the next one: it joins the line, or stays waiting until its own
        `run_at` and joins then. Handed back with no other attempt behind it, a job counts as never started.
        Events: the new state, each job.
        """
        ...

    # --- changes by people ------------------------------------------------------------------------------------

    async def set_priority(
        self,
        priority: int,
        *,
        job_id: str | None = None,
        parent: str | None = None,
        by: str | None = None,
        now: int | None = None,
    ) -> tuple[Job, ...]:
        """Change the priority of a job that waits (scheduled, waiting, queued, confirming), or of a parent and all
        its unfinished jobs, also those that run (it counts when they come back). The place is kept. A job that is put
        further back is `displaced` (`ordering.displacement`), as by `move`, until it joins the line anew.
        Raises InvalidTransition for a job that runs or has ended. Events: priority. Audit: "priority", each job.
        """
        ...

    async def move(
        self,
        job_id: str,
        *,
        before: str | None = None,
        after: str | None = None,
        by: str | None = None,
        now: int | None = None,
    ) -> Job:
        """Put a job in line directly before or after another one, whose priority it takes on, aged or not.

        Where no place is left between the neighbours, the nearest ones are spread out in the same step, which
        changes nobody's order; if even that fails, MoveRefused. Events: moved. Audit: "move".
        """
        ...

    async def cancel(
        self,
        *,
        job_id: str | None = None,
        parent: str | None = None,
        message: str | None = None,
        by: str | None = None,
        now: int | None = None,
    ) -> tuple[Job, ...]:
        """Cancel a job that waits at once; one that runs gets "cancel wanted". Of a parent: all unfinished jobs.

        A cancelled one stays as it is; a job that otherwise ended raises InvalidTransition.
        A job that never started gives its quota back when its day is not over, and the user's deferred jobs
        move forward, earliest first, into every day that now has room: into today (due at once: it joins the
        line in this step, unless it waits for its phase), or into a later day at its own time of day, as
        described at `submit`.
        Events: cancelled or cancel_wanted; rescheduled for a deferred job that moved to another day but not
        into the line. Audit: "cancel", each job.
        """
        ...

    async def retry(self, job_id: str, *, by: str | None = None, now: int | None = None) -> Job:
        """A failed job joins the line again with a new place and all its attempts; error, stage and progress are
        cleared. Raises InvalidTransition for others, and while another unfinished job has its unique key.
        Events: queued. Audit: "retry".
        """
        ...

    async def confirm(self, job_id: str, *, by: str | None = None, now: int | None = None) -> Job:
        """A confirming job joins the line again with a new place, all its attempts and one more batch of
        iterations, up to its maximum. Events: queued. Audit: "confirm".
        """
        ...

    async def set_tier(
        self, user: str, standing: Standing, *, by: str | None = None, now: int | None = None
    ) -> tuple[LimitIgnored, ...]:
        """Give a user a standing that stays until the next one. It applies at once to the user's scheduled,
        waiting, queued and confirming jobs: tier and its group (queued ones enter anew with the same key),
        boost for a place drawn later, iterations; to the limits of `user:` and, for those jobs, `project:`
        (a limit of source TIER that is no longer granted is removed); and deferred jobs move forward into
        days with room as at `cancel`. Events: tier. Audit: "tier".
        """
        ...

    # --- limits -----------------------------------------------------------------------------------------------

    async def set_limits(
        self,
        limits: Sequence[Limit],
        *,
        exactly: Source | None = None,
        by: str | None = None,
        now: int | None = None,
    ) -> tuple[LimitIgnored, ...]:
        """Set each limit unless a stronger source set one (SUBMIT: unless anyone did); the same source replaces.
        Kept-out ones of another value are answered. Setting the present value again changes nothing.
        `exactly`: then the limits of this source that are not among those given are removed, by name.
        Events: limit, where changed. Audit: "limit", where changed, for sources OPERATOR and CONFIGURATION.
        """
        ...

    async def remove_limit(
        self, group: str, *, only: Source | None = None, by: str | None = None, now: int | None = None
    ) -> None:
        """The group is unlimited until somebody sets a limit again. Harmless where there is none; with `only`, also
        where the limit comes from another source.
        Events: limit. Audit: "limit". Both only where there was one.
        """
        ...

    async def set_paused(self, group: str, paused: bool, *, by: str | None = None, now: int | None = None) -> None:
        """Pause or resume a group, beside its limit; harmless when it is so already (then no event, no audit).
        Events: paused or resumed. Audit: "pause" or "resume".
        """
        ...

    async def revoke(
        self, group: str, slot_id: int, *, force: bool = False, by: str | None = None, now: int | None = None
    ) -> str:
        """End the whole lease of who holds this slot, as if it had run out, and answer who it was.
        Raises SlotNotFound, or LeaseAlive when it has not run out and `force` is false.
        Events and states as for an expired lease. Audit: "release".
        """
        ...

    # --- slots without a job ----------------------------------------------------------------------------------

    async def acquire(self, tickets: Sequence[Ticket], *, now: int | None = None) -> list[Grant]:
        """Take one slot in each group of a ticket, all or nothing, or wait in line for it.

        Begins with `catch_up`. A holder that holds already is answered with what it holds; one that waits keeps
        its place and lives on. A new one draws a place (no boost) and enters. After each ticket, and at the end
        of every other step that writes, slots are handed over:

        Candidates are, in one order, the waiting tickets and the jobs of tasks for which a live worker has a
        free place (its `places` less the job leases it holds). Each is examined (a ticket that ran out is
        dropped instead) as long as a ticket is among the candidates and `bounds.examine` is not reached: a
        ticket that can have all its slots gets them; a job that could start is left for its worker, first by
        name of those with a free place, and its slots and that place are spoken for during this hand-over;
        what is blocked only by slots spoken for is passed over. So nobody gets past a job or a caller that
        could go now, and no slot stays idle for one that could not.

        A slot granted in the call that asked for it is a full lease; one handed over later is a lease of
        at most HANDED_OVER_LEASE_MS until its first renewal, told by an event (granted). With `wait_ms` 0 a ticket
        that was not granted is forgotten.
        """
        ...

    async def release(self, holders: Sequence[tuple[str, str | None]], *, now: int | None = None) -> list[bool]:
        """Give back what callers hold, by holder and token; without a token, whatever that holder has, a place in
        line included. False: not (any more) the owner, nothing was changed. Never touches a job's lease.
        """
        ...

    # --- workers ----------------------------------------------------------------------------------------------

    async def register(self, registration: Registration, *, now: int | None = None) -> Registered:
        """A worker has started: it lives for `lifetime_ms` unless renewed.

        While another instance of this name lives, and is not the one that this one `replaces`, nothing is changed, and
        that instance is answered (`namesake`).
        The configuration's `limits` are set like `set_limits`, by this worker; limits that it does not name stay. Then
        its tasks' groups, attempts and limits (source TASK) replace those of workers started earlier; jobs parked in a
        group that their task no longer names enter the line anew.
        `tasks` empty: this instance is gone. Nothing happens where the name is another's by now.
        Events: limit, where changed. Audit: "limit", for the configuration's that changed.
        """
        ...

    async def wait_for_work(
        self,
        *,
        worker: str,
        tasks: Sequence[str],
        timeout_seconds: float,
        offer: Offer | None = None,
        filled: Callable[[Claimed], None] | None = None,
    ) -> Claimed:
        """Return, with `more`, as soon as a claim for these tasks might find something; empty when the time is up.

        It looks at the present state, not at what changed, so no wake-up can be missed between a claim and this.
        With an offer, a store may claim a job for the worker in the step that makes it claimable, and then returns
        its lease, which spares the worker a round trip; `filled` is told of it first, as soon as it is known. A step
        fills no more offers once their payloads and checkpoints have `bounds.claim_bytes`: it only wakes. Who
        gives up waiting may have been given one all the same: the next `claim` or `wait_for_work` with the same claim
        id answers it. With no time to wait, no offer stands when this returns.
        """
        ...

    # --- upkeep: bounded, in order, safe at any time ----------------------------------------------------------

    async def catch_up(self, *, now: int | None = None) -> Portion:
        """Deal with what has come due, as `claim` and `acquire` do at their start; at most one portion of each.

        Notes the time. Then, in this order: groups closed until now open; tickets past their end are dropped; leases
        past their end are over, by (end, token): a caller's is gone; a job is cancelled if that was wanted, failed if
        its attempts are spent, else back in line; due jobs join the line. Jobs come back before any due one joins, and
        after all slots are free.
        Answers the ids of jobs whose lease was over and of those that joined.
        Events: lease_lost (with the limited `groups` in which it held slots, if any) and the new state; queued.
        """
        ...

    async def age(self, *, period_ms: int, now: int | None = None) -> Portion:
        """Jobs that have been in line for `period_ms` since they entered it or last aged, longest first, move up
        one named priority level (`ordering.aged_priority`); those that cannot are passed by. Own priority and
        group stay. One portion counts all that were looked at. Events: aged.
        """
        ...

    async def fail_unconfirmed(self, *, after_ms: int, error: JobError, now: int | None = None) -> Portion:
        """Confirming jobs that nobody confirmed for `after_ms`, longest first, fail. Events: failed."""
        ...

    async def take_reminders(self, *, ages_ms: Sequence[int], now: int | None = None) -> tuple[Reminder, ...]:
        """Reminders now due for confirming jobs, one portion, longest waiting first, each handed out once ever.
        Several that are due for one job come together, in their order."""
        ...

    async def forget(
        self, *, keep_ms: int, keep_jobs: int, keep_events: int, keep_audit: int, now: int | None = None
    ) -> Portion:
        """Remove what is past its retention, one portion, oldest first.

        Jobs that ended more than `keep_ms` ago, or are beyond the newest `keep_jobs` ended ones; of a parent only
        when all its jobs have ended, and then by the time the last one did. All but the newest `keep_events`
        events, of which the last one always stays, and `keep_audit` entries of the audit. Figures older than
        `keep_ms` are summed under minute 0, but those of a group without a limit go, and with a limit that goes its
        group's. Quota of past days goes. Users without any quota left, and limits of
        source TIER or SUBMIT of groups without holders, go when the newest job that named them is older than every
        kept one, unless a person set them; groups with nothing left and workers long gone go.
        Answers the ids of the jobs.
        """
        ...

    # --- figures for estimates --------------------------------------------------------------------------------

    async def observe(self, observations: Sequence[tuple[Average, float]]) -> None:
        """Move averages by one value each: `value += weight * (new - value)`, likewise the squares."""
        ...

    async def record_estimate_errors(self, task: str, ratios: Sequence[float], *, keep: int = 500) -> None:
        """Remember how wrong estimates were (actual wait / estimate), the newest `keep` a task."""
        ...

    # --- service data -----------------------------------------------------------------------------------------

    async def put_record(self, name: str, value: Any, *, version: int) -> bool:
        """Write if the record still has this version (0: if there is none), making it `version + 1`. None removes it.
        False: somebody else was first, nothing was changed."""
        ...

    async def close(self) -> None: ...
