"""Everything that qo raises, as one tree, and the two exceptions that a handler raises to decide about its job.

    QoError                        every error that qo raises on purpose
    ├── SettingsError              a setting is unknown, of the wrong type or out of range
    ├── InvalidValue               an argument has a value that is not allowed
    ├── StoreUnavailable           the store cannot be used
    │   ├── NoStoreYet             a reading command found no store
    │   └── StoreAway              the store cannot be reached for now
    ├── HistoryAway                PostgreSQL cannot be reached for now
    ├── WrongEventLoop             a queue was used outside of its event loop
    ├── JobNotFound                no job has this id
    ├── ParentNotFound             no job names this parent
    ├── SlotNotFound               the slot has no holder
    ├── LeaseLost                  the caller no longer owns the job or slot
    ├── LeaseAlive                 a release by hand needs force
    ├── InvalidTransition          a state or stage cannot follow the present one
    ├── MoveRefused                there is no room between two jobs in line
    ├── AuditEntryNotFound         the audit trail has no such entry
    ├── UndoRefused                a change cannot be undone (any more)
    ├── Timeout                    a wait took too long
    ├── NoResult                   a job ended without a result
    │   ├── JobFailed              it failed
    │   └── JobCancelled           it was cancelled
    └── SubmitRefused              nothing was stored, nothing was charged
        ├── InvalidSubmit          a field is not allowed (also an InvalidValue)
        │   ├── InvalidPriority    not 0 to 99, nor a name
        │   ├── UnknownTier        no configuration names the tier
        │   └── PayloadTooLarge    the payload is over the size limit
        ├── PhaseTaken             another job is this phase of this parent
        ├── HistoryFull            nobody records the history
        └── QueueFull              the line is at its cap

    Retry                          a handler asks for another attempt
    Fail                           a handler ends its job as failed

A message says what was wrong, the value, what is allowed and what to do next.
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
    """There is no store yet, and a command that only reads does not make one."""

    def __init__(self, location: str) -> None:
        super().__init__(
            f"There is no queue yet ({location}); the first job or worker makes it. If it is elsewhere, name its url: "
            "--url, QO_URL, or url under [store] in .qo.toml."
        )


class StoreAway(StoreUnavailable):
    """The store cannot be reached for now. Nothing has to be changed in qo's settings; trying again later may help."""


class HistoryAway(QoError):
    """The database of the history cannot be reached, or cannot answer, for now."""

    def __init__(self, where: str, reason: BaseException) -> None:
        said = str(reason).strip().rstrip(".") or type(reason).__name__
        super().__init__(f"The history at {where} cannot be used for now: {said}.")


class WrongEventLoop(QoError):
    """A queue was used in an event loop that is not its own, or a blocking call was made inside its own loop."""


class JobNotFound(QoError):
    """No job has this id: it was never accepted, or retention has removed it."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"There is no job {job_id!r}: it was never submitted here, or it ended and its retention has passed."
        )
        self.job_id = job_id
        """The id that was asked for."""


class ParentNotFound(QoError):
    """No unfinished or retained job names this parent."""

    def __init__(self, parent: str) -> None:
        super().__init__(f"There is no parent {parent!r}: no job kept here names it.")
        self.parent = parent
        """The parent that was asked for."""


class SlotNotFound(QoError):
    """This slot of this group has no holder."""

    def __init__(self, group: str, slot_id: int) -> None:
        super().__init__(f"Slot {slot_id} of group {group!r} is not held; see who holds what with the group's status.")
        self.group = group
        """The group."""
        self.slot_id = slot_id
        """The number of the slot."""


class LeaseLost(QoError):
    """The caller no longer owns the job or slot that it wanted to change; nothing was changed."""

    def __init__(self, holder: str, token: str) -> None:
        super().__init__(
            f"The lease {token} of {holder!r} is no longer held: it ran out, was revoked or was given back. "
            "Stop the work; somebody else may be doing it."
        )
        self.holder = holder
        """The id of the job, or the caller's name."""
        self.token = token
        """The token of the lease that is lost."""


class LeaseAlive(QoError):
    """A lease that has not run out can be released by hand only with force."""

    def __init__(self, group: str, slot_id: int, holder: str) -> None:
        super().__init__(
            f"Slot {slot_id} of group {group!r} is held by {holder!r}, whose lease has not run out; "
            "release it with force to revoke that lease."
        )


class InvalidTransition(QoError):
    """A job cannot go from its present state or stage to the wanted one."""

    def __init__(
        self, subject: str, present: str, wanted: str, allowed: str = "nothing", *, rule: str | None = None
    ) -> None:
        """`allowed` lists what may come next; a `rule` says instead when the change is possible."""
        reason = f" and cannot become {wanted}; allowed now: {allowed}" if rule is None else f"; {rule}"
        super().__init__(f"{subject} is {present}{reason}.")
        self.present = present
        """The present state or stage."""
        self.wanted = wanted
        """The one that was asked for."""


class MoveRefused(QoError):
    """There is no room between two neighbours in the line, however far they are spread out."""


class AuditEntryNotFound(QoError):
    """The audit trail has no entry of this id, or no longer."""

    def __init__(self, entry_id: int) -> None:
        super().__init__(f"There is no entry {entry_id} in the audit trail; it may have been removed since.")
        self.entry_id = entry_id
        """The id that was asked for."""


class UndoRefused(QoError):
    """The change was made too long ago, was followed by another one, or is of a kind that cannot be undone."""


class Timeout(QoError):
    """A wait took longer than its timeout."""


class NoResult(QoError):
    """A job has ended without a result. `job_id` and `task` say which one."""

    def __init__(self, sentence: str, *, job_id: str, task: str) -> None:
        super().__init__(sentence)
        self.job_id = job_id
        """The id of the job."""
        self.task = task
        """Its task."""


class JobFailed(NoResult):
    """The job failed. `message`, `detail` and `debug_id` are those of its error."""

    def __init__(
        self, job_id: str, task: str, *, attempts: int, message: str, detail: str | None, debug_id: str | None
    ) -> None:
        found = "" if debug_id is None else f" The worker's log has the whole error under {debug_id}."
        super().__init__(
            f"Job {job_id!r} of task {task} failed at attempt {attempts}: {message.rstrip('.')}.{found} "
            "queue.retry(job_id) lets it run again.",
            job_id=job_id,
            task=task,
        )
        self.attempts = attempts
        """How often it was started."""
        self.message = message
        """A sentence for the user."""
        self.detail = detail
        """More about it, without secrets."""
        self.debug_id = debug_id
        """Finds the whole error in the worker's log."""


class JobCancelled(NoResult):
    """The job was cancelled. `message` is what the person who cancelled it said, if anything."""

    def __init__(self, job_id: str, task: str, *, message: str | None) -> None:
        said = "" if message is None else f" ({message})"
        super().__init__(
            f"Job {job_id!r} of task {task} was cancelled{said}, so it has no result; submit it again under a new id.",
            job_id=job_id,
            task=task,
        )
        self.message = message
        """What the person who cancelled it said, if anything."""


class SubmitRefused(QoError):
    """A submit was refused: nothing was stored, and nothing was charged to the quota."""


class InvalidSubmit(SubmitRefused, InvalidValue):
    """A field of a submit has a value that is not allowed."""


class InvalidPriority(InvalidSubmit):
    """A priority is not a number from 0 to 99, nor one of the names."""


class UnknownTier(InvalidSubmit):
    """No configuration names this tier."""


class PayloadTooLarge(InvalidSubmit):
    """A payload is over the size limit."""


class PhaseTaken(SubmitRefused):
    """Another job already is this phase of this parent."""

    def __init__(self, parent: str, phase: int, job_id: str) -> None:
        super().__init__(
            f"Phase {phase} of parent {parent!r} is already job {job_id!r}; submit with that id, "
            "name another phase, or cancel that job first."
        )


class HistoryFull(SubmitRefused):
    """So many records wait for the history's recorder that no further job is accepted."""

    def __init__(self, waiting: int, most: int) -> None:
        super().__init__(
            f"No job is accepted while {waiting} records wait for the history's recorder (outbox_max {most}); start "
            'one with `qo record`, or set on_full = "drop" under [history] to go on without them.'
        )
        self.waiting = waiting
        """How many records wait for the recorder."""
        self.most = most
        """How many may wait: `[history] outbox_max`."""


class QueueFull(SubmitRefused):
    """The line is at its cap.

    `retry_after` is only a guess when `is_guess` is true: no such job has ended yet, or no worker runs.
    """

    def __init__(self, waiting: int, cap: int, retry_after: timedelta, *, is_guess: bool = False) -> None:
        minutes = math.ceil(retry_after.total_seconds() / 60)
        said = "1 minute" if minutes == 1 else f"{minutes} minutes"
        guess = ", a first guess" if is_guess else ""
        super().__init__(f"The system is busy, try again in {said}{guess} ({waiting} jobs in line, cap {cap}).")
        self.is_guess = is_guess
        """Whether `retry_after` is only a guess."""
        self.waiting = waiting
        """How many jobs are in line."""
        self.cap = cap
        """How many may be: `[queue] cap`."""
        self.retry_after = retry_after
        """When trying again will probably help."""


class Retry(Exception):
    """Raised by a handler to have its job tried again, after `after` seconds or after the usual delay."""

    def __init__(
        self, message: str = "The handler asked for another attempt.", *, after: float | timedelta | None = None
    ):
        super().__init__(message)
        self.after: timedelta | None = None if after is None else _checked_span(after)
        """How long to wait before the next attempt. None: the usual delay."""


def _checked_span(after: float | timedelta) -> timedelta:
    seconds = after.total_seconds() if isinstance(after, timedelta) else after
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_SPAN_SECS:
        raise InvalidValue(
            f"after is {after!r}; use seconds of 0 or more (at most a hundred years), a timedelta, or None."
        )
    return timedelta(seconds=seconds)


class Fail(Exception):
    """Raised by a handler to end its job as failed, without another attempt. The message is shown to the user."""
