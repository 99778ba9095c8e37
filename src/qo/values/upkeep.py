"""The rules of upkeep, and what one step of it did."""

from __future__ import annotations

from datetime import datetime

import msgspec

from qo.job import JobError


class Portion(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The ids that a bounded step dealt with, in order, and whether there are more."""

    ids: tuple[str, ...] = ()
    more: bool = False


class Reminder(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    job_id: str
    number: int
    """1 for the first of the given ages, 2 for the second, and so on."""
    confirmation_required_at: datetime
    contact: str | None = None
    """The job's e-mail address, if it has one. Nothing else that a store answers contains it."""


class Retention(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How much a store keeps where the settings do not say."""

    days: float
    """How long ended jobs are kept."""
    audit_entries: int
    """How many of the newest entries of the audit are kept."""


class Keep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What retention leaves: ended jobs and figures for `ms`, and the newest so many jobs, events and audit entries."""

    ms: int
    jobs: int
    events: int
    audit: int


class UpkeepRules(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What `upkeep` does. A part without a rule is left out."""

    aging_period_ms: int | None = None
    """Jobs that have been in line for so long, since they joined or last aged, move up one level."""
    unconfirmed_after_ms: int | None = None
    """Jobs that have waited for a confirmation for so long fail with `unconfirmed_error`."""
    unconfirmed_error: JobError | None = None
    reminder_ages_ms: tuple[int, ...] = ()
    """After so long without a confirmation, reminders are due; the shortest first."""
    keep: Keep | None = None
    """What is beyond this is removed."""


class UpkeepDone(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one step of upkeep did, each list in order."""

    aged: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    reminders: tuple[Reminder, ...] = ()
    forgotten: tuple[str, ...] = ()
    more: bool = False
    """Whether something did not fit into the step's portion."""
