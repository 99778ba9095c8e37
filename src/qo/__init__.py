"""A job queue in which every job knows its place in line and no limit is ever exceeded."""

from typing import TYPE_CHECKING, Any

from qo._version import __version__
from qo.errors import (
    Fail,
    InvalidPriority,
    InvalidSubmit,
    InvalidTransition,
    InvalidValue,
    JobNotFound,
    LeaseAlive,
    LeaseLost,
    MoveRefused,
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
    UnknownTier,
    WrongEventLoop,
)

if TYPE_CHECKING:
    from qo import sync
    from qo.event import AuditEntry, Event
    from qo.job import Basis, Estimate, Job, JobError, New, Progress, State, Upgrade, Usage
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
    from qo.notify.signing import verify as verify_webhook
    from qo.policy.analytics import Analytics
    from qo.policy.why import Blocked, Holder, Why
    from qo.queue.connect import connect
    from qo.queue.queue import Queue
    from qo.queue.wait_times import WaitTimeEstimator
    from qo.values import GroupStatus as ConcurrencyStatus
    from qo.values import Limit, ParentStatus, SlotInfo, Source, WorkerInfo
    from qo.worker.context import Context, ThreadContext
    from qo.worker.worker import Worker

# Imported when first used, so that `import qo` and `qo --help` stay light.
_LAZY = {
    "Block": ("qo.limits.block", "Block"),
    "Analytics": ("qo.policy.analytics", "Analytics"),
    "AuditEntry": ("qo.event", "AuditEntry"),
    "Basis": ("qo.job", "Basis"),
    "Blocked": ("qo.policy.why", "Blocked"),
    "ConcurrencyManager": ("qo.limits.by_hand", "ConcurrencyManager"),
    "ConcurrencyStatus": ("qo.values", "GroupStatus"),
    "Context": ("qo.worker.context", "Context"),
    "Estimate": ("qo.job", "Estimate"),
    "Event": ("qo.event", "Event"),
    "Holder": ("qo.policy.why", "Holder"),
    "Job": ("qo.job", "Job"),
    "JobError": ("qo.job", "JobError"),
    "Lease": ("qo.limits.block", "Lease"),
    "Limit": ("qo.values", "Limit"),
    "Limiter": ("qo.limits.limiter", "Limiter"),
    "LimiterMetrics": ("qo.limits.metrics", "LimiterMetrics"),
    "New": ("qo.job", "New"),
    "ParentStatus": ("qo.values", "ParentStatus"),
    "Progress": ("qo.job", "Progress"),
    "Queue": ("qo.queue.queue", "Queue"),
    "Sample": ("qo.limits.metrics", "Sample"),
    "Semaphore": ("qo.limits.semaphore", "Semaphore"),
    "SlotInfo": ("qo.values", "SlotInfo"),
    "Source": ("qo.values", "Source"),
    "State": ("qo.job", "State"),
    "TIER_CONCURRENT_PROJECT": ("qo.limits.semaphore", "TIER_CONCURRENT_PROJECT"),
    "TIER_CONCURRENT_USER": ("qo.limits.semaphore", "TIER_CONCURRENT_USER"),
    "ThreadContext": ("qo.worker.context", "ThreadContext"),
    "Upgrade": ("qo.job", "Upgrade"),
    "Usage": ("qo.job", "Usage"),
    "WaitTimeEstimator": ("qo.queue.wait_times", "WaitTimeEstimator"),
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
    "Analytics",
    "AuditEntry",
    "Basis",
    "Block",
    "Blocked",
    "ConcurrencyManager",
    "ConcurrencyStatus",
    "Context",
    "Estimate",
    "Event",
    "Fail",
    "Holder",
    "InvalidPriority",
    "InvalidSubmit",
    "InvalidTransition",
    "InvalidValue",
    "Job",
    "JobError",
    "JobNotFound",
    "Lease",
    "LeaseAlive",
    "LeaseLost",
    "Limit",
    "Limiter",
    "LimiterMetrics",
    "MoveRefused",
    "New",
    "NoStoreYet",
    "ParentNotFound",
    "ParentStatus",
    "PayloadTooLarge",
    "PhaseTaken",
    "Progress",
    "QoError",
    "Queue",
    "QueueFull",
    "Retry",
    "Sample",
    "Semaphore",
    "SettingsError",
    "SlotInfo",
    "SlotNotFound",
    "Source",
    "State",
    "StoreAway",
    "StoreUnavailable",
    "SubmitRefused",
    "ThreadContext",
    "Timeout",
    "UnknownTier",
    "Upgrade",
    "Usage",
    "WaitTimeEstimator",
    "Why",
    "Worker",
    "WorkerInfo",
    "WrongEventLoop",
    "__version__",
    "connect",
    "project_semaphore",
    "sync",
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
