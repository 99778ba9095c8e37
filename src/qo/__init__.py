"""A job queue in which every job knows its place in line and no limit is ever exceeded."""

from typing import TYPE_CHECKING, Any

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
    from qo.event import Event
    from qo.job import Job, JobError, New, State
    from qo.runtime.connecting import connect
    from qo.runtime.context import Context
    from qo.runtime.limiter import Limiter
    from qo.runtime.manager import ConcurrencyManager
    from qo.runtime.queue import Queue
    from qo.runtime.semaphore import (
        TIER_CONCURRENT_PROJECT,
        TIER_CONCURRENT_USER,
        Semaphore,
        project_semaphore,
        user_semaphore,
    )
    from qo.runtime.wait_times import WaitTimeEstimator
    from qo.runtime.worker import Worker
    from qo.store.values import GroupStatus as ConcurrencyStatus
    from qo.store.values import SlotInfo

__version__ = "0.1.0"

# Imported when first used, so that `import qo` and `qo --help` stay light.
_LAZY = {
    "ConcurrencyManager": ("qo.runtime.manager", "ConcurrencyManager"),
    "ConcurrencyStatus": ("qo.store.values", "GroupStatus"),
    "Context": ("qo.runtime.context", "Context"),
    "Event": ("qo.event", "Event"),
    "Job": ("qo.job", "Job"),
    "JobError": ("qo.job", "JobError"),
    "Limiter": ("qo.runtime.limiter", "Limiter"),
    "New": ("qo.job", "New"),
    "Queue": ("qo.runtime.queue", "Queue"),
    "Semaphore": ("qo.runtime.semaphore", "Semaphore"),
    "SlotInfo": ("qo.store.values", "SlotInfo"),
    "State": ("qo.job", "State"),
    "TIER_CONCURRENT_PROJECT": ("qo.runtime.semaphore", "TIER_CONCURRENT_PROJECT"),
    "TIER_CONCURRENT_USER": ("qo.runtime.semaphore", "TIER_CONCURRENT_USER"),
    "WaitTimeEstimator": ("qo.runtime.wait_times", "WaitTimeEstimator"),
    "Worker": ("qo.runtime.worker", "Worker"),
    "connect": ("qo.runtime.connecting", "connect"),
    "project_semaphore": ("qo.runtime.semaphore", "project_semaphore"),
    "user_semaphore": ("qo.runtime.semaphore", "user_semaphore"),
}

__all__ = [
    "TIER_CONCURRENT_PROJECT",
    "TIER_CONCURRENT_USER",
    "ConcurrencyManager",
    "ConcurrencyStatus",
    "Context",
    "Event",
    "Fail",
    "InvalidPriority",
    "InvalidSubmit",
    "InvalidTransition",
    "InvalidValue",
    "Job",
    "JobError",
    "JobNotFound",
    "LeaseAlive",
    "LeaseLost",
    "Limiter",
    "MoveRefused",
    "New",
    "NoStoreYet",
    "ParentNotFound",
    "PayloadTooLarge",
    "PhaseTaken",
    "QoError",
    "Queue",
    "QueueFull",
    "Retry",
    "Semaphore",
    "SettingsError",
    "SlotInfo",
    "SlotNotFound",
    "State",
    "StoreAway",
    "StoreUnavailable",
    "SubmitRefused",
    "Timeout",
    "UnknownTier",
    "WaitTimeEstimator",
    "Worker",
    "WrongEventLoop",
    "__version__",
    "connect",
    "project_semaphore",
    "sync",
    "user_semaphore",
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
