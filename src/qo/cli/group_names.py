"""Whether a group's name is in use, so that a slip of the keyboard is noticed."""

from __future__ import annotations

from difflib import get_close_matches

from qo.policy.groups import GLOBAL
from qo.queue.queue import Queue
from qo.values import GroupStatus

LINE_READ = 10_000
"""So many jobs in line are looked at. Beyond that the group may be in use, and nothing is said."""


async def unused_warning(queue: Queue, group: str) -> str | None:
    """What to tell a person who paused a group that nobody uses; None where it is in use, or may be."""
    known = {GLOBAL}
    for each in await queue.limits():
        if each.group != group or _is_used(each):
            known.add(each.group)
    for worker in await queue.workers():
        known.update(worker.tasks)
    line = await queue.store_here.line(limit=LINE_READ)
    for job in line.jobs:
        known.update(job.groups)
    for lease in await queue.store_here.leases():
        known.update(lease.job.groups)
    if group in known or line.next is not None:
        return None
    nearest = get_close_matches(group, sorted(known), n=1, cutoff=0.7)
    meant = f" Did you mean {nearest[0]!r}?" if nearest else ""
    return (
        f"No job in line or running, no worker and no limit uses the group {group!r}.{meant} It is paused all the "
        f"same, for whoever uses it later; `qo queue resume {group}` ends that."
    )


def _is_used(group: GroupStatus) -> bool:
    """A group that has nothing but its pause is not."""
    return group.limit is not None or group.active > 0 or group.waiting > 0
