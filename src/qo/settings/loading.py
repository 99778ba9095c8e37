"""Reads the settings: defaults, then the nearest `.qo.toml` upwards, then the environment, then code.

Every key has a default, so each source has only its changes.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from qo.errors import SettingsError
from qo.settings.paths import is_known, known_paths
from qo.settings.sections import NAME_EXPECTED, Name, Settings

FILE_NAME = ".qo.toml"
ENVIRONMENT_PREFIX = "QO_"
NOT_SETTINGS = frozenset({"QO_REDIS_SERVER", "QO_VALKEY_SERVER"})
"""Variables of qo's own tests, which name the servers to start."""
SQLITE_URL = "sqlite:///"
REFUSALS = (msgspec.ValidationError, UnicodeEncodeError)  # the second for bytes that are not UTF-8


def load_settings(
    overrides: Mapping[str, Any] | None = None,
    *,
    directory: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The defaults with the changes of the nearest `.qo.toml`, then of the environment, then of `overrides`.

    `overrides` is nested like the file: `{"queue": {"cap": 5}}`. A table changes only the keys that it names,
    also in a built-in tier. Raises `SettingsError`, naming source and key, for the first key that
    is unknown or whose value is not allowed.
    """
    values: dict[str, Any] = msgspec.to_builtins(Settings())
    file = find_settings_file(Path.cwd() if directory is None else directory)
    if file is not None:
        _merge(values, _anchored(_checked(_read_file(file), source=str(file)), file.parent))
    _merge(values, read_environment(os.environ if environ is None else environ))
    _merge(values, _checked(overrides or {}, source="Settings given in code"))
    return msgspec.convert(values, Settings)


def find_settings_file(directory: Path) -> Path | None:
    """The `.qo.toml` in `directory` or the nearest of its parents that has one."""
    directory = directory.resolve()
    candidates = (folder / FILE_NAME for folder in (directory, *directory.parents))
    return next((candidate for candidate in candidates if os.path.isfile(candidate)), None)


def read_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """The settings of the environment, nested like the file.

    `QO_SECTION__KEY` is a setting: names are lower-cased, `__` goes one level down, and among the limits
    stands for the colon (`QO_CONCURRENCY__LIMITS__PROVIDER__OLLAMA`). `QO_URL` is `store.url` and wins over
    `QO_STORE__URL`. A list is written as in TOML. An empty value counts as unset. Any other name that begins
    with `QO_` is an error, except those of `NOT_SETTINGS`.
    """
    values: dict[str, Any] = {}
    # QO_URL comes after QO_STORE__URL in this order, so it wins.
    for variable, text in sorted(environ.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in NOT_SETTINGS or not text:
            continue
        path = _path_of(variable)
        if not is_known(path, inspect.type_info(Settings)):
            raise SettingsError(_unknown_variable(variable, path))
        named = _nested(path, _parse_list(text) if text.startswith("[") else text)
        _merge(values, _checked(named, source=variable, strict=False))
    return values


def _path_of(variable: str) -> tuple[str, ...]:
    if variable == "QO_URL":
        return ("store", "url")
    path = tuple(variable.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"))
    if path[:2] == ("concurrency", "limits") and len(path) > 2:
        return (*path[:2], ":".join(path[2:]))
    return path


def _unknown_variable(variable: str, path: tuple[str, ...]) -> str:
    nearest = get_close_matches(variable, ["QO_URL", *sorted(_all_variables(path))], n=1, cutoff=0.0)[0]
    return (
        f"{variable} is no setting; the nearest is {nearest} ({_dotted(_path_of(nearest))}). Name it so, or unset it."
    )


def _all_variables(path: tuple[str, ...]) -> Iterator[str]:
    for known in known_paths(inspect.type_info(Settings), names_from=path):
        yield ENVIRONMENT_PREFIX + "__".join(known).upper()


def _parse_list(text: str) -> Any:
    try:
        return tomllib.loads(f"list = {text}")["list"]
    except tomllib.TOMLDecodeError:
        return text  # `_checked` then raises an error that names the variable


def _read_file(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise SettingsError(f"{file} is not valid TOML: {error}.") from error


def _anchored(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Make the path of an SQLite file relative to the `.qo.toml` that names it, not to the working directory."""
    url = values.get("store", {}).get("url", "")
    path = url.removeprefix(SQLITE_URL)
    if url.startswith(SQLITE_URL) and not path.startswith("/"):
        values["store"]["url"] = f"{SQLITE_URL}{folder}/{path}"
    return values


def _checked(values: Mapping[str, Any], *, source: str, strict: bool = True) -> dict[str, Any]:
    """The same values, converted to the settings' types. With `strict=False` numbers may be text (the environment).

    Every key is checked on its own, because msgspec does not name the entry of a mapping that it refuses.
    """
    checked: dict[str, Any] = {}
    for path, value in _leaves(values):
        try:
            typed = msgspec.convert(_nested(path, value), Settings, strict=strict)
        except REFUSALS as error:
            raise SettingsError(f"{source}: {_refusal(path, values)}") from error
        if isinstance(value, Mapping):
            _merge(checked, _nested(path, {}))  # an empty table changes nothing, but may name a new tier
        else:
            _merge(checked, _nested(path, _value_at(msgspec.to_builtins(typed), path)))
    return checked


def _refusal(path: tuple[str, ...], values: Mapping[str, Any]) -> str:
    """A sentence with the wrong key of `path`, its value and what was expected, from the types of `Settings`."""
    here: Any = inspect.type_info(Settings)
    known = path
    for depth, key in enumerate(path):
        if isinstance(here, inspect.StructType):
            types = {each.encode_name: each.type for each in here.fields}
            if key not in types:
                return f"{_dotted(path[: depth + 1])} is no setting; expected one of {', '.join(types)}."
            here = types[key]
        elif isinstance(here, inspect.DictType):
            if not _is_name(key):
                return f"{_dotted(path[: depth + 1])} is no name; expected {NAME_EXPECTED}."
            here = here.value_type
        else:
            known = path[:depth]
            break
    described = isinstance(here, inspect.Metadata) and here.extra_json_schema
    expected = described["description"] if described else "a table"
    is_secret = isinstance(here, inspect.Metadata) and bool(here.extra)
    value = "not allowed" if is_secret else repr(_value_at(values, known))
    return f"{_dotted(known)} is {value}; expected {expected}."


def _is_name(key: str) -> bool:
    try:
        msgspec.convert(key, Name)
    except REFUSALS:
        return False
    return True


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(f"{key}" if f"{key}".replace("_", "").isalnum() else repr(key) for key in path)


def _leaves(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value that is not a table, and every empty table, with its path."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    first, *rest = path
    return {first: _nested(tuple(rest), value) if rest else value}


def _value_at(values: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        values = values[key]
    return values


def _merge(onto: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, Mapping) and isinstance(onto.get(key), dict):
            _merge(onto[key], value)
        else:
            onto[key] = value
