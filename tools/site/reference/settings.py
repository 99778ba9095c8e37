"""Every setting: its key, its variable, its default, what it accepts and what it is for; and the tiers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect

from qo.limits.names import ENVIRONMENT_PREFIX
from qo.settings import BUILT_IN_TIERS, PURPOSES, Settings, Tier
from tools.site.reference.text import code, heading, paragraphs, table

FIRST = """\
Settings come from the nearest `.qo.toml` upwards from the working directory. An environment variable wins over the
file, and what a program passes to `qo.connect(settings=…)` wins over both. All are optional; `qo init` writes a file
with every key, its purpose and its default. `qo doctor` says which file was found.

An unknown key, an unknown variable that begins with `QO_`, or a value that is not allowed is an error that names the
file or variable, the key and what was expected."""
LIMITER = f"""\
`qo.Limiter.from_env()` reads `{ENVIRONMENT_PREFIX}<PROVIDER>`, a whole number for each provider, and
`{ENVIRONMENT_PREFIX}GLOBAL` for the total. Where a variable is not set, `[limiter.env_defaults]` applies."""
TIERS = """\
Tiers are plain configuration. `[tiers.partner]` changes numbers of a built-in tier and keeps the others; another name
makes a tier, which has the numbers of `bootstrapper` where it does not name its own. A tier applies to jobs that are
submitted with it, and a job needs none."""


def page() -> str:
    parts = ["# Settings", FIRST]
    for section in Settings().__struct_fields__:
        if section == "tiers":
            parts += list(_tiers())
        else:
            parts += list(_section(section, getattr(Settings(), section)))
    parts += ["## Limits of a limiter, from the environment", LIMITER]
    return paragraphs(parts)


def _section(name: str, section: msgspec.Struct) -> Iterator[str]:
    yield heading(2, f"`[{name}]`", name)
    rows = []
    for key in section.__struct_fields__:
        path = f"{name}.{key}"
        variable = "QO_URL" if path == "store.url" else f"QO_{name}__{key}".upper()
        value = getattr(section, key)
        if isinstance(value, Mapping):
            variable += "__<NAME>"
        purpose = f"{PURPOSES[path]} Accepts {_accepted(type(section), key)}. In the environment: {code(variable)}"
        rows.append((code(key), _shown(value), purpose))
    yield table(["key", "default", "purpose"], rows)


def _tiers() -> Iterator[str]:
    yield heading(2, "`[tiers.<name>]`", "tiers")
    yield TIERS
    names = list(BUILT_IN_TIERS)
    rows = [
        (
            code(key),
            *(_shown(getattr(BUILT_IN_TIERS[name], key)) for name in names),
            f"{PURPOSES[f'tiers.{key}']} In the environment: {code(f'QO_TIERS__<NAME>__{key}'.upper())}",
        )
        for key in Tier.__struct_fields__
    ]
    most = (
        "iterations at most",
        *(str(BUILT_IN_TIERS[name].max_iterations) for name in names),
        "Both of the above.",
    )
    yield table(["key", *map(code, names), "purpose"], [*rows, most])


def _shown(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, Mapping):
        return code(json.dumps(dict(value))) if value else "none"
    return code(json.dumps(list(value) if isinstance(value, tuple) else value))


def _accepted(section: type[msgspec.Struct], key: str) -> str:
    """The words in which a refusal says what is expected."""
    info = inspect.type_info(section)
    assert isinstance(info, inspect.StructType)
    kind = next(field.type for field in info.fields if field.name == key)
    if isinstance(kind, inspect.Metadata) and kind.extra_json_schema:
        return str(kind.extra_json_schema["description"])
    if isinstance(kind, inspect.DictType):
        return "a table of names and whole numbers"
    if isinstance(kind, inspect.BoolType):
        return "true or false"
    return _of_union(kind)


def _of_union(kind: Any) -> str:
    """Of a value that may be unset: the words for the others."""
    for each in getattr(kind, "types", ()):
        if isinstance(each, inspect.Metadata) and each.extra_json_schema:
            return str(each.extra_json_schema["description"])
    return "text"
