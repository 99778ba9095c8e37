"""What a program hangs around its handlers: a lifespan around a worker's run, and one block around each job's."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

import msgspec

from qo.errors import InvalidValue
from qo.policy.checks import shown
from qo.worker.context import Context
from qo.worker.processes.pool import Pool

Lifespan = Callable[[], AsyncIterator[Any] | AbstractAsyncContextManager[Any]]
Around = Callable[[Context], AsyncIterator[Any] | AbstractAsyncContextManager[Any]]


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the handlers of one run of a worker share."""

    state: Any = None
    around: Callable[[Context], AbstractAsyncContextManager[Any]] | None = None
    pool: Pool | None = None
    """The processes, in a worker that has tasks with `process=True`."""


def block_of(name: str, function: Any, *, takes: str) -> Callable[..., AbstractAsyncContextManager[Any]]:
    """Return the function as one that makes a context manager. `name` and `takes` are for the error."""
    if inspect.isasyncgenfunction(function):
        return asynccontextmanager(function)
    if inspect.isasyncgenfunction(getattr(function, "__wrapped__", None)):
        made: Callable[..., AbstractAsyncContextManager[Any]] = function  # under @asynccontextmanager already
        return made
    raise InvalidValue(
        f"{name} is {shown(function)}; put @worker.{name} above an `async def {name}({takes})` with one `yield`."
    )


def lifespan_of(
    function: Callable[..., AbstractAsyncContextManager[Any]] | None,
) -> AbstractAsyncContextManager[Any]:
    return nullcontext() if function is None else function()
