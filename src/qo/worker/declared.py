"""`@qo.task`: a function as a task that is bound to no worker and no queue."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import timedelta
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from qo.errors import InvalidValue
from qo.job import Result_co
from qo.new_job import Data, Task
from qo.policy.checks import check_task, shown
from qo.worker.task import Handler, define_task, result_reader
from qo.worker.task import Task as Definition

P = ParamSpec("P")
R = TypeVar("R")
Returned_co = TypeVar("Returned_co", covariant=True)


class TaskFunction(Task[Data, Result_co], Generic[P, Returned_co, Data, Result_co]):
    """A function under `@qo.task`. It can be called as the function that it is, for example by a test."""

    def __init__(self, definition: Definition) -> None:
        super().__init__(definition.name)
        self.definition = definition
        self._read_result = result_reader(definition.handler, definition.name)
        functools.update_wrapper(self, definition.handler)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Returned_co:
        returned: Returned_co = self.definition.handler(*args, **kwargs)
        return returned

    def read_result(self, result: Any) -> Result_co:
        read: Result_co = self._read_result(result)
        return read


class TaskMaker:
    """What `qo.task(...)` returns: it makes a task from the function that stands below it."""

    def __init__(self, make: Callable[[Handler], TaskFunction[..., Any, Any, Any]]) -> None:
        self._make = make

    @overload
    def __call__(
        self, handler: Callable[Concatenate[Data, P], Coroutine[Any, Any, R]], /
    ) -> TaskFunction[Concatenate[Data, P], Coroutine[Any, Any, R], Data, R]: ...
    @overload
    def __call__(
        self, handler: Callable[[], Coroutine[Any, Any, R]], /
    ) -> TaskFunction[[], Coroutine[Any, Any, R], None, R]: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[Data, P], R], /
    ) -> TaskFunction[Concatenate[Data, P], R, Data, R]: ...
    @overload
    def __call__(self, handler: Callable[[], R], /) -> TaskFunction[[], R, None, R]: ...
    def __call__(self, handler: Callable[..., Any], /) -> TaskFunction[..., Any, Any, Any]:
        return self._make(handler)


@overload
def task(
    name: Callable[Concatenate[Data, P], Coroutine[Any, Any, R]], /
) -> TaskFunction[Concatenate[Data, P], Coroutine[Any, Any, R], Data, R]: ...
@overload
def task(name: Callable[[], Coroutine[Any, Any, R]], /) -> TaskFunction[[], Coroutine[Any, Any, R], None, R]: ...
@overload
def task(name: Callable[Concatenate[Data, P], R], /) -> TaskFunction[Concatenate[Data, P], R, Data, R]: ...
@overload
def task(name: Callable[[], R], /) -> TaskFunction[[], R, None, R]: ...
@overload
def task(
    name: str | None = None,
    *,
    max_concurrent: int | None = None,
    groups: Sequence[str] = (),
    stages: Sequence[str] = (),
    timeout: float | timedelta | None = None,
    max_attempts: int | None = None,
    process: bool = False,
) -> TaskMaker: ...
def task(
    name: str | Handler | None = None,
    *,
    max_concurrent: int | None = None,
    groups: Sequence[str] = (),
    stages: Sequence[str] = (),
    timeout: float | timedelta | None = None,
    max_attempts: int | None = None,
    process: bool = False,
) -> TaskMaker | TaskFunction[..., Any, Any, Any]:
    """Make a task from a function, under a name or its own: `@qo.task("build")` or `@qo.task`.

    The task is bound to no worker and no queue. `qo.Worker(queue, tasks=[build])` runs its jobs, and
    `queue.submit(build, order)` submits one. With `process=True`, a plain function runs in a process of its own.
    """
    if name is not None and not callable(name):
        check_task(name)

    def make(handler: Handler) -> TaskFunction[..., Any, Any, Any]:
        return TaskFunction(
            define_task(
                handler,
                name=name if isinstance(name, str) else None,
                max_concurrent=max_concurrent,
                groups=groups,
                stages=stages,
                timeout=timeout,
                max_attempts=max_attempts,
                process=process,
            )
        )

    return make(name) if callable(name) else TaskMaker(make)


def checked_tasks(tasks: object) -> list[TaskFunction[..., Any, Any, Any]]:
    """The list that a worker is given. Raises `InvalidValue` for anything but functions under `@qo.task`."""
    if not isinstance(tasks, Iterable):
        raise InvalidValue(f"tasks is {shown(tasks)}; give a list of functions under @qo.task.")
    listed = list(tasks)
    for number, each in enumerate(listed):
        if not isinstance(each, TaskFunction):
            raise InvalidValue(f"tasks[{number}] is {shown(each)}; give a function under @qo.task.")
    return listed
