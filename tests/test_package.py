"""What an installed qo promises as a package."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import qo

CHECKOUT = Path(__file__).parents[1]
HEAVY = {"apsw", "asyncio", "asyncpg", "click", "fastapi", "obstore", "prometheus_client", "redis", "rich", "uvicorn"}
IMPORT_AT_MOST_SECONDS = 0.5  # of the processor, and twenty times what it takes: a busy machine must not fail it

TIMED_IMPORT = """
import sys, time
began = time.process_time()
import {module}
print(time.process_time() - began, *sys.modules)
"""


@pytest.fixture(scope="module")
def project() -> dict:
    return tomllib.loads((CHECKOUT / "pyproject.toml").read_text())


def test_every_public_name_exists():
    assert all(hasattr(qo, name) for name in qo.__all__)


def test_every_error_is_public():
    classes = (value for value in vars(qo.errors).values() if isinstance(value, type))
    errors = {value.__name__ for value in classes if issubclass(value, qo.QoError)}

    assert "SubmitRefused" in errors
    assert errors <= set(qo.__all__)


def test_the_version_is_that_of_the_distribution(project):
    assert project["project"]["version"] == qo.__version__


@pytest.mark.parametrize("module", ["qo", "qo.settings"])
def test_importing_is_light(module):
    printed = subprocess.run(
        [sys.executable, "-c", TIMED_IMPORT.format(module=module)], capture_output=True, text=True, check=True
    ).stdout
    seconds, *imported = printed.split()

    assert HEAVY.isdisjoint(imported)
    assert float(seconds) < IMPORT_AT_MOST_SECONDS


def test_the_layers_are_checked(project):
    layers, purity = project["tool"]["importlinter"]["contracts"][:2]

    assert layers["layers"][-7:-4] == ["store", "policy", "ids : settings"]
    assert layers["layers"][-3:] == ["event", "job", "errors"]
    assert layers["exhaustive"]
    assert purity["source_modules"] == ["qo.policy"]


def test_types_are_shipped():
    assert (Path(qo.__file__).parent / "py.typed").exists()
