"""Values as JSON. A value that JSON would turn into something else is refused by its path, such as `data.files[2]`.

The encoded value is read back and compared, which takes a fraction of a microsecond for a small value. Only a value
that comes back different is searched for the wrong part; it may also just have tuples or typed models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from reprlib import repr as shortened
from uuid import UUID

import msgspec

from qo.errors import InvalidValue

INSTEAD: tuple[tuple[tuple[type, ...], str], ...] = (
    ((bytes, bytearray, memoryview), "text, such as base64"),
    ((set, frozenset), "a list"),
    ((Decimal,), "text or a float"),
    ((datetime, date, time), "text, such as its isoformat()"),
    ((timedelta,), "its total_seconds()"),
    ((UUID,), "text, such as its str()"),
    ((Enum,), "its value"),
)
"""Types that the encoder writes as another type, and the values to give in their stead."""

MARKS_OF_A_MODEL = ("__dataclass_fields__", "__attrs_attrs__", "model_dump")

Found = tuple[str, object]
"""A path and the value at it."""


def encode_json(field: str, value: object) -> bytes:
    """The value as JSON of the same meaning. Raises `InvalidValue`, which names the part that JSON cannot hold.

    A tuple may stand for a list. A msgspec Struct, dataclass, attrs class or pydantic model is written with all its
    fields, of whatever type: a handler that declares the same type gets it back as it was.
    """
    if value is None:
        return b"null"
    try:
        encoded = _encode(value)
        is_same = bool(_decode(encoded) == value)
    except RecursionError:
        raise InvalidValue(f"{field} is nested too deeply or holds itself; give it fewer levels.") from None
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        wrong = _find_wrong(field, value) or f"{field} is not JSON ({error}); give values that JSON can hold"
        raise InvalidValue(f"{wrong}.") from error
    if not is_same and (changed := _find_wrong(field, value)):
        raise InvalidValue(f"{changed}.")
    return encoded


def _as_encodable(value: object) -> object:
    """A pydantic model, by the names under which it reads itself again."""
    dump: Callable[..., object] | None = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type):
        raise TypeError(f"JSON does not have the type {type(value).__name__}")
    return dump(mode="json", by_alias=True)


_encode = msgspec.json.Encoder(enc_hook=_as_encodable).encode
_decode = msgspec.json.Decoder().decode


def _find_wrong(field: str, value: object) -> str | None:
    """The first part that JSON cannot hold, and what to give instead, as a sentence; None when nothing is wrong."""
    left: list[Found] = [(field, value)]
    seen: set[int] = set()
    while left:
        path, value = left.pop()
        if isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            if isinstance(value, dict) and (wrong := _find_wrong_key(path, value)):
                return wrong
            left.extend(reversed(list(_members(path, value))))
        elif _is_model(value):
            if wrong := _find_wrong_in_model(path, value):
                return wrong
        elif wrong := _wrong_with(path, value):
            return wrong
    return None


def _members(path: str, value: object) -> Iterator[Found]:
    if isinstance(value, dict):
        return ((f"{path}.{key}" if key.isidentifier() else f"{path}[{shortened(key)}]", value[key]) for key in value)
    assert isinstance(value, list | tuple)
    return ((f"{path}[{index}]", inner) for index, inner in enumerate(value))


def _find_wrong_key(path: str, value: dict[object, object]) -> str | None:
    for key in value:
        if not isinstance(key, str):
            return f"{path} has the key {shortened(key)}, and JSON has text keys only; use {shortened(str(key))}"
    return None


def _wrong_with(path: str, value: object) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return f"{path} is {value}, for which JSON has no number; use null or leave it out"
    if isinstance(value, str) and not _is_unicode(value):
        return f"{path} has half a surrogate pair, which is no Unicode; give text without it"
    if value is None or isinstance(value, str | int | float | dict | list | tuple):
        return None
    for types, instead in INSTEAD:
        if isinstance(value, types):
            return f"{path} is of type {type(value).__name__}, which JSON would turn into another one; give {instead}"
    return f"{path} is of type {type(value).__name__}, which JSON does not have; give values that JSON can hold"


def _find_wrong_in_model(path: str, model: object) -> str | None:
    """Its fields may have any type that can be written; but what was no number is none when it is read again."""
    try:
        written = msgspec.to_builtins(model, str_keys=True, enc_hook=_as_encodable)
    except (TypeError, ValueError, RecursionError) as error:
        return f"{path} is not JSON ({error}); give fields that JSON can hold"
    return _find_wrong(path, written)


def _is_model(value: object) -> bool:
    if isinstance(value, type):
        return False
    return isinstance(value, msgspec.Struct) or any(hasattr(value, mark) for mark in MARKS_OF_A_MODEL)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
