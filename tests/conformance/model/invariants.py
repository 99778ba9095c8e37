"""The invariants of the design (section 7) that can be seen in one step, on the reference model's own rows."""

from __future__ import annotations

from collections import Counter

from qo.job import ENDED, HELD, State
from qo.policy.ordering import place_of
from qo.values import Suspicion
from tests.conformance.model.kept import Kept, name_of
from tests.conformance.model.reads import Reads
from tests.conformance.model.state import LeaseRow, ModelState, certain
from tests.conformance.model.turns import kept_now, with_a_turn


def check_invariants(model: Reads, before: ModelState, now: int | None) -> None:
    """`before` is the state at the beginning of the step, `now` its time, if it has one."""
    check_capacity(model, before)
    check_all_or_nothing(model, before)
    check_one_owner(model, before)
    check_conservation(model, before)
    check_free_deferral(model)
    check_turns(model)
    if now is not None and any(token not in before.leases for token in model.state.leases):
        check_no_starvation(model, before, now)
    check_alone(model)


def check_capacity(model: Reads, before: ModelState) -> None:
    """Nobody new in a group that is then over its limit. Those already there when a limit came or fell remain."""
    for name, row in model.state.groups.items():
        holders = model.holders(name)
        if all(lease.token in before.leases for lease in holders):
            continue
        assert row.limit is None or len(holders) <= row.limit, f"capacity: {name} has {len(holders)} of {row.limit}"
        assert not row.paused, f"capacity: somebody started in {name}, which is paused"


def check_all_or_nothing(model: Reads, before: ModelState) -> None:
    for group in {group for lease in model.state.leases.values() for group in lease.slots}:
        numbers = Counter(lease.slots[group] for lease in model.holders(group))
        assert max(numbers.values()) == 1, f"all-or-nothing: a slot of {group} is held twice"
    for token, lease in model.state.leases.items():
        kept = set(before.leases[token].slots) if token in before.leases else set()
        assert kept <= set(lease.slots), f"all-or-nothing: {lease.holder} lost a slot but not its lease"
        if lease.is_job and token not in before.leases:
            groups = model.groups_of_job(model.state.jobs[lease.holder])
            limited = {group for group in groups if model.is_limited(group)}
            assert limited <= set(lease.slots), f"all-or-nothing: {lease.holder} runs without a slot"


def check_one_owner(model: Reads, before: ModelState) -> None:
    held = {(job.id, job.token) for job in model.state.jobs.values() if job.state in HELD}
    leased = [(lease.holder, lease.token) for lease in model.state.leases.values() if lease.is_job]
    assert sorted(held) == sorted(leased), f"one owner: held are {held}, leased are {leased}"
    callers = [lease.holder for lease in model.state.leases.values() if not lease.is_job]
    assert len(set(callers)) == len(callers), f"one owner: {callers}"
    assert not set(callers) & set(model.state.tickets), "one owner: a caller holds and waits at once"
    new = [token for token in model.state.leases if token not in before.leases]
    assert all(token > before.last_token for token in new), "one owner: a token that is not greater than all before"


def check_conservation(model: Reads, before: ModelState) -> None:
    jobs = model.state.jobs
    ended_now = {one.subject for one in model.state.events if one.id > before.last_event and one.kind in ENDED}
    for gone in before.jobs.keys() - jobs.keys():
        # One step of upkeep may fail a job that was not confirmed, and forget it because no ended jobs are kept.
        assert before.jobs[gone].state in ENDED or gone in ended_now, f"conservation: {gone} is lost"
    assert all(jobs[id].number == row.number for id, row in before.jobs.items() if id in jobs)
    for job in jobs.values():
        has_key = job.state in HELD or job.state is State.QUEUED
        assert (job.key is not None) == has_key, f"conservation: {job.id} is {job.state} with key {job.key}"
        assert model.parked(job) in (None, *model.groups_of_job(job)), f"{job.id} is parked in {model.parked(job)}"
        assert (job.aged_at is not None) == (job.state is State.QUEUED)
        assert job.due_at is None or job.state in (State.SCHEDULED, State.WAITING)
        assert (job.finished_at is not None) == (job.state in ENDED)
        assert job.attempts <= (job.max_attempts or 0), f"bounded attempts: {job.id} started {job.attempts} times"
        assert job.parent is None or job.parent in model.state.parents
    keyed = [one.key for one in model.state.jobs_and_tickets() if one.key is not None]
    places = [place_of(key) for key in keyed]
    assert len(set(places)) == len(places), "order: a place is taken twice"


def check_free_deferral(model: Reads) -> None:
    for job in model.state.jobs.values():
        if job.deferred:
            assert job.state in (State.SCHEDULED, State.WAITING), f"free deferral: {job.id} is {job.state}"
            assert job.attempts == 0, f"free deferral: {job.id} has spent an attempt"


def check_turns(model: Reads) -> None:
    turns = with_a_turn(model)
    # A tier or a registration may add groups to those that have a turn, so only their number always has its bound.
    assert len(turns) <= model.bounds.turns, f"turns: {len(turns)} jobs and callers have one"
    for job in model.state.jobs.values():
        assert job.state is State.QUEUED or not (job.turn or job.passed), f"turns: {job.id} is {job.state} and has one"


def check_no_starvation(model: Reads, before: ModelState, now: int) -> None:
    """Nobody behind a turn has taken the slot that it keeps, before the step and after it."""
    kept, kept_before = kept_now(model, now), kept_in(model, before, now)
    for group, limit in [(group, certain(model.group_row(group).limit)) for group in kept.asking]:
        first, first_before = kept.first(group), kept_before.first(group)
        if first is None or first_before is None or name_of(first) != name_of(first_before):
            continue
        new = [lease for lease in model.holders(group) if lease.token not in before.leases]
        behind = [lease.holder for lease in new if key_of_holder(model, before, lease) > certain(first.key)]
        room = len(model.holders(group)) < limit
        assert not behind or room, f"no starvation: {behind} took the slot of {group} kept for {name_of(first)}"


def kept_in(model: Reads, state: ModelState, now: int) -> Kept:
    present, model.state = model.state, state
    try:
        return kept_now(model, now)
    finally:
        model.state = present


def key_of_holder(model: Reads, before: ModelState, lease: LeaseRow) -> int:
    """-1 for a caller that came in this step: its key is no longer known."""
    if lease.is_job:
        return certain(model.state.jobs[lease.holder].key)
    return before.tickets[lease.holder].key if lease.holder in before.tickets else -1


def check_alone(model: Reads) -> None:
    for job in model.state.jobs.values():
        if job.suspicion is Suspicion.LAST:
            assert job.state in HELD or job.state is State.QUEUED, f"suspects: {job.id} is {job.state}"
            alone = job.worker is None or model.running(job.worker) == 1
            assert alone, f"suspects: {job.id} does not run alone on {job.worker}"
