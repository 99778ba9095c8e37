"""A reason why a job waits, in a few words. It names no job and no caller, so every user may read it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class ReasonKind(StrEnum):
    NO_WORKER = "no_worker"
    """No live worker runs the task. `group` is the task, whose own group has the same name."""
    PAUSED = "paused"
    SHUT = "shut"
    """The group has a limit of 0."""
    CLOSED = "closed"
    """The slots of the group are kept elsewhere and were found full. It is tried again soon."""
    FULL = "full"
    KEPT = "kept"
    """The group has a free slot, which is kept for a job or caller before this one."""
    BUSY = "busy"
    """All workers that run the task are busy. `group` is the task."""
    SUSPECT = "suspect"
    """It was running when its worker stopped responding, so it runs alone or among few."""
    NEXT = "next"
    """Nothing holds it up."""
    SCHEDULED = "scheduled"
    WAITING = "waiting"
    CONFIRMING = "confirming"
    """In the overview: jobs that are not in line, by their states."""
    OTHER = "other"
    """In the overview: all reasons that are not named."""


class Reason(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    kind: ReasonKind
    text: str
    group: str | None = None


class SharedReason(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What `count` jobs in line wait for before all else."""

    kind: ReasonKind
    text: str
    group: str | None = None
    count: int


Reasons = tuple[Reason, ...]


class ChangedReasons(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Jobs in line that wait for this now."""

    waits_for: Reasons
    ids: list[str]
