"""The Lua functions as the server gets them: one library, put together from the operations' files and the shared ones.

A line `-- include lib/groups.lua` stands for that file, which may include others in turn. Each file is put in once, as
a block of its own: only the names in its line `-- exports groups, CALLERS` are known outside, and the names that it
uses from other files are made local to it. An operation's file is the body of its function; its line
`-- flags allow-oom` says in which states of the server it may run. The names of `constants.py` are known everywhere.

Functions and not scripts: a script makes all of its own functions anew at every call, which took 100 of the 190 µs that
a claim of nothing costs the server.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Self

from qo.store.redis.server.constants import CONSTANTS, in_lua

PACKAGE, OPERATIONS = "qo.store.redis", "operations"
INCLUDE, EXPORTS, FLAGS = "-- include ", "-- exports ", "-- flags "
BUILT_IN = "ipairs, pairs, next, unpack, tonumber, math, string, table, cjson, cmsgpack, struct"
"""Lua's own functions, made local: a library's globals are looked up in two tables."""
CALL = "redis.call"
"""The server's commands. The library knows this as `call`; a function of its own around it took 2 % of a step."""
WORD = re.compile(r"(?<![.:\w])[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Library:
    """Named by its content, so that several versions of qo can share a server."""

    name: str
    text: str

    @classmethod
    def of(cls, code: str) -> Self:
        name = f"qo_{hashlib.sha256(code.encode()).hexdigest()[:16]}"
        return cls(name=name, text=f"#!lua name={name}\nlocal library = '{name}'\n{code}")


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    library: Library

    @classmethod
    def of(cls, operation: str, library: Library) -> Self:
        return cls(name=f"{library.name}_{operation}", library=library)

    @classmethod
    def alone(cls, body: str, *flags: str) -> Self:
        """A function in a library of its own. It is called with `keys` and `argv`."""
        return cls.of("alone", Library.of("\n".join(_registered("alone", [body], flags, "keys, argv"))))


@cache
def function(operation: str) -> Function:
    """The function in `<operation>.lua`."""
    assert operation in operations(), f"There is no operation {operation!r} in {PACKAGE}"
    return Function.of(operation, library())


def operations() -> list[str]:
    files = resources.files(PACKAGE).joinpath(OPERATIONS).iterdir()
    return sorted(file.name.removesuffix(".lua") for file in files if file.name.endswith(".lua"))


@cache
def library() -> Library:
    """All operations of the store."""
    exported: dict[str, str] = dict.fromkeys(CONSTANTS, "constants.py")
    put_in: set[str] = set()
    code = [
        f"local function built_in() return {BUILT_IN}, {CALL} end",
        f"local {BUILT_IN}, call",
        f"local function know_lua() {BUILT_IN}, call = built_in() end",
        "local exported = {}",
        *(f"exported.{name} = {in_lua(value)}" for name, value in CONSTANTS.items()),
    ]
    for operation in operations():
        file = f"{OPERATIONS}/{operation}.lua"
        lines = _read(file, wanted_by="The library")
        code += _included(lines, file, exported, put_in)
        code += ["do", *_imports([*_code(lines), "begin"], exported)]
        code += _registered(operation, _code(lines), _listed(lines, FLAGS), "arguments", begins=True)
        code += ["end"]
    return Library.of("\n".join([*code, ""]))


def _included(lines: list[str], file: str, exported: dict[str, str], put_in: set[str]) -> list[str]:
    """The blocks of all files that these lines include and that are not in the library yet."""
    blocks: list[str] = []
    for included in _listed(lines, INCLUDE):
        if included not in put_in:
            put_in.add(included)
            text = _read(included, wanted_by=file)
            blocks += _included(text, included, exported, put_in)
            blocks += _block(text, included, exported)
    return blocks


def _block(lines: list[str], file: str, exported: dict[str, str]) -> list[str]:
    names = _listed(lines, EXPORTS)
    assert names, f"{file} is included and exports nothing"
    for name in names:
        assert name not in exported, f"{file} exports {name}, as {exported[name]} does"
    own = _code(lines)
    imports = _imports(own, exported)
    exported.update(dict.fromkeys(names, file))
    return ["do", *imports, *own, *(f"exported.{name} = {name}" for name in names), "end"]


def _imports(lines: list[str], exported: dict[str, str]) -> list[str]:
    words = {word for line in lines for word in WORD.findall(line)}
    names = [name for name in exported if name in words]
    return [f"local {', '.join(names)} = {', '.join(f'exported.{name}' for name in names)}"] if names else []


def _registered(
    operation: str, body: list[str], flags: list[str] | tuple[str, ...], parameters: str, *, begins: bool = False
) -> Iterator[str]:
    """With `begins`, the body is an operation, and the step that it is hands it its arguments."""
    yield f"local function operation({parameters})"
    yield from body
    yield "end"
    yield "local function callback(keys, argv)"
    yield "  return begin(keys, argv, operation)" if begins else "  return operation(keys, argv)"
    yield "end"
    listed = ", ".join(f"'{flag}'" for flag in flags)
    yield (
        f"redis.register_function({{ function_name = library .. '_{operation}', callback = callback, "
        f"flags = {{ {listed} }} }})"
    )


def _listed(lines: list[str], mark: str) -> list[str]:
    """The names in all lines that begin with this mark."""
    names = (name.strip() for line in lines if line.startswith(mark) for name in line[len(mark) :].split(","))
    return [name for name in names if name]


def _code(lines: list[str]) -> list[str]:
    # A line of a long comment, `--[[`, cannot be told from code by itself, so it is left in.
    return [line for line in lines if (code := line.strip()) and (not code.startswith("--") or code.startswith("--["))]


def _read(file: str, *, wanted_by: str) -> list[str]:
    found = resources.files(PACKAGE).joinpath(file)
    assert found.is_file(), f"{wanted_by} wants {file}, which is not in {PACKAGE}"
    return found.read_text(encoding="utf-8").splitlines()
