"""What must hold in every simulated world, whatever goes wrong in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from qo.event import LEASE_LOST, Event
from qo.job import ENDED, Job, State
from qo.store.sqlite.store import SQLiteStore
from tests.conformance.invariants import broken_invariants
from tests.simulation.plan import Plan
from tests.store.sqlite.snapshot import snapshot

OVER_LIMIT = """
    SELECT slot.grp, grp.slots, COUNT(slot.token) FROM slot JOIN grp ON grp.name = slot.grp
    WHERE slot.token IS NOT NULL AND grp.slots IS NOT NULL GROUP BY slot.grp HAVING COUNT(slot.token) > grp.slots
"""


class Run(msgspec.Struct, kw_only=True):
    """One run of a handler."""

    process: str
    job_id: str
    token: str
    began_at: float
    ended_at: float | None = None
    """None: its process died before."""
    returned: bool = False


class Evidence(msgspec.Struct, kw_only=True):
    """What the simulation has seen, beside the store's own account."""

    runs: list[Run] = []
    accepted: set[str] = set()
    finished: dict[str, State] = {}
    """By job, the final state that the store has answered to a worker."""
    disturbed_at: dict[str, float] = {}
    """By process, when it was last paused, cut off, or without a message. It cannot know of a lost lease until then."""
    died_at: dict[str, float] = {}
    ended_at: float = 0.0


async def over_limit(store: SQLiteStore) -> list[str]:
    """capacity: at every commit, no group has more live holders than its limit."""
    found = await store.read(lambda db: list(db.execute(OVER_LIMIT)))
    return [f"capacity: {group} has {holders} holders and a limit of {limit}" for group, limit, holders in found]


async def unended(store: SQLiteStore) -> int:
    """How many jobs have not ended."""
    ended = ", ".join(f"'{state.value}'" for state in sorted(ENDED))
    return await store.read(lambda db: int(db.execute(f"SELECT COUNT(*) FROM job WHERE state NOT IN ({ended})").get))


async def broken_rules(store: SQLiteStore, plan: Plan, evidence: Evidence, *, epoch_ms: int) -> list[str]:
    """A sentence for each rule that the world has broken by its end."""
    state = await snapshot(store)
    jobs: dict[str, Job] = {name: each["job"] for name, each in state["jobs"].items()}
    events: list[Event] = state["events"]
    return [
        *broken_invariants(state),
        *_nothing_is_left(jobs.values(), state["leases"], state["slots"]),
        *_every_accepted_job_is_there(jobs, evidence),
        *_each_ended_once(jobs.values(), events, evidence),
        *_results_are_those_of_runs(jobs.values(), evidence),
        *_a_lost_lease_ends_its_run(events, plan, evidence, epoch_ms=epoch_ms),
    ]


def _nothing_is_left(
    jobs: Iterable[Job], leases: dict[str, dict[str, object]], slots: dict[str, object]
) -> Iterable[str]:
    for job in jobs:
        if job.state not in ENDED:
            yield f"work-conserving: {job.id} is still {job.state.value}"
    for token, lease in leases.items():
        yield f"reclaim: the lease {token} of {lease['holder']} is still held"
    for group in slots:
        yield f"reclaim: a slot of {group} is still held"


def _every_accepted_job_is_there(jobs: dict[str, Job], evidence: Evidence) -> Iterable[str]:
    for name in sorted(evidence.accepted - jobs.keys()):
        yield f"durable: {name} was accepted and is gone"
    for name, state in evidence.finished.items():
        if name in jobs and jobs[name].state is not state:
            yield f"fenced: {name} was answered as {state.value} and is {jobs[name].state.value}"


def _each_ended_once(jobs: Iterable[Job], events: list[Event], evidence: Evidence) -> Iterable[str]:
    ends = Counter(event.subject for event in events if event.kind in ENDED)
    for job in jobs:
        if ends[job.id] != 1:
            yield f"conservation: {job.id} has ended {ends[job.id]} times"
        if job.attempts > (job.max_attempts or 1):
            yield f"bounded attempts: {job.id} was tried {job.attempts} times of {job.max_attempts}"


def _results_are_those_of_runs(jobs: Iterable[Job], evidence: Evidence) -> Iterable[str]:
    returned = {(run.job_id, run.token) for run in evidence.runs if run.returned}
    for job in jobs:
        if job.state is State.SUCCEEDED and (job.id, job.result) not in returned:
            yield f"one owner: {job.id} has succeeded with {job.result!r}, which no run of it has returned"


def _a_lost_lease_ends_its_run(events: list[Event], plan: Plan, evidence: Evidence, *, epoch_ms: int) -> Iterable[str]:
    """A worker that is connected ends the handler of a lost lease: by a signal, or by its next renewal."""
    patience = plan.lease_seconds / 3 + 0.3 + 4 * plan.longest_delay
    lost_at = {
        event.detail["token"]: event.at.timestamp() - epoch_ms / 1000 for event in events if event.kind == LEASE_LOST
    }
    for run in evidence.runs:
        if run.token not in lost_at:
            continue
        knows_from = max(lost_at[run.token], run.began_at, evidence.disturbed_at.get(run.process, 0.0))
        ended_at = run.ended_at or evidence.died_at.get(run.process, evidence.ended_at)
        if ended_at > knows_from + patience:
            yield (
                f"one owner: {run.process} went on with {run.job_id} for {ended_at - knows_from:.1f} s after its lease "
                f"{run.token} was lost"
            )
