"""Which groups a job belongs to, and how groups are named and summed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from qo.values import looks

GLOBAL = "global"
PROVIDERS = "providers"
RECORDER = "history-recorder"
"""The group of one slot, which the recorder of the history holds."""
KINDS = ("user", "project", "tier", "priority", "parent", "provider")
GATES = 2
"""How many of a job's groups, the first ones, are gates: `global` and the task's own, which hold for all its jobs."""
COUNTED_IF_LIMITED = 3
"""How many of a job's groups, the first ones, record holders only while they have a limit: see `is_always_counted`."""
MOST_GROUPS = 64
"""How many groups a submit, a task or a caller's ticket may name, by SPEC.md section 3. Each group costs a step."""


def within_portion(portion: int, groups: Iterable[int]) -> int:
    """How many jobs or leases a step deals with, given the number of groups of each: as many as it takes for their
    looks to reach the portion, and at least one."""
    counted = number = 0
    for number, count in enumerate(groups, start=1):
        if counted >= portion:
            return number - 1
        counted += max(1, looks(count))
    return number


def groups_of(
    *,
    task: str,
    priority: int,
    user: str | None = None,
    project: str | None = None,
    tier: str | None = None,
    parent: str | None = None,
    task_groups: tuple[str, ...] = (),
    own: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """Every group of a job, each once, in the order in which a claim looks at them.

    The first two are gates: they hold for all jobs of the task. Answers are cached, because a step asks for the groups
    of the same job several times.
    """
    return _groups_of(task, priority, user, project, tier, parent, task_groups, own)


@lru_cache(maxsize=4096)
def _groups_of(
    task: str,
    priority: int,
    user: str | None,
    project: str | None,
    tier: str | None,
    parent: str | None,
    task_groups: tuple[str, ...],
    own: tuple[str, ...],
) -> tuple[str, ...]:
    # Without keywords, which would double the time of a cache lookup.
    named = (("user", user), ("project", project), ("tier", tier), ("parent", parent))
    owned = (f"{kind}:{name}" for kind, name in named if name is not None)
    return tuple(dict.fromkeys((GLOBAL, task, f"priority:{priority}", *owned, *task_groups, *own)))


def kind_of(group: str) -> str:
    """The name under which a group is summed in figures, so that a million users are not a million series."""
    kind, colon, _ = group.partition(":")
    return kind if colon and kind in KINDS else group


def is_always_counted(group: str, task: str) -> bool:
    """Whether holders are recorded while the group has no limit.

    For `global`, a task's own group and `priority:` they are found through their leases when a first limit is set.
    That saves three writes a job.
    """
    return group not in (GLOBAL, task) and not group.startswith("priority:")
