"""A job queue in which every job knows its place in line and no limit is ever exceeded."""

from qo.errors import (
    InvalidPriority,
    InvalidSubmit,
    InvalidTransition,
    InvalidValue,
    JobNotFound,
    LeaseAlive,
    LeaseLost,
    MoveRefused,
    ParentNotFound,
    PayloadTooLarge,
    PhaseTaken,
    QoError,
    QueueFull,
    SettingsError,
    SlotNotFound,
    StoreUnavailable,
    SubmitRefused,
    Timeout,
    UnknownTier,
)

__version__ = "0.1.0"

__all__ = [
    "InvalidPriority",
    "InvalidSubmit",
    "InvalidTransition",
    "InvalidValue",
    "JobNotFound",
    "LeaseAlive",
    "LeaseLost",
    "MoveRefused",
    "ParentNotFound",
    "PayloadTooLarge",
    "PhaseTaken",
    "QoError",
    "QueueFull",
    "SettingsError",
    "SlotNotFound",
    "StoreUnavailable",
    "SubmitRefused",
    "Timeout",
    "UnknownTier",
    "__version__",
]
