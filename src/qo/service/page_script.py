"""The dashboard's modules as the one script that browsers load.

The sources stay plain ES modules, which a browser could load as they are. Loaded one by one they are seventy requests
over six connections, and each is compressed without the others. So they are put into one file, once, in memory: each
module becomes a function that runs when it is first needed, its imports and exports become constants. Only the forms of
`import` and `export` that our modules use are known; any other is an error.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from functools import cache

import msgspec

IMPORT = re.compile(r'^import (\{[^}]*\}|\w+) from "([^"]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?function|const|class) (\w+)", re.MULTILINE)
LAZY_IMPORT = re.compile(r'\bimport\("([^"]+)"\)')
LEFT_OVER = re.compile(r"^.*(?:^(?:import|export)\b|\bimport[.(]).*$", re.MULTILINE)
VENDOR = "vendor/"

LOADER = """\
const made = {};
const vendored = {};
const need = (name) => (made[name] ??= modules[name]());
const bring = async (name, files) => {
  await Promise.all(files.map(async (file) => (vendored[file] ??= await import(file))));
  return need(name);
};
"""


class UnknownForm(Exception):
    """A module imports or exports in a way that the joining does not know."""


class _Module(msgspec.Struct, frozen=True):
    source: str
    imports: tuple[str, ...]
    """The modules and vendored files that have to be there before it runs."""


def joined_script(sources: Mapping[str, str], entry: str, *, addresses: Mapping[str, str]) -> str:
    """One module that does what `entry` does. `sources` has all modules by their paths, `addresses` where the vendored
    files are for the joined module."""
    modules = {name: _Module(source, tuple(_imported(name, source))) for name, source in sources.items()}

    @cache
    def vendored(name: str) -> frozenset[str]:
        """The vendored files that a module needs, by itself or through others."""
        if name.startswith(VENDOR):
            return frozenset({name})
        return frozenset[str]().union(*map(vendored, modules[name].imports))

    at_once = vendored(entry)

    def rewritten(name: str) -> str:
        def bound(found: re.Match[str]) -> str:
            names, wanted = found[1], _path(name, found[2])
            if wanted.startswith(VENDOR):
                source = f"vendored[{_text(addresses[wanted])}]"
            else:
                source = f"need({_text(wanted)})"
            if not names.startswith("{"):
                return f"const {names} = {source}.default;\n"
            return f"const {names.replace(' as ', ': ')} = {source};\n"

        def brought(found: re.Match[str]) -> str:
            wanted = _path(name, found[1])
            later = sorted(addresses[file] for file in vendored(wanted) - at_once)
            return f"bring({_text(wanted)}, {msgspec.json.encode(later).decode()})"

        exported = [found[2] for found in EXPORT.finditer(modules[name].source)]
        body = LAZY_IMPORT.sub(brought, IMPORT.sub(bound, EXPORT.sub(r"\1 \2", modules[name].source)))
        if (unknown := LEFT_OVER.search(body)) is not None:
            raise UnknownForm(f"{name} has the line {unknown[0]!r}; import and export as the other modules do.")
        return body if name == entry else f"{body}return {{ {', '.join(exported)} }};\n"

    files = sorted(at_once)
    imports = "".join(f"import * as v{number} from {_text(addresses[file])};\n" for number, file in enumerate(files))
    known = "".join(f"vendored[{_text(addresses[file])}] = v{number};\n" for number, file in enumerate(files))
    parts = "".join(f"{_text(name)}: () => {{\n{rewritten(name)}}},\n" for name in sorted(modules) if name != entry)
    return f"{imports}{LOADER}{known}const modules = {{\n{parts}}};\n{rewritten(entry)}"


def _imported(name: str, source: str) -> list[str]:
    return [_path(name, found[2]) for found in IMPORT.finditer(source)]


def _path(name: str, relative: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), relative))


def _text(value: str) -> str:
    return msgspec.json.encode(value).decode()
