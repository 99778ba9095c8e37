"""From `module:worker` to the worker it names."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

import click

from qo.queue.queue import Queue
from qo.worker.declared import TaskFunction
from qo.worker.worker import Worker

EXAMPLE = """
    def worker(queue):
        worker = qo.Worker(queue)

        @worker.task("send_email")
        async def send_email(data, ctx): ...

        return worker"""

EXAMPLE_TASK = """
    @qo.task
    async def send_email(data, ctx): ..."""

WorkerMaker = Callable[[Queue], Any]


def find_maker(reference: str) -> WorkerMaker:
    """The function that `module:name` names, or of a module alone one that makes a worker of all tasks in it. The
    module is imported from the working directory first."""
    module_name, colon, name = reference.partition(":")
    if module_name and not colon:
        return _maker_of_tasks(module_name)
    if not (module_name and name):
        raise _wrong(
            f"{reference!r} names no worker; write module:worker, such as app:worker for app.py, or the name of a "
            f"module with tasks.\n{EXAMPLE}"
        )
    found = _import(module_name)
    for part in name.split("."):
        if not hasattr(found, part):
            raise _wrong(f"{module_name} has no {name!r}. {_makers_in(found)}Define there:\n{EXAMPLE}")
        found = getattr(found, part)
    if isinstance(found, Worker):
        raise _wrong(
            f"{reference} is a worker that was made when {module_name} was imported, on a connection that ends there. "
            f"Let it be a function that takes the queue and returns the worker:\n{EXAMPLE}"
        )
    if not callable(found):
        raise _wrong(f"{reference} is {found!r}, which makes no worker; let it be a function such as\n{EXAMPLE}")
    maker: WorkerMaker = found
    return maker


async def make_worker(maker: WorkerMaker, queue: Queue, reference: str) -> Worker:
    """The worker that the function returns for this queue."""
    try:
        inspect.signature(maker).bind(queue)
    except TypeError:
        raise _wrong(
            f"{reference} cannot be called with the queue alone; let it be a function such as\n{EXAMPLE}"
        ) from None
    made = maker(queue)
    if inspect.isawaitable(made):
        made = await made
    if not isinstance(made, Worker):
        raise _wrong(f"{reference} returned {made!r}, not a qo.Worker; let it be a function such as\n{EXAMPLE}")
    return made


def _maker_of_tasks(module_name: str) -> WorkerMaker:
    tasks = tasks_in(_import(module_name))
    if not tasks:
        raise _wrong(
            f"{module_name} has no functions under @qo.task; write {module_name}:worker for a function that makes a "
            f"worker, or define there:\n{EXAMPLE_TASK}"
        )
    return lambda queue: Worker(queue, tasks=tasks)


def tasks_in(module: ModuleType) -> list[TaskFunction[..., Any, Any, Any]]:
    """The functions under `@qo.task` in a module, those that it imports among them; of a package, also in its
    modules."""
    modules = [module]
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), f"{module.__name__}."):
        if not found.name.endswith(".__main__"):  # which runs a program
            modules.append(_import(found.name))
    tasks = (value for each in modules for value in vars(each).values() if isinstance(value, TaskFunction))
    return list({id(task): task for task in tasks}.values())


def _import(module_name: str) -> Any:
    sys.path.insert(0, os.getcwd())  # a command's own folder is first there, and app.py lies where it is called
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise _broken(module_name, error) from error
        raise _wrong(
            f"There is no module {module_name!r} in {os.getcwd()}, nor among the installed packages; "
            "call qo from the folder that holds it."
        ) from None
    except Exception as error:
        raise _broken(module_name, error) from error


def _makers_in(module: Any) -> str:
    makers = [name for name, value in vars(module).items() if callable(value) and "worker" in name.lower()]
    return f"It has {', '.join(makers)}. " if makers else ""


def _broken(module_name: str, error: Exception) -> click.ClickException:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    if isinstance(error, SyntaxError):
        place = f" ({error.filename}, line {error.lineno})"
    return _wrong(f"{module_name} cannot be imported: {type(error).__name__}: {error}{place}.")


def _wrong(sentence: str) -> click.ClickException:
    return click.BadParameter(sentence, click.get_current_context(silent=True), param_hint="'module:worker'")
