"""The invariants of DESIGN.md section 7 that one look at a store's whole state can show.

A snapshot is described in `model/snapshots.py`. Each function yields a sentence for what is broken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from qo.job import HELD, State
from qo.policy.ordering import place_of, priority_of

Snapshot = dict[str, Any]


def broken_invariants(snapshot: Snapshot) -> list[str]:
    checks = (all_or_nothing, one_owner, open_index, conservation, free_deferral, slot_numbers, one_job_a_phase)
    return [sentence for check in checks for sentence in check(snapshot)]


def over_capacity(before: Snapshot, after: Snapshot) -> list[str]:
    """capacity: a step never makes the holders of a group more than its limit, nor more of those that are."""
    return [
        f"capacity: {group} has {len(after['slots'].get(group, {}))} holders and a limit of {row['limit']}"
        for group, row in after["groups"].items()
        if row["limit"] is not None
        and len(after["slots"].get(group, {})) > max(row["limit"], _holders_before(before, after, group))
    ]


def _holders_before(before: Snapshot, after: Snapshot, group: str) -> int:
    """Who held it, recorded or not: a first limit records those that were running already."""
    held_before = {row["holder"] for row in before["leases"].values()}
    tokens = after["slots"].get(group, {}).values()
    return sum(after["leases"][token]["holder"] in held_before for token in tokens)


def all_or_nothing(snapshot: Snapshot) -> Iterator[str]:
    """A job that is held has one slot in each of its limited groups; whoever holds a slot has a lease."""
    slots_of: dict[str, list[str]] = {token: [] for token in snapshot["leases"]}
    for group, taken in snapshot["slots"].items():
        for number, token in taken.items():
            if token not in slots_of:
                yield f"all-or-nothing: slot {number} of {group} belongs to the lease {token}, which is over"
            else:
                slots_of[token].append(group)
    for token, groups in slots_of.items():
        if len(set(groups)) < len(groups):
            yield f"all-or-nothing: the lease {token} has two slots in one of {sorted(groups)}"
    for token, lease in snapshot["leases"].items():
        if lease["job"]:
            job = snapshot["jobs"][lease["holder"]]["job"]
            limited = {g for g in job.groups if snapshot["groups"].get(g, {}).get("limit") is not None}
            # A priority that was changed while the job runs counts when it comes back.
            missing = {g for g in limited - set(slots_of[token]) if not g.startswith("priority:")}
            if missing:
                yield f"all-or-nothing: {job.id} runs without a slot in {sorted(missing)}"


def one_owner(snapshot: Snapshot) -> Iterator[str]:
    owners = Counter(lease["holder"] for lease in snapshot["leases"].values() if lease["job"])
    tokens = {lease["holder"]: token for token, lease in snapshot["leases"].items() if lease["job"]}
    for job_id, row in snapshot["jobs"].items():
        job = row["job"]
        if owners[job_id] != (1 if job.state in HELD else 0):
            yield f"one owner: {job_id} is {job.state} and has {owners[job_id]} leases"
        elif job.state in HELD and job.token != tokens[job_id]:
            yield f"one owner: {job_id} names the token {job.token}, its lease {tokens[job_id]}"
    if any(int(token) > snapshot["clock"]["last_token"] for token in snapshot["leases"]):
        yield "one owner: a token is greater than the last one given"


def has_room(snapshot: Snapshot, group: str) -> bool:
    row = snapshot["groups"].get(group)
    if row is None:
        return True
    if row["paused"] or row["closed_until"] is not None:
        return False
    return row["limit"] is None or len(snapshot["slots"].get(group, {})) < row["limit"]


def open_index(snapshot: Snapshot) -> Iterator[str]:
    """A group is open for a task exactly when it has room and parked jobs of it, under the first one's key."""
    heads: dict[tuple[str, int, str], int] = {}
    waiting = [(row["job"].task, row["suspicion"], row["parked"], row["key"]) for row in snapshot["jobs"].values()]
    waiting += [("", 0, row["parked"], row["key"]) for row in snapshot["tickets"].values()]
    for task, suspicion, group, key in waiting:
        if group is not None and has_room(snapshot, group):
            heads[task, suspicion, group] = min(key, heads.get((task, suspicion, group), key))
    expected = sorted((*source, key) for source, key in heads.items())
    if snapshot["open"] != expected:
        yield f"open: the index has {snapshot['open']}, the parked ones make {expected}"


def conservation(snapshot: Snapshot) -> Iterator[str]:
    """Every job is in one state and where that state says; places are nobody else's; counts agree."""
    queued = [row for row in snapshot["jobs"].values() if row["job"].state is State.QUEUED]
    queued.sort(key=lambda row: row["key"])
    for rank, row in enumerate(queued, start=1):
        if row["job"].position != rank:
            yield f"conservation: {row['job'].id} is #{rank} by its key and says #{row['job'].position}"
    for job_id, row in snapshot["jobs"].items():
        job = row["job"]
        in_line = job.state is State.QUEUED
        if (row["key"] is not None) != (in_line or job.state in HELD):
            yield f"conservation: {job_id} is {job.state} and its key is {row['key']}"
        if not in_line and (row["parked"] is not None or job.position is not None):
            yield f"conservation: {job_id} is {job.state} and still in line"
        if (row["due_at"] is not None) and job.state not in (State.SCHEDULED, State.WAITING):
            yield f"conservation: {job_id} is {job.state} and due to join the line"
    keys = [row["key"] for row in (*snapshot["jobs"].values(), *snapshot["tickets"].values())]
    places = [place_of(key) for key in keys if key is not None]
    if len(set(places)) < len(places):
        yield f"conservation: two have the same place, {sorted(places)}"
    counts = dict(Counter(priority_of(row["key"]) for row in queued))
    if snapshot["counts"] != counts:
        yield f"conservation: counted {snapshot['counts']} in line, there are {counts}"
    event_ids = [event.id for event in snapshot["events"]]
    if event_ids and event_ids != list(range(event_ids[0], event_ids[0] + len(event_ids))):
        yield f"conservation: the feed has gaps, {event_ids}"


def free_deferral(snapshot: Snapshot) -> Iterator[str]:
    holders = {lease["holder"] for lease in snapshot["leases"].values() if lease["job"]}
    for job_id, row in snapshot["jobs"].items():
        if row["job"].state in (State.SCHEDULED, State.WAITING, State.CONFIRMING) and job_id in holders:
            yield f"free deferral: {job_id} is {row['job'].state} and holds slots"


def slot_numbers(snapshot: Snapshot) -> Iterator[str]:
    for group, taken in snapshot["slots"].items():
        if any(number < 0 for number in taken):
            yield f"slots: {group} has a negative number, {sorted(taken)}"


def one_job_a_phase(snapshot: Snapshot) -> Iterator[str]:
    """A phase of a parent is one job, beside those that were cancelled before it was submitted again."""
    jobs = [row["job"] for row in snapshot["jobs"].values()]
    taken = Counter((job.parent, job.phase) for job in jobs if job.phase is not None and job.state != State.CANCELLED)
    for (parent, phase), number in taken.items():
        if number > 1:
            yield f"phases: {number} jobs are phase {phase} of {parent}"
