"""The state of a store that a replay starts from, and the same state with other limits or workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from qo.policy.ordering import FIRST_SEQUENCE
from qo.values import GroupStatus, InLine, Lease, Mean, WorkerInfo


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the store that one replay starts from."""

    now: float
    line: Sequence[InLine]
    leases: Sequence[Lease]
    groups: Sequence[GroupStatus]
    workers: Sequence[WorkerInfo]
    means: Mapping[str, Mean]
    queued: int = 0
    """How many jobs are in line in all; `line` has the first of them."""
    next_sequence: int = FIRST_SEQUENCE
    task_groups: Mapping[str, tuple[str, ...]] = {}
    """The groups that tasks add to their jobs."""

    def group(self, name: str) -> GroupStatus:
        """A group as it was read. One that was not among those is unlimited and empty."""
        return next((group for group in self.groups if group.group == name), GroupStatus(group=name))


def with_limits(situation: Situation, limits: Mapping[str, int | None]) -> Situation:
    """The situation as if these limits were in force; None stands for no limit.

    A group that had no limit counts the jobs that run in it already, as a store does when it sets a first limit.
    """
    if not limits:
        return situation
    status = {group.group: group for group in situation.groups}
    newly_limited = {name for name, limit in limits.items() if limit is not None and _limit_in(status, name) is None}
    leases = [_holding(lease, newly_limited) for lease in situation.leases]
    for name, limit in limits.items():
        known = status.get(name, GroupStatus(group=name))
        active = max(known.active, sum(name in lease.slots for lease in leases))
        status[name] = msgspec.structs.replace(known, limit=limit, active=active)
    return msgspec.structs.replace(situation, groups=list(status.values()), leases=leases)


def with_capacity(situation: Situation, capacity: Mapping[str, int]) -> Situation:
    """The situation as if the named workers had this capacity."""
    workers = [
        msgspec.structs.replace(worker, capacity=capacity.get(worker.name, worker.capacity))
        for worker in situation.workers
    ]
    return msgspec.structs.replace(situation, workers=workers)


def _limit_in(status: Mapping[str, GroupStatus], name: str) -> int | None:
    return status[name].limit if name in status else None


def _holding(lease: Lease, newly_limited: set[str]) -> Lease:
    """The lease with a slot in each of its job's newly limited groups. Its number is not needed by a replay."""
    groups = newly_limited.intersection(lease.job.groups)
    if not groups:
        return lease
    return Lease.of(
        lease.job,
        token=lease.token,
        expires_at_ms=lease.expires_at_ms,
        slots={**lease.slots, **dict.fromkeys(groups, 0)},
        suspicion=lease.suspicion,
    )
