"""The result of a handler, as it is stored."""

from __future__ import annotations

from typing import Any

import msgspec

from qo.errors import InvalidValue
from qo.policy.json_value import encode_json


class UnusableResult(Exception):
    """The result of a handler cannot be kept as JSON."""


def encode_result(result: Any, *, most_bytes: int) -> bytes | None:
    """The result as JSON. Raises `UnusableResult`. A handler in a process has encoded it already (`msgspec.Raw`)."""
    if result is None:
        return None
    encoded = bytes(result) if isinstance(result, msgspec.Raw) else _as_json(result)
    if len(encoded) > most_bytes:
        raise UnusableResult(f"The result is {len(encoded)} bytes of JSON; at most {most_bytes} are allowed.")
    return encoded


def encode_in_process(result: Any) -> bytes | None:
    return None if result is None else _as_json(result)


def _as_json(result: Any) -> bytes:
    try:
        return encode_json("result", result)
    except InvalidValue as error:
        raise UnusableResult(f"The result cannot be kept: {error}") from error
