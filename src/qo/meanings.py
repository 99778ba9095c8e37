"""What each error is to those who see only a number: its HTTP status and title, and the exit code of the command."""

from __future__ import annotations

from typing import NamedTuple

from qo.errors import (
    AuditEntryNotFound,
    HistoryAway,
    HistoryFull,
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
    Timeout,
    UndoRefused,
)

FAILED, WRONG_CALL, NO_STORE = 1, 2, 3


class Meaning(NamedTuple):
    status: int
    title: str
    exit_code: int


MEANINGS: dict[type[QoError], Meaning] = {
    PayloadTooLarge: Meaning(413, "Payload too large", WRONG_CALL),
    PhaseTaken: Meaning(409, "Phase taken", FAILED),
    QueueFull: Meaning(503, "Queue full", FAILED),
    HistoryFull: Meaning(503, "History full", FAILED),
    JobNotFound: Meaning(404, "Job not found", FAILED),
    ParentNotFound: Meaning(404, "Parent not found", FAILED),
    SlotNotFound: Meaning(404, "Slot not held", FAILED),
    InvalidTransition: Meaning(409, "Not possible in this state", FAILED),
    MoveRefused: Meaning(409, "No room to move", FAILED),
    AuditEntryNotFound: Meaning(404, "Audit entry not found", FAILED),
    UndoRefused: Meaning(409, "Not undone", FAILED),
    LeaseAlive: Meaning(409, "Lease alive", FAILED),
    LeaseLost: Meaning(409, "Lease lost", FAILED),
    Timeout: Meaning(504, "Not in time", FAILED),
    StoreUnavailable: Meaning(503, "Store unavailable", NO_STORE),
    HistoryAway: Meaning(503, "History unavailable", NO_STORE),
    SettingsError: Meaning(500, "Wrong settings", WRONG_CALL),
    InvalidValue: Meaning(422, "Value not allowed", WRONG_CALL),
    QoError: Meaning(500, "Something went wrong", FAILED),
}
"""A class stands before those it is a kind of."""


def meaning_of(error: QoError) -> Meaning:
    return next(meaning for kind, meaning in MEANINGS.items() if isinstance(error, kind))
