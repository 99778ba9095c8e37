"""A worker and its registration."""

from __future__ import annotations

from datetime import datetime

import msgspec

from qo.values.limits import Limit, LimitChange, LimitIgnored

DEFAULT_MAX_ATTEMPTS = 3
DEFAULT_LEASE_MS = 300_000
DEFAULT_TURN_AFTER = 8


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: str
    groups: tuple[str, ...] = ()
    limit: int | None = None
    max_attempts: int | None = None
    """The attempts of jobs whose submit named none. None stands for DEFAULT_MAX_ATTEMPTS."""


class Registration(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A worker's registration. Without `tasks` it says that the worker has gone."""

    name: str
    instance: str = ""
    """An id that the worker made for itself, which tells it from all others that ever had its name."""
    replaces: str | None = None
    """An instance that is known to be dead. This worker takes over its name."""
    tasks: tuple[TaskOptions, ...]
    capacity: int
    limits: tuple[Limit, ...] = ()
    """The limits of the worker's configuration."""
    lifetime_ms: int = 30_000
    lease_ms: int = DEFAULT_LEASE_MS
    """How long the leases of this worker's jobs last."""
    turn_after: int = DEFAULT_TURN_AFTER
    """How often a job or caller is passed before it takes a turn. 0 switches turns off."""
    host: str | None = None
    pid: int | None = None


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A live worker: its tasks, how many jobs it may run at once and how many it runs, and where it is."""

    name: str
    """Its name, which no other live worker has."""
    instance: str = ""
    """Another one each time a worker of this name starts."""
    tasks: tuple[str, ...]
    """The tasks that it runs."""
    capacity: int
    """How many jobs it runs at once, at most."""
    running: int
    """How many it runs now."""
    registered_at: datetime
    """When it started, or came back."""
    heard_at: datetime
    """When the worker registered or last renewed its registration."""
    expires_at: datetime
    """When it counts as dead, unless it is heard of before."""
    host: str | None = None
    """The machine that it runs on."""
    pid: int | None = None
    """Its process there."""


class Registered(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The answer to a registration. With a `namesake`, a live worker has that name, and nothing was registered or
    changed. `changed` are the configuration's limits that were set, `ignored` the limits that a stronger source keeps
    out. `now_ms` is the store's time."""

    namesake: WorkerInfo | None = None
    changed: tuple[LimitChange, ...] = ()
    ignored: tuple[LimitIgnored, ...] = ()
    now_ms: int
