"""Exceptions as values. A class that the other process does not have could not be unpickled there, so an exception is
sent as its name, its text and its causes."""

from __future__ import annotations

import traceback
from datetime import timedelta
from typing import Any

import msgspec

from qo import errors
from qo.worker.context import ConfirmationNeeded, IterationsUsedUp
from qo.worker.result import UnusableResult
from qo.worker.task import PayloadMismatch

MOST_CAUSES = 5
TRACEBACK_CHARACTERS = 64_000

KNOWN: dict[str, type[BaseException]] = {
    known.__name__: known
    for known in (
        *(each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, BaseException)),
        *(ConfirmationNeeded, IterationsUsedUp, PayloadMismatch, UnusableResult),
    )
}
"""The exceptions that the worker, or the handler, tells apart by their class."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    known: str | None
    """The class of `KNOWN` that the exception belongs to."""
    text: str
    fields: dict[str, str | int | float | bool | None]
    after_seconds: float | None = None
    """Of a `Retry`."""
    cause: Failure | None = None
    traceback: str = ""


class ErrorInProcess(Exception):
    """Stands for an exception of a class that is known only in the process that raised it. It has that class's name."""


def describe(error: BaseException, *, causes: int = MOST_CAUSES) -> Failure:
    known = next((each.__name__ for each in type(error).__mro__ if KNOWN.get(each.__name__) is each), None)
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    after = error.after if isinstance(error, errors.Retry) else None
    return Failure(
        kind=type(error).__name__,
        known=known,
        text=_text(error),
        fields={} if known is None else _plain_fields(error),
        after_seconds=None if after is None else after.total_seconds(),
        cause=None if cause is None or causes == 0 else describe(cause, causes=causes - 1),
        traceback=_traceback(error) if causes == MOST_CAUSES else "",
    )


def restore(failure: Failure) -> BaseException:
    """An exception that says the same. Its traceback in the process is a note, which a log prints."""
    error = _restored(failure)
    if failure.cause is not None:
        error.__cause__ = restore(failure.cause)
    if failure.traceback:
        error.add_note(f"In the process of the handler:\n{failure.traceback}")
    return error


def _restored(failure: Failure) -> BaseException:
    if failure.known is None:
        stand_in: type[BaseException] = type(failure.kind, (ErrorInProcess,), {"__module__": ErrorInProcess.__module__})
        return stand_in(failure.text)
    known = KNOWN[failure.known]
    # Not by its constructor, which may take something else than its text.
    error = known.__new__(known, failure.text)
    for name, value in failure.fields.items():
        setattr(error, name, value)
    if isinstance(error, errors.Retry):
        error.after = None if failure.after_seconds is None else timedelta(seconds=failure.after_seconds)
    return error


def _plain_fields(error: BaseException) -> dict[str, Any]:
    return {name: value for name, value in vars(error).items() if isinstance(value, str | int | float | bool)}


def _text(error: BaseException) -> str:
    try:
        return str(error).encode("utf-8", "replace").decode()
    except Exception:
        # The handler's own class failed to describe itself; only its type is known.
        return "(its text cannot be read)"


def _traceback(error: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(error))[-TRACEBACK_CHARACTERS:]
        return text.encode("utf-8", "replace").decode()
    except Exception:
        return f"{type(error).__name__}: {_text(error)} (its traceback cannot be read)"
