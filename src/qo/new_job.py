"""A job to be submitted, and the task that it names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack, overload

import msgspec

from qo.job import Result_co

Data = TypeVar("Data")


class Task(Generic[Data, Result_co]):
    """What `queue.submit` and `queue.result` take in place of a task's name. `Task[Order, Invoice]` takes an `Order`
    and returns an `Invoice`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<qo.Task {self.name}>"

    def read_result(self, result: Any) -> Result_co:
        """Turn the JSON values of a result into the type that the function declares. Raises `InvalidValue`."""
        raise NotImplementedError


class SubmitOptions(TypedDict, total=False):
    """The keywords of `Queue.submit`, for its overloads; the call itself says what each one means."""

    id: str | None
    priority: int | str | None
    user: str | None
    project: str | None
    tier: str | None
    parent: str | None
    phase: int | None
    groups: Sequence[str]
    concurrency_group: str | None
    concurrency_limit: int | None
    unique: str | None
    delay: float | timedelta | None
    run_at: datetime | None
    start_by: float | timedelta | datetime | None
    max_attempts: int | None
    timeout: float | timedelta | None
    contact: str | None
    by: str | None


class New(msgspec.Struct, frozen=True):
    """A job to be submitted, with the fields of `Queue.submit`. Times without a unit are seconds.

    `task` may be given as a function under `@qo.task`; the field has its name.
    """

    task: str
    """The name of the task; a worker for it need not run yet."""
    data: Any = None
    """The payload: JSON of at most 1 MiB, or a msgspec Struct, dataclass, attrs class or pydantic model."""
    id: str | None = None
    """An id of your own; submitting it again returns the same job."""
    priority: int | str | None = None
    """0 (soonest) to 99, or urgent, high, normal, low, background."""
    user: str | None = None
    """Whose job it is; it joins the group `user:<user>`."""
    project: str | None = None
    """What it is for; it joins the group `project:<project>`."""
    tier: str | None = None
    """The user's tier: limits, quota, boost and iterations. Needs a user."""
    parent: str | None = None
    """What it is a part of; jobs of a parent can be cancelled and re-prioritised together."""
    phase: int | None = None
    """Phase n waits until phase n-1 of its parent has succeeded. Needs a parent."""
    groups: Sequence[str] = ()
    """Further groups that it belongs to, at most 64. It takes a slot in each that has a limit."""
    concurrency_group: str | None = None
    """The group that `concurrency_limit` is for; the task's own where it is not named."""
    concurrency_limit: int | None = None
    """That group's limit, where it has none."""
    unique: str | None = None
    """While a job with this key is unfinished, a submit with it returns that job."""
    delay: float | timedelta | None = None
    """The job joins the line so much later."""
    run_at: datetime | None = None
    """The job joins the line at this time, which has a time zone."""
    start_by: float | timedelta | datetime | None = None
    """The job fails if it has not started so soon after it was accepted, or by this time."""
    max_attempts: int | None = None
    """How often it may be started, instead of what its task says."""
    timeout: float | timedelta | None = None
    """How long one run may take, instead of what its task says."""
    contact: str | None = None
    """The e-mail address that reminders about this job go to. It is in no `Job`, event or log."""
    by: str | None = None
    """Who submits it, for the audit trail."""

    def __post_init__(self) -> None:
        if isinstance(self.task, Task):
            msgspec.structs.force_setattr(self, "task", self.task.name)

    if TYPE_CHECKING:

        @overload
        def __init__(self, task: str, data: Any = None, **options: Unpack[SubmitOptions]) -> None: ...
        @overload
        def __init__(self, task: Task[None, Any], data: None = None, **options: Unpack[SubmitOptions]) -> None: ...
        @overload
        def __init__(self, task: Task[Data, Any], data: Data, **options: Unpack[SubmitOptions]) -> None: ...
        def __init__(self, *args: Any, **options: Any) -> None: ...
