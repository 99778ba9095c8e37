"""Everything qo raises, as one tree under `QoError`, and what a handler raises to decide about its job.

A message names what was wrong, the value, what is allowed and what to do next.
"""

from __future__ import annotations

import math
from datetime import timedelta

LONGEST_SPAN_SECS = 100 * 366 * 86_400


class QoError(Exception):
    """The root of every error that qo raises on purpose."""


class SettingsError(QoError):
    """A setting is unknown, of the wrong type or out of range."""


class InvalidValue(QoError):
    """An argument has a value that is not allowed; nothing was changed."""


class StoreUnavailable(QoError):
    """The store cannot be reached, or its data cannot be used by this version of qo."""


class NoStoreYet(StoreUnavailable):
    """Nobody has made the store yet, and who only reads does not."""

    def __init__(self, location: str) -> None:
        super().__init__(
            f"There is no queue yet ({location}); the first job or worker makes it. If it is elsewhere, name its url: "
            "--url, QO_URL, or url under [store] in .qo.toml."
        )


class StoreAway(StoreUnavailable):
    """The store cannot be reached for now. Nothing has to be changed in qo's settings; trying again later may help."""


class WrongEventLoop(QoError):
    """A queue was used in an event loop that is not its own, or a blocking call was made inside of its loop."""


class JobNotFound(QoError):
    """No job has this id: it was never accepted, or retention has removed it."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"There is no job {job_id!r}: it was never submitted here, or it ended and its retention has passed."
        )
        self.job_id = job_id


class ParentNotFound(QoError):
    """No unfinished or retained job names this parent."""

    def __init__(self, parent: str) -> None:
        super().__init__(f"There is no parent {parent!r}: no job kept here names it.")
        self.parent = parent


class SlotNotFound(QoError):
    """Nobody holds this slot of this group."""

    def __init__(self, group: str, slot_id: int) -> None:
        super().__init__(f"Slot {slot_id} of group {group!r} is not held; see who holds what with the group's status.")
        self.group = group
        self.slot_id = slot_id


class LeaseLost(QoError):
    """The caller no longer owns what it wanted to change; nothing was changed."""

    def __init__(self, holder: str, token: str) -> None:
        super().__init__(
            f"The lease {token} of {holder!r} is no longer held: it ran out, was revoked or was given back. "
            "Stop the work; somebody else may be doing it."
        )
        self.holder = holder
        self.token = token


class LeaseAlive(QoError):
    """A lease that has not run out is released by hand only with force."""

    def __init__(self, group: str, slot_id: int, holder: str) -> None:
        super().__init__(
            f"Slot {slot_id} of group {group!r} is held by {holder!r}, whose lease has not run out; "
            "release it with force to revoke that lease."
        )


class InvalidTransition(QoError):
    """A job cannot go from its present state to the wanted one."""

    def __init__(self, subject: str, present: str, wanted: str, allowed: str) -> None:
        super().__init__(f"{subject} is {present} and cannot become {wanted}; allowed now: {allowed}.")
        self.present = present
        self.wanted = wanted


class MoveRefused(QoError):
    """There is no room between two neighbours in the line, however far they are spread out."""


class Timeout(QoError):
    """What was waited for did not happen in time."""


class SubmitRefused(QoError):
    """A submit was refused whole: nothing was stored and nothing was charged."""


class InvalidSubmit(SubmitRefused, InvalidValue):
    """A field of a submit has a value that is not allowed."""


class InvalidPriority(InvalidSubmit):
    """A priority is not a number from 0 to 99, nor one of the names."""


class UnknownTier(InvalidSubmit):
    """A tier that no configuration names."""


class PayloadTooLarge(InvalidSubmit):
    """A payload is over the size limit."""


class PhaseTaken(SubmitRefused):
    """Another job already is this phase of this parent."""

    def __init__(self, parent: str, phase: int, job_id: str) -> None:
        super().__init__(
            f"Phase {phase} of parent {parent!r} is already job {job_id!r}; submit with that id, "
            "name another phase, or cancel that job first."
        )


class QueueFull(SubmitRefused):
    """The line is at its cap. `is_guess`: no such job has ended yet, or no worker runs, so `retry_after` is a guess."""

    def __init__(self, waiting: int, cap: int, retry_after: timedelta, *, is_guess: bool = False) -> None:
        minutes = math.ceil(retry_after.total_seconds() / 60)
        said = "1 minute" if minutes == 1 else f"{minutes} minutes"
        guess = ", a first guess" if is_guess else ""
        super().__init__(f"The system is busy, try again in {said}{guess} ({waiting} jobs in line, cap {cap}).")
        self.is_guess = is_guess
        self.waiting = waiting
        self.cap = cap
        self.retry_after = retry_after


class Retry(Exception):
    """Raised by a handler: try this job again, `after` so many seconds or by the usual delays."""

    def __init__(
        self, message: str = "The handler asked for another attempt.", *, after: float | timedelta | None = None
    ):
        super().__init__(message)
        self.after = None if after is None else _checked_span(after)


def _checked_span(after: float | timedelta) -> timedelta:
    seconds = after.total_seconds() if isinstance(after, timedelta) else after
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_SPAN_SECS:
        raise InvalidValue(
            f"after is {after!r}; use seconds of 0 or more (at most a hundred years), a timedelta, or None."
        )
    return timedelta(seconds=seconds)


class Fail(Exception):
    """Raised by a handler: this job has failed for good. The message is for the user to read."""
