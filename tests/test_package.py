"""What an installed qo promises as a package. tests/test_wheel.py shows the built wheel."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
import tomllib
import typing
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import qo
import qo.sync

CHECKOUT = Path(__file__).parents[1]
HEAVY = {"apsw", "asyncio", "asyncpg", "click", "fastapi", "obstore", "prometheus_client", "redis", "rich", "uvicorn"}
IMPORT_AT_MOST_SECONDS = 0.5  # of the processor, and twenty times the usual: a busy machine must not fail it

PUBLIC_MODULES = {"qo.settings.sections"}  # its names are imported from `qo.settings`
NOT_FOR_USERS = {
    "BlockingLoop",  # the background thread of qo.sync
    # Attributes of a queue for the worker, the limiter, the service and tests.
    "Follower",
    "Store",
    "System",
    "LimiterCollector",  # a collector of prometheus_client, and `from qo import *` must not need that library
}

TIMED_IMPORT = """
import sys, time
began = time.process_time()
import {module}
print(time.process_time() - began, *sys.modules)
"""


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((CHECKOUT / "pyproject.toml").read_text())


def test_every_public_name_exists() -> None:
    assert all(hasattr(qo, name) for name in qo.__all__)


@pytest.mark.parametrize("module", [qo, qo.sync], ids=["qo", "qo.sync"])
def test_help_and_completion_list_the_public_names(module: ModuleType) -> None:
    page = pydoc.plain(pydoc.render_doc(module))
    names = [name for name in module.__all__ if name not in ("sync", "__version__")]

    assert {name for name in dir(module) if not name.startswith("_")} == {*module.__all__} - {"__version__"}
    assert [name for name in names if not re.search(rf"\b{name}\b", page)] == []
    assert "class Queue" in page
    assert "connect(" in page


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'qo' has no attribute 'Quene'"):
        _ = qo.Quene


def test_every_error_is_public() -> None:
    classes = (value for value in vars(qo.errors).values() if isinstance(value, type))
    errors = {value.__name__ for value in classes if issubclass(value, qo.QoError)}

    assert "SubmitRefused" in errors
    assert errors <= set(qo.__all__)


def test_every_type_that_a_public_call_returns_is_public() -> None:
    public = {name: getattr(qo, name) for name in qo.__all__}

    returned = dict(returned_types([*public.values(), *vars(qo.sync).values()]))

    assert {qo.Job, qo.Why, qo.Holder, qo.LimiterMetrics, qo.ConcurrencyStatus} <= set(returned)
    not_exported = {
        found: where
        for found, where in returned.items()
        if found not in public.values()
        and found.__module__ != "qo.sync"
        and found.__module__ not in PUBLIC_MODULES
        and found.__name__ not in NOT_FOR_USERS
    }
    assert not_exported == {}


def returned_types(public: list[Any]) -> Iterator[tuple[type, str]]:
    """The types of qo in the answers of these functions and of these classes' methods, properties and fields."""
    for value in public:
        if inspect.isfunction(value) and value.__module__.startswith("qo"):
            yield from types_in(answer_of(value), value.__name__)
        elif isinstance(value, type) and value.__module__.startswith("qo") and value.__module__ != "qo.errors":
            for name, method in public_methods(value):
                yield from types_in(answer_of(method), f"{value.__name__}.{name}")
            for name, field in typing.get_type_hints(value, names_for(value)).items():
                if not name.startswith("_"):
                    yield from types_in(field, f"{value.__name__}.{name}")


def public_methods(owner: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, value in vars(owner).items():
        method = value.fget if isinstance(value, property) else inspect.unwrap(getattr(value, "__func__", value))
        if inspect.isfunction(method) and (not name.startswith("_") or name in ("__enter__", "__aenter__")):
            yield name, method


def answer_of(function: Callable[..., Any]) -> object:
    return typing.get_type_hints(function, names_for(function)).get("return")


def names_for(value: Any) -> dict[str, Any]:
    """The names of its module, and those that only a type checker imports there."""
    from qo.limits.collector import LimiterCollector
    from qo.store.bucket import BucketSlots

    only_for_checkers = {"Queue": qo.Queue, "LimiterCollector": LimiterCollector, "BucketSlots": BucketSlots}
    return only_for_checkers | vars(import_module(value.__module__))


def types_in(annotation: object, where: str) -> Iterator[tuple[type, str]]:
    arguments = typing.get_args(annotation)
    for argument in arguments:
        yield from types_in(argument, where)
    is_of_qo = isinstance(annotation, type) and annotation.__module__.partition(".")[0] == "qo"
    if is_of_qo and not arguments:
        yield typing.cast(type, annotation), where


def test_the_version_has_one_source(project: dict[str, Any]) -> None:
    command = [sys.executable, "-m", "qo", "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert printed == f"qo {qo.__version__}\n"
    assert "version" not in project["project"]
    assert project["project"]["dynamic"] == ["version"]
    source = project["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{qo.__version__}"' in (CHECKOUT / source).read_text()


def test_the_changelog_has_a_section_for_the_version() -> None:
    assert f"\n## [{qo.__version__}]" in (CHECKOUT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("module", ["qo", "qo.settings"])
def test_importing_is_light(module: str) -> None:
    printed = subprocess.run(
        [sys.executable, "-c", TIMED_IMPORT.format(module=module)], capture_output=True, text=True, check=True
    ).stdout
    seconds, *imported = printed.split()

    assert HEAVY.isdisjoint(imported)
    assert float(seconds) < IMPORT_AT_MOST_SECONDS


def test_the_layers_are_checked(project: dict[str, Any]) -> None:
    layers, purity = project["tool"]["importlinter"]["contracts"][:2]

    lower = layers["layers"][layers["layers"].index("store") :]
    assert lower[:3] == ["store", "policy", "values : settings"]
    assert lower[-4:] == ["event", "job", "errors", "_version"]
    assert layers["exhaustive"]
    assert purity["source_modules"] == ["qo.policy"]


def test_users_do_not_get_the_tools_of_developers(project: dict[str, Any]) -> None:
    extras = project["project"]["optional-dependencies"]

    assert set(extras) == {"redis", "postgres", "s3", "server"}
    assert not [line for extra in extras.values() for line in extra if "pytest" in line]
