"""The paths of all keys, from the types of the settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import inspect

Path = tuple[str, ...]


def is_known(path: Path, types: Any) -> bool:
    """Whether this path is a setting or a table of settings. A table of names (limits, tiers) accepts any name."""
    here = types
    for key in path:
        if isinstance(here, inspect.StructType):
            here = next((each.type for each in here.fields if each.encode_name == key), None)
        elif isinstance(here, inspect.DictType):
            here = here.value_type
        else:
            return False
    return here is not None


def known_paths(types: Any, path: Path = (), *, names_from: Path) -> Iterator[Path]:
    """The path of every setting. A table of names takes its name from the same place of `names_from`."""
    if isinstance(types, inspect.StructType):
        for each in types.fields:
            yield from known_paths(each.type, (*path, each.encode_name), names_from=names_from)
    elif isinstance(types, inspect.DictType):
        name = names_from[len(path)] if len(path) < len(names_from) else "name"
        yield from known_paths(types.value_type, (*path, name), names_from=names_from)
    else:
        yield path
