"""A handler by the name under which another process finds it: its module, or its file, and its name there."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import msgspec

from qo.errors import InvalidValue

MAIN = "__main__"
MAIN_IN_A_PROCESS = "__qo_main__"
"""The name of the program's own file in a process, so that what it does under `if __name__ == "__main__"` is not done
again there."""


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    module: str
    file: str | None
    """The file of a program that was started as `python app.py`, which cannot be imported by a name."""
    name: str


def check_runs_in_a_process(handler: Callable[..., Any], *, name: str, is_async: bool) -> None:
    """Raises `InvalidValue` for a function that another process cannot find or should not run."""
    if os.name != "posix":
        raise InvalidValue(f"Task {name!r} has process=True, which needs Linux or macOS.")
    if is_async:
        raise InvalidValue(
            f"Task {name!r} has process=True, which is for plain functions; write `def` instead of `async def`."
        )
    reference_to(handler)


def reference_to(handler: Callable[..., Any]) -> Reference:
    module, qualified = getattr(handler, "__module__", None), getattr(handler, "__qualname__", None)
    if module is None or qualified is None or "<" in qualified:
        raise InvalidValue(
            f"The handler {qualified or handler!r} cannot run in a process of its own, because another process does "
            "not find it; define it at the top of a module, under @qo.task(process=True)."
        )
    if module != MAIN:
        return Reference(module=module, file=None, name=qualified)
    main = sys.modules[MAIN]
    if main.__spec__ is not None:  # started as `python -m app`
        return Reference(module=main.__spec__.name, file=None, name=qualified)
    file = getattr(main, "__file__", None)
    if file is None:
        raise InvalidValue(
            f"The handler {qualified} cannot run in a process of its own, because it was typed in and is in no file; "
            "define it at the top of a module."
        )
    return Reference(module=MAIN, file=os.path.abspath(file), name=qualified)


def find(reference: Reference) -> Any:
    """What has this name in this process, the module being imported."""
    found: Any = importlib.import_module(reference.module) if reference.file is None else _main(reference.file)
    for part in reference.name.split("."):
        found = getattr(found, part)
    return found


def _main(file: str) -> ModuleType:
    if MAIN_IN_A_PROCESS in sys.modules:
        return sys.modules[MAIN_IN_A_PROCESS]
    spec = importlib.util.spec_from_file_location(MAIN_IN_A_PROCESS, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be imported.")
    module = sys.modules[MAIN_IN_A_PROCESS] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[MAIN_IN_A_PROCESS]
        raise
    return module
