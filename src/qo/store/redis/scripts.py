"""The Lua scripts as they are sent to the server: one a file, with what they share put in.

A line `-- include lib/groups.lua` stands for that file, which may include others in turn. Each file is put in once,
where it is first mentioned.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Self

PACKAGE = "qo.store.redis"
INCLUDE = "-- include "
SHEBANG = "#!"


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    text: str
    sha: str

    @classmethod
    def of(cls, name: str, text: str) -> Self:
        """A script of this text, as it is."""
        return cls(name=name, text=text, sha=hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


@cache
def script(name: str) -> Script:
    """The script in `<name>.lua`, whole, without its comments."""
    return Script.of(name, _assemble(f"{name}.lua"))


def _assemble(file: str) -> str:
    lines = _read(file, wanted_by="A script").splitlines()
    shebang: list[str] = []
    if lines and lines[0].startswith(SHEBANG):
        # The server takes a script's flags from its first line only, so nothing may come before it.
        shebang, lines = lines[:1], lines[1:]
    return "\n".join([*shebang, *_with_includes(lines, file, {file}), ""])


def _with_includes(lines: list[str], file: str, put_in: set[str]) -> list[str]:
    whole: list[str] = []
    for line in lines:
        if line.startswith(INCLUDE):
            included = line.removeprefix(INCLUDE).strip()
            if included not in put_in:
                put_in.add(included)
                whole += _with_includes(_read(included, wanted_by=file).splitlines(), included, put_in)
        elif _says_something(line):
            assert not line.startswith(SHEBANG), f"{file} is included and cannot have flags: {line}"
            whole.append(line)
    return whole


def _says_something(line: str) -> bool:
    # A line of a long comment, `--[[`, cannot be told from code by itself; those are left in.
    stripped = line.strip()
    return bool(stripped) and (not stripped.startswith("--") or stripped.startswith("--["))


def _read(file: str, *, wanted_by: str) -> str:
    found = resources.files(PACKAGE).joinpath(file)
    assert found.is_file(), f"{wanted_by} wants {file}, which is not in {PACKAGE}"
    return found.read_text(encoding="utf-8")
