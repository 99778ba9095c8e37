"""A job queue in which every job knows its place in line and no limit is ever exceeded."""

from typing import TYPE_CHECKING, Any

from qo._version import __version__
from qo.errors import (
    AuditEntryNotFound,
    Fail,
    HistoryAway,
    HistoryFull,
    InvalidPriority,
    InvalidSubmit,
    InvalidTransition,
    InvalidValue,
    JobCancelled,
    JobFailed,
    JobNotFound,
    LeaseAlive,
    LeaseLost,
    MoveRefused,
    NoResult,
    NoStoreYet,
    ParentNotFound,
    PayloadTooLarge,
    PhaseTaken,
    QoError,
    QueueFull,
    Retry,
    SettingsError,
    SlotNotFound,
    StoreAway,
    StoreUnavailable,
    SubmitRefused,
    Timeout,
    UndoRefused,
    UnknownTier,
    WrongEventLoop,
)

if TYPE_CHECKING:
    from qo import sync
    from qo.clock import Clock
    from qo.event import AuditEntry, Event
    from qo.job import (
        Attempt,
        Basis,
        Estimate,
        Job,
        JobError,
        JobHistory,
        Progress,
        Promise,
        Reached,
        State,
        Upgrade,
        Usage,
    )
    from qo.limits.block import Block, Lease
    from qo.limits.by_hand import ConcurrencyManager
    from qo.limits.limiter import Limiter
    from qo.limits.metrics import LimiterMetrics, Sample
    from qo.limits.semaphore import (
        TIER_CONCURRENT_PROJECT,
        TIER_CONCURRENT_USER,
        Semaphore,
        project_semaphore,
        user_semaphore,
    )
    from qo.new_job import New, Task
    from qo.notify.signing import verify as verify_webhook
    from qo.policy.analytics import Analytics, GroupFigures, PromiseFigures, Series, WaitSeries
    from qo.policy.estimates.newcomer import NewEstimate
    from qo.policy.estimates.timeline import Expected, Holds, Ran, Timeline
    from qo.policy.estimates.what_if import Variant, Waits, WhatIf
    from qo.policy.promises import Start
    from qo.policy.why import Blocked, Holder, Why
    from qo.queue.connect import connect
    from qo.queue.queue import Admitted, Queue
    from qo.queue.wait_times import WaitTimeEstimator
    from qo.values import GroupStatus as ConcurrencyStatus
    from qo.values import JobsPage, Limit, ParentStatus, SlotInfo, Source, WorkerInfo
    from qo.worker.context import Context, ThreadContext
    from qo.worker.declared import TaskFunction, TaskMaker, task
    from qo.worker.numbers import WorkerNumbers
    from qo.worker.worker import Worker

# Imported when first used, so that `import qo` and `qo --help` stay light.
_LAZY = {
    "GroupFigures": ("qo.policy.analytics", "GroupFigures"),
    "PromiseFigures": ("qo.policy.analytics", "PromiseFigures"),
    "Series": ("qo.policy.analytics", "Series"),
    "WaitSeries": ("qo.policy.analytics", "WaitSeries"),
    "Start": ("qo.policy.promises", "Start"),
    "Admitted": ("qo.queue.queue", "Admitted"),
    "JobsPage": ("qo.values", "JobsPage"),
    "Task": ("qo.new_job", "Task"),
    "TaskFunction": ("qo.worker.declared", "TaskFunction"),
    "TaskMaker": ("qo.worker.declared", "TaskMaker"),
    "WorkerNumbers": ("qo.worker.numbers", "WorkerNumbers"),
    "task": ("qo.worker.declared", "task"),
    "Analytics": ("qo.policy.analytics", "Analytics"),
    "AuditEntry": ("qo.event", "AuditEntry"),
    "Basis": ("qo.job", "Basis"),
    "Block": ("qo.limits.block", "Block"),
    "Blocked": ("qo.policy.why", "Blocked"),
    "Clock": ("qo.clock", "Clock"),
    "ConcurrencyManager": ("qo.limits.by_hand", "ConcurrencyManager"),
    "ConcurrencyStatus": ("qo.values", "GroupStatus"),
    "Context": ("qo.worker.context", "Context"),
    "Estimate": ("qo.job", "Estimate"),
    "Event": ("qo.event", "Event"),
    "Expected": ("qo.policy.estimates.timeline", "Expected"),
    "Holder": ("qo.policy.why", "Holder"),
    "Holds": ("qo.policy.estimates.timeline", "Holds"),
    "Job": ("qo.job", "Job"),
    "JobError": ("qo.job", "JobError"),
    "Attempt": ("qo.job", "Attempt"),
    "JobHistory": ("qo.job", "JobHistory"),
    "Promise": ("qo.job", "Promise"),
    "Reached": ("qo.job", "Reached"),
    "Lease": ("qo.limits.block", "Lease"),
    "Limit": ("qo.values", "Limit"),
    "Limiter": ("qo.limits.limiter", "Limiter"),
    "LimiterMetrics": ("qo.limits.metrics", "LimiterMetrics"),
    "New": ("qo.new_job", "New"),
    "NewEstimate": ("qo.policy.estimates.newcomer", "NewEstimate"),
    "ParentStatus": ("qo.values", "ParentStatus"),
    "Progress": ("qo.job", "Progress"),
    "Queue": ("qo.queue.queue", "Queue"),
    "Ran": ("qo.policy.estimates.timeline", "Ran"),
    "Sample": ("qo.limits.metrics", "Sample"),
    "Semaphore": ("qo.limits.semaphore", "Semaphore"),
    "SlotInfo": ("qo.values", "SlotInfo"),
    "Source": ("qo.values", "Source"),
    "State": ("qo.job", "State"),
    "TIER_CONCURRENT_PROJECT": ("qo.limits.semaphore", "TIER_CONCURRENT_PROJECT"),
    "TIER_CONCURRENT_USER": ("qo.limits.semaphore", "TIER_CONCURRENT_USER"),
    "ThreadContext": ("qo.worker.context", "ThreadContext"),
    "Timeline": ("qo.policy.estimates.timeline", "Timeline"),
    "Upgrade": ("qo.job", "Upgrade"),
    "Usage": ("qo.job", "Usage"),
    "Variant": ("qo.policy.estimates.what_if", "Variant"),
    "WaitTimeEstimator": ("qo.queue.wait_times", "WaitTimeEstimator"),
    "Waits": ("qo.policy.estimates.what_if", "Waits"),
    "WhatIf": ("qo.policy.estimates.what_if", "WhatIf"),
    "Why": ("qo.policy.why", "Why"),
    "Worker": ("qo.worker.worker", "Worker"),
    "WorkerInfo": ("qo.values", "WorkerInfo"),
    "connect": ("qo.queue.connect", "connect"),
    "project_semaphore": ("qo.limits.semaphore", "project_semaphore"),
    "user_semaphore": ("qo.limits.semaphore", "user_semaphore"),
    "verify_webhook": ("qo.notify.signing", "verify"),
}

__all__ = [
    "TIER_CONCURRENT_PROJECT",
    "TIER_CONCURRENT_USER",
    "Admitted",
    "Analytics",
    "Attempt",
    "AuditEntry",
    "AuditEntryNotFound",
    "Basis",
    "Block",
    "Blocked",
    "Clock",
    "ConcurrencyManager",
    "ConcurrencyStatus",
    "Context",
    "Estimate",
    "Event",
    "Expected",
    "Fail",
    "GroupFigures",
    "HistoryAway",
    "HistoryFull",
    "Holder",
    "Holds",
    "InvalidPriority",
    "InvalidSubmit",
    "InvalidTransition",
    "InvalidValue",
    "Job",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobHistory",
    "JobNotFound",
    "JobsPage",
    "Lease",
    "LeaseAlive",
    "LeaseLost",
    "Limit",
    "Limiter",
    "LimiterMetrics",
    "MoveRefused",
    "New",
    "NewEstimate",
    "NoResult",
    "NoStoreYet",
    "ParentNotFound",
    "ParentStatus",
    "PayloadTooLarge",
    "PhaseTaken",
    "Progress",
    "Promise",
    "PromiseFigures",
    "QoError",
    "Queue",
    "QueueFull",
    "Ran",
    "Reached",
    "Retry",
    "Sample",
    "Semaphore",
    "Series",
    "SettingsError",
    "SlotInfo",
    "SlotNotFound",
    "Source",
    "Start",
    "State",
    "StoreAway",
    "StoreUnavailable",
    "SubmitRefused",
    "Task",
    "TaskFunction",
    "TaskMaker",
    "ThreadContext",
    "Timeline",
    "Timeout",
    "UndoRefused",
    "UnknownTier",
    "Upgrade",
    "Usage",
    "Variant",
    "WaitSeries",
    "WaitTimeEstimator",
    "Waits",
    "WhatIf",
    "Why",
    "Worker",
    "WorkerInfo",
    "WorkerNumbers",
    "WrongEventLoop",
    "__version__",
    "connect",
    "project_semaphore",
    "sync",
    "task",
    "user_semaphore",
    "verify_webhook",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name == "sync":
        return importlib.import_module("qo.sync")
    if name not in _LAZY:
        raise AttributeError(f"module 'qo' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    value = globals()[name] = getattr(importlib.import_module(module), attribute)
    return value


def __dir__() -> list[str]:
    """The public names, for help() and completion: most are imported when they are first used."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
