"""The contract that every store keeps.

Each operation is one atomic step: it happens wholly or not at all, and its answer is as durable as the store promises.
Bad input raises before anything is changed (`store/check.py`). The operations that only read are in `store/reading.py`.
A step takes its time from the store's clock when it runs. The rules that hold for all operations are in
`store/__init__.py`. `tests/conformance/model/` is this contract as a program.
"""

# pyright: reportReturnType=false
# Because the operations of a contract have a docstring and no body.
from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from qo.clock import ReadClock
from qo.job import Job
from qo.store.outbox import Outbox
from qo.store.reading import Reading
from qo.values import (
    Accepted,
    Advance,
    Audited,
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
    Renewal,
    Renewed,
    Retention,
    Source,
    Standing,
    Submission,
    Ticket,
    Unlimited,
    UpkeepDone,
    UpkeepRules,
)

HANDED_OVER_LEASE_MS = 10_000
"""How long the lease of a slot is that was handed over to a waiting caller. The first renewal makes it a full lease."""


class Store(Reading, Protocol):
    retention: Retention
    """How much the store keeps where the settings do not say."""
    promise: str
    """One line for a log: what an acknowledged job survives."""
    location: str
    """Where the store is, in words and without any password."""
    bounds: Bounds
    clock: ReadClock | None
    """The clock that decides about time. None stands for the store's own: the server's on Redis, that of the machine
    that the file is on with SQLite. Only tests and simulations set one."""

    outbox: Outbox | None
    """What a recorder writes into the history. None where the store keeps its history itself."""

    # --- a job's way through ----------------------------------------------------------------------------------

    async def submit(self, submissions: Sequence[Submission]) -> list[Accepted | Refusal]:
        """Accept or refuse each submission, one after the other in the order given.

        First, overdue jobs fail and due jobs join the line (a portion of each). Then, for each submission, in order:
        1. A known id, or the unique key of an unfinished job: the answer is that job, unchanged.
        2. Its phase is taken by a job that is not cancelled, or it could never start by its `start_by`: refused. So is
           every submission while the store has an outbox that is full and does not drop.
        3. Quota. The day is that of `run_at_ms`, of `delay_ms` from now, or today. Without room on that day, the job is
           deferred to the next day with room, at midnight UTC plus its jitter. The due times of one user's deferred
           jobs of a day are kept sorted: the new time is added (if it is taken, the next free millisecond), and all
           are dealt out again in the order of submission. So one user's jobs keep their order, and they stay spread
           over the day. Every job with a user is charged to its day.
        4. Cap. Refused when `cap` or more jobs are in line and the job would join now or in less than CAPPED_DELAY_MS.
           A deferred job, and one that waits for its phase, is never refused.
        A refused submission changes nothing at all, not even the user's standing.

        A standing that differs from the user's present one is applied like `set_tier` before step 3; without one, the
        user's present standing counts. Its `user_limit` and `project_limit` and the submission's `limits` are set like
        `set_limits`, before the job enters the line. `ignored` has the limits that a stronger source keeps out. A limit
        of source SUBMIT is set only where there is none.

        The job is `waiting` until the phase before it has succeeded (its newest job counts), else `scheduled` while
        `run_at` is ahead, else it joins the line. A parent is created with its first job's priority.
        Events: the job's state. Audit: "submit" where `by` is given.
        """

    async def claim(
        self,
        *,
        worker: str,
        tasks: Sequence[str],
        capacity: int,
        lease_ms: int,
        claim_id: str,
        suspects: int | None = None,
    ) -> Claimed:
        """Take up to `capacity` jobs, first in line first, that have a free slot in every group.

        A known claim id: the answer is that claim's live leases, and nothing else happens.
        Otherwise it begins with `catch_up`. Then it examines candidates of `tasks` until `capacity` jobs are taken, no
        candidate is left, `bounds.examine` looks were taken (see `examining`), or the payloads and checkpoints of the
        jobs taken have `bounds.claim_bytes` or more. At most `suspects` of them are suspects (None: any number). A job
        is taken together with all its slots. It becomes `starting`, an attempt is counted, and its lease gets the next
        token, `max(previous + 1, now in µs)`. A job without `max_attempts` gets and keeps its task's, else
        DEFAULT_MAX_ATTEMPTS.
        Returns fewer jobs than asked for, perhaps none; being full is not an error. Events: starting.
        """

    async def renew(
        self,
        renewals: Sequence[Renewal],
        *,
        worker: str | None = None,
        instance: str = "",
        tickets: Sequence[str] = (),
    ) -> Renewed:
        """Extend every lease that is still owned, of jobs and callers. Also keeps the registration of this instance of
        the worker, and waiting tickets, alive for their own lifetimes.

        Notes the time. A lease or a registration that has run out, but was not ended by a step yet, is extended like
        any other. A lost lease is reported and never added back: that would make two owners.
        """

    async def advance(self, advances: Sequence[Advance]) -> list[Held]:
        """Record what handlers report. The first advance of a `starting` job makes it `running`.

        A repeated one changes nothing but appends its events again.
        Events: running; stage; progress, as far as given.
        """

    async def finish(self, outcomes: Sequence[Outcome]) -> list[Finished]:
        """End leases with their outcomes. All slots of a lease are freed in the same step.

        Only the present owner's token counts. A stale token changes nothing, and the answer is `lost`. The token that
        finished the job gets the same answer again. A `starting` job passes through `running` on its way to succeeded
        or confirming. When a cancel is wanted, scheduled, queued and confirming become cancelled.
        All outcomes are applied in order (slots freed, groups closed) before any job enters the line again.
        A phase that succeeded releases the next one: it joins the line, or stays waiting until its own `run_at`. A job
        that is handed back after its first attempt counts as never started.
        Events: the new state of each job.
        """

    async def note_promises(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Note what users were told: by job, in how many milliseconds from now it starts, at the earliest and at the
        latest. Counts for a job in line that has never started and was promised nothing yet; others are left as they
        are. Whether the job then starts in that range is a figure (`series`).
        """

    # --- changes by people ------------------------------------------------------------------------------------

    async def set_priority(
        self,
        priority: int,
        *,
        job_id: str | None = None,
        parent: str | None = None,
        by: str | None = None,
        undoes: int | None = None,
    ) -> tuple[Job, ...]:
        """Change the priority of a job that waits (scheduled, waiting, queued, confirming), or of a parent and all its
        unfinished jobs. For those that run it counts when they come back. The place is kept. A job that is put further
        back is `displaced` (`ordering.displacement`) until it joins the line anew, as with `move`.
        Raises InvalidTransition for a job that runs or has ended. Events: priority. Audit: "priority", for each job.

        `undoes`, here and below, is the audit entry of the change that this one puts back. Raises UndoRefused unless it
        is the newest entry about that job or group, and what it changed (a key, a limit) is still as it says.
        """

    async def move(
        self,
        job_id: str,
        *,
        before: str | None = None,
        after: str | None = None,
        by: str | None = None,
        undoes: int | None = None,
    ) -> Job:
        """Put a job in line directly before or after another one. It takes on that job's priority, aged or not. With
        `undoes`, that has to be the priority that the job had before the move.

        Where no place is left between the neighbours, the nearest ones are spread out in the same step. They keep their
        order, so their lanes stay where they are. Raises MoveRefused if even that fails. Events: moved. Audit: "move".
        """

    async def cancel(
        self,
        *,
        job_id: str | None = None,
        parent: str | None = None,
        message: str | None = None,
        by: str | None = None,
    ) -> tuple[Job, ...]:
        """Cancel a job that waits at once; a job that runs gets "cancel wanted". Of a parent: all unfinished jobs.

        A cancelled job stays as it is. Raises InvalidTransition for a job that ended otherwise.
        A job that never started gives its quota back if its day is not over. Then the user's deferred jobs move
        forward, earliest first, into every day that has room now: into today (the job joins the line in this step,
        unless it waits for its phase), or into a later day at its own time of day, as described at `submit`.
        Events: cancelled or cancel_wanted; rescheduled for a deferred job that moved to another day but not into the
        line. Audit: "cancel", for each job.
        """

    async def retry(self, job_id: str, *, by: str | None = None) -> Job:
        """A failed job joins the line again with a new place and all its attempts. Its error, stage and progress are
        cleared, its `start_by` is dropped, and if it gave its quota back it is charged to today. Raises
        InvalidTransition for other jobs, while another unfinished job has its unique key, and for a phase until the one
        before it has succeeded. Events: queued. Audit: "retry".
        """

    async def confirm(self, job_id: str, *, by: str | None = None) -> Job:
        """A confirming job joins the line again with a new place, all its attempts and one more batch of iterations, up
        to its maximum. Events: queued. Audit: "confirm".
        """

    async def set_tier(self, user: str, standing: Standing, *, by: str | None = None) -> tuple[LimitIgnored, ...]:
        """Give a user a standing that stays until the next one. It applies at once to the user's scheduled, waiting,
        queued and confirming jobs: their tier and its group (queued jobs enter the line anew with the same key), the
        boost of a place that is drawn later, and their iterations. It sets the limits of `user:` and, for those jobs,
        `project:`, and removes a limit of source TIER that is no longer granted. Deferred jobs move forward into days
        with room as at `cancel`. Events: tier. Audit: "tier".
        """

    # --- limits -----------------------------------------------------------------------------------------------

    async def set_limits(
        self,
        limits: Sequence[Limit | Unlimited],
        *,
        exactly: Source | None = None,
        by: str | None = None,
        undoes: int | None = None,
    ) -> tuple[LimitIgnored, ...]:
        """Set each limit unless a stronger source has set one (SUBMIT: unless any source has). The same source replaces
        its own. Returns the limits that were kept out by one of another value. To set the present value again changes
        nothing.
        `Unlimited` removes a limit. It does nothing where there is none, or where `only` is not its source.
        `exactly`: then the limits of this source that are not among those given are removed, by name.
        Events: limit, where changed. Audit: "limit", where removed, and where OPERATOR or CONFIGURATION set one.
        """

    async def set_paused(self, group: str, paused: bool, *, by: str | None = None, undoes: int | None = None) -> None:
        """Pause or resume a group, beside its limit. Nothing happens when it is so already.
        Events: paused or resumed. Audit: "pause" or "resume".
        """

    async def revoke(self, group: str, slot_id: int, *, force: bool = False, by: str | None = None) -> str:
        """End the whole lease of the slot's holder, as if it had run out, and return the holder.
        Raises SlotNotFound, or LeaseAlive when the lease has not run out and `force` is false.
        Events and states as for a lease that ran out. Audit: "release".
        """

    # --- slots without a job ----------------------------------------------------------------------------------

    async def acquire(self, tickets: Sequence[Ticket]) -> list[Grant]:
        """Take one slot in each group of a ticket, all or nothing, or wait in line for them.

        Begins with `catch_up`. A holder that holds slots already gets them as the answer. A holder that waits keeps its
        place, and its ticket is renewed. A new holder gets a place (no boost) and enters the line. After each ticket,
        and at the end of every other step that writes, slots are handed over:

        The candidates are, in one order, the waiting tickets and the jobs of tasks for which a live worker has free
        capacity (its `capacity` less the job leases it holds), but no suspects. Each is examined, as long as a ticket
        is among the candidates and `bounds.examine` is not reached. A ticket that has run out is dropped. A ticket that
        can have all its slots gets them. A job that could start is left to its worker, the first by name with free
        capacity: during this hand-over its slots are reserved, that worker can take one job less, and the next job of
        the lane is a candidate. A lane whose candidate only reserved slots block is passed over. So nothing gets past a
        job or a caller that could go now, and no slot stays idle for one that could not.

        A slot granted in the call that asked for it is a full lease. One that is handed over later is a lease of at
        most HANDED_OVER_LEASE_MS until its first renewal, and the event `granted` brings it. With `wait_ms` 0 a ticket
        that was not granted is forgotten.
        """

    async def release(self, holders: Sequence[tuple[str, str | None]]) -> list[bool]:
        """Give back what callers hold, by holder and token; without a token, everything of that holder, its place in
        line included. False: the caller is not the owner, or no longer, and nothing was changed. Never touches a job's
        lease.
        """

    # --- workers ----------------------------------------------------------------------------------------------

    async def register(self, registration: Registration) -> Registered:
        """Register a worker that has started. It lives for `lifetime_ms` unless renewed.

        While another instance of this name lives, and `replaces` does not name it, nothing is changed, and the answer
        has that instance as `namesake`.
        The configuration's `limits` are set like `set_limits`, by this worker; limits that it does not name stay. Then
        its tasks' groups, attempts and limits (source TASK) replace those of workers that started earlier. Lanes parked
        in a group that their task no longer names are looked at again.
        `tasks` empty: this instance is gone. Nothing happens if the name is another instance's by now.
        Events: limit, where changed. Audit: "limit", for the configuration's limits that changed.
        """

    async def wait_for_work(
        self,
        *,
        worker: str,
        tasks: Sequence[str],
        timeout_seconds: float,
        offer: Offer | None = None,
        suspects: int | None = None,
    ) -> Claimed:
        """Return, with `more`, as soon as such a claim might find something; empty when the time is up.

        It looks at the present state, not at what changed, so no wake-up can be missed between a claim and this.
        With an offer, a store may claim a job for the worker in the step that makes it claimable, and then returns
        its lease, which spares the worker a round trip. A step fills no more offers once their payloads and
        checkpoints have `bounds.claim_bytes`: it only wakes.
        A call that is cancelled may have been given a job all the same: the next `claim` or `wait_for_work` with the
        same claim id returns its lease. With no time to wait, no offer stands when this returns.
        """

    # --- upkeep: bounded, in order, safe at any time ----------------------------------------------------------

    async def catch_up(self) -> Portion:
        """Deal with what has come due, as `claim` and `acquire` do when they begin; at most one portion of each kind.

        Notes the time. Then, in this order: groups whose closing time has passed open; tickets past their end are
        dropped; leases past their end are over, by (end, token); overdue jobs fail; due jobs join the line. When a
        lease is over, a caller's slots are free; a job is cancelled if that was wanted, failed if its attempts are
        spent, else back in line. Jobs come back before any due job joins, and after all slots are free.
        Returns the ids of jobs whose lease was over, then of those that were overdue, then of those that joined.
        Events: lease_lost (with the limited `groups` in which it held slots, if any) and the new state; failed; queued.
        """

    async def upkeep(self, rules: UpkeepRules) -> UpkeepDone:
        """Do what the rules ask for, in this order. All parts share one portion.

        1. Aging. Jobs that have been in line for `aging_period_ms` since they entered it or last aged, longest first,
           move up one named priority level (`ordering.aged_priority`). Jobs that cannot are passed by, but count. A
           job's own priority and its `priority:` group stay.
        2. Confirming jobs that were not confirmed for `unconfirmed_after_ms`, longest first, fail.
        3. Reminders that are due for confirming jobs, longest waiting first, are returned, each once ever. Several that
           are due for one job come together, in their order.
        4. What is beyond `keep` is removed, oldest first. Ended jobs; those of a parent only when all its jobs have
           ended, and then by the time the last one did. Events of earlier steps, but never the newest. Audit entries.
           Figures older than `keep.ms` are summed under minute 0; those of a group without a limit are removed, also
           when the limit is. Quota of past days. Users without any quota left, and limits of source TIER or SUBMIT of
           groups without holders, when the newest job that named them is older than every kept one, unless a person set
           them. Groups with nothing left, and workers that are long gone.
        Events: aged; failed.
        """

    # --- figures for estimates --------------------------------------------------------------------------------

    async def observe(
        self,
        observations: Sequence[tuple[Average, float]] = (),
        *,
        errors: Mapping[str, Sequence[float]] = MappingProxyType({}),
        keep_errors: int = 500,
    ) -> None:
        """Move averages by one value each: `value += weight * (new - value)`, likewise the squares. For each task in
        `errors`, remember how wrong estimates were (actual wait / estimate), the newest `keep_errors` of a task.
        """

    # --- service data -----------------------------------------------------------------------------------------

    async def put_record(self, name: str, value: Any, *, version: int, audited: Audited | None = None) -> bool:
        """Write if the record still has this version (0: if there is none), and make it `version + 1`. None removes it.
        False: another caller was first, and nothing was changed. Audit: `audited`, where it is given and was written.
        """

    async def close(self) -> None: ...
