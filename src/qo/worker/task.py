"""A task: a named handler, how its payload is read, and what its jobs may do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from qo.errors import InvalidValue
from qo.job import READY, State
from qo.policy.admission import timeout_milliseconds
from qo.policy.checks import check_flag, check_name, check_number, check_own_groups, check_task, listed, shown
from qo.worker.context import Context, ThreadContext
from qo.worker.processes.reference import check_runs_in_a_process

Handler = Callable[..., Any]
STATUSES = frozenset({*State, READY})
"""The statuses of jobs without stages. A stage of such a name would look like one of them."""


class PayloadMismatch(Exception):
    """A payload does not have the type that the handler declares. A retry cannot help."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    handler: Handler
    is_async: bool
    takes: int
    """How many of (data, ctx) the handler takes."""
    decode: Callable[[bytes], Any]
    max_concurrent: int | None
    groups: tuple[str, ...]
    stages: tuple[str, ...]
    timeout_seconds: float | None
    max_attempts: int | None
    process: bool
    """The handler runs in a process of its own."""

    def arguments(self, data: Any, context: Any) -> tuple[Any, ...]:
        return (data, context)[: self.takes]


def define_task(
    handler: Handler,
    *,
    name: str | None,
    max_concurrent: int | None,
    groups: Sequence[str],
    stages: Sequence[str],
    timeout: float | timedelta | None,
    max_attempts: int | None,
    process: bool,
) -> Task:
    """Make a task from a function and its signature. Raises `InvalidValue` where it cannot be a handler."""
    if not callable(handler):
        raise InvalidValue(f"handler is {shown(handler)}; use @worker.task or @qo.task above a function.")
    chosen = str(getattr(handler, "__name__", type(handler).__name__)) if name is None else name
    check_task(chosen)
    if max_concurrent is not None:
        check_number("max_concurrent", max_concurrent, 0)
    if max_attempts is not None:
        check_number("max_attempts", max_attempts, 1)
    check_flag("process", process)
    is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - an object with async __call__
    )
    if process:
        check_runs_in_a_process(handler, name=chosen, is_async=is_async)
    parameters = _positional(handler, chosen)
    return Task(
        name=chosen,
        handler=handler,
        is_async=is_async,
        takes=len(parameters),
        decode=_decoder(handler, parameters[0] if parameters else None, chosen),
        max_concurrent=max_concurrent,
        groups=_checked_groups(groups, chosen),
        stages=_checked_stages(tuple(listed("stages", stages)), chosen),
        timeout_seconds=None if timeout is None else timeout_milliseconds(timeout) / 1000,
        max_attempts=max_attempts,
        process=process,
    )


def result_reader(handler: Handler, name: str) -> Callable[[Any], Any]:
    """Return a function that turns the JSON values of a result into the type that the handler declares. It raises
    `InvalidValue` for a result of another type."""
    annotation = inspect.signature(handler).return_annotation
    wanted = _resolved(handler, annotation, "result", name)
    if wanted is Any:
        return lambda result: result
    decode = _json_decoder(wanted, "result", name)

    def read(result: Any) -> Any:
        try:
            return decode(msgspec.json.encode(result))
        except (msgspec.ValidationError, ValueError) as error:
            raise InvalidValue(
                f"The stored result does not fit what task {name} returns: {_which_field(error)}. "
                "Perhaps a worker with other code has run the job."
            ) from error

    return read


def _positional(handler: Handler, name: str) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError) as error:  # raised for some functions written in C
        raise InvalidValue(
            f"The handler of task {name!r} does not say what it takes ({error}); wrap it in a function."
        ) from error
    positional = [parameter for parameter in parameters if parameter.kind in kinds]
    needed = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    if len(needed) > 2 or any(parameter.name in needed for parameter in parameters if parameter.kind not in kinds):
        raise InvalidValue(
            f"The handler of task {name!r} wants {', '.join(needed)}; a handler takes (data, ctx), (data) or nothing."
        )
    return positional[:2]


def _checked_groups(groups: Sequence[str], name: str) -> tuple[str, ...]:
    """Raise where the task is defined. The store would refuse these groups only when the worker starts."""
    named = tuple(listed("groups", groups))
    check_own_groups(named, of=name)
    return named


def _checked_stages(stages: tuple[str, ...], name: str) -> tuple[str, ...]:
    for stage in stages:
        check_name(f"a stage of task {name!r}", stage)
        if stage in STATUSES:
            raise InvalidValue(
                f"a stage of task {name!r} is {stage!r}, which is a status of jobs without stages, too; "
                f"use a name other than {', '.join(sorted(STATUSES))}."
            )
    if len(set(stages)) != len(stages):
        raise InvalidValue(f"stages of task {name!r} are {stages!r}; name each once.")
    return stages


def _decoder(handler: Handler, parameter: inspect.Parameter | None, name: str) -> Callable[[bytes], Any]:
    wanted: Any = Any if parameter is None else _resolved(handler, parameter.annotation, "data", name)
    if wanted is Context or wanted is ThreadContext:
        raise InvalidValue(
            f"The handler of task {name!r} has its context in the place of its data; a handler takes (data, ctx), "
            "(data) or nothing."
        )
    return _decoded_by(_json_decoder(wanted, "data", name), name)


def _json_decoder(wanted: Any, what: str, name: str) -> Callable[[bytes], Any]:
    if hasattr(wanted, "model_validate_json"):
        decode: Callable[[bytes], Any] = wanted.model_validate_json
        return decode
    try:
        return msgspec.json.Decoder(wanted).decode
    except TypeError as error:
        raise InvalidValue(
            f"The handler of task {name!r} declares its {what} as {wanted!r}, which JSON cannot be turned into "
            f"({error}); use a msgspec Struct, a dataclass, a pydantic model, or built-in types."
        ) from error


def _resolved(handler: Handler, annotation: Any, what: str, name: str) -> Any:
    if annotation is inspect.Parameter.empty:
        return Any
    if not isinstance(annotation, str):
        return annotation
    function = inspect.unwrap(handler)
    try:
        # With `from __future__ import annotations` an annotation is a text.
        return eval(annotation, getattr(function, "__globals__", {}), _closure(function))
    except NameError as error:
        raise InvalidValue(
            f"The handler of task {name!r} declares its {what} as {annotation!r}, which cannot be found "
            f"({error}); define that type at the top of its module."
        ) from error


def _closure(function: Handler) -> dict[str, Any]:
    """Return the variables of the enclosing functions that a handler uses, as far as they are set yet."""
    cells = getattr(function, "__closure__", None) or ()
    names = function.__code__.co_freevars if cells else ()
    found = {}
    for name, cell in zip(names, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue  # assigned after the handler is registered
    return found


def _decoded_by(decode: Callable[[bytes], Any], task: str) -> Callable[[bytes], Any]:
    def decoded(payload: bytes) -> Any:
        try:
            return decode(payload)
        except (msgspec.ValidationError, ValueError) as error:  # pydantic's is a ValueError
            raise PayloadMismatch(f"The data does not fit task {task}: {_which_field(error)}.") from error

    return decoded


def _which_field(error: Exception) -> str:
    details = getattr(error, "errors", None)
    if details is None:
        return str(error)
    found = details(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'data'}: {each['msg']}" for each in found[:5])
