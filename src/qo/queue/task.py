"""A task that may be given by its name or as a function under `@qo.task`."""

from __future__ import annotations

from typing import Any

from qo.errors import InvalidValue
from qo.new_job import Task
from qo.policy.checks import shown


def name_of(task: str | Task[Any, Any]) -> str:
    """The name of a task that may be given by its name or as a `Task`."""
    return task.name if isinstance(task, Task) else task


def check_task_or_none(task: object) -> None:
    if task is not None and not isinstance(task, Task):
        raise InvalidValue(f"task is {shown(task)}; give the function under @qo.task, or leave it out.")
