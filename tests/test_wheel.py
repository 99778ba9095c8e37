"""The wheel, built and installed in an environment of its own, does what the README shows."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import qo
from tests.docs.test_docs import readme_example

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "qo"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder), folder=ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment with qo from the wheel, and its dependencies from the present one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    install = [sys.executable, "-m", "pip", "--python", f"{paths['scripts']}/python", "install"]
    run(*install, "--no-index", "--no-deps", str(wheel), folder=folder)
    # Behind the wheel's own folder. The .pth file of an editable qo in there is not read, so it cannot be imported.
    (Path(paths["purelib"]) / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return Path(paths["scripts"])


def run(*command: str, folder: Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_installed(*command: str, folder: Path) -> str:
    """The same without a PYTHONPATH, which would name this checkout's source."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return run(*command, folder=folder, environment=environment)


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name.removeprefix("qo/") for name in archive.namelist() if name.startswith("qo/")}

    files = {file for file in SOURCE.rglob("*") if file.is_file() and "__pycache__" not in file.parts}
    assert names == {file.relative_to(SOURCE).as_posix() for file in files}
    assert "py.typed" in names
    assert len([name for name in names if name.endswith(".lua")]) > 50


def test_the_wheel_has_the_version_and_no_extra_for_developers(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA")]

    assert f"\nVersion: {qo.__version__}\n" in metadata
    assert "Provides-Extra: redis" in metadata
    assert "pytest" not in metadata.lower()


def test_the_installed_wheel_runs_the_example_of_the_readme(environment: Path, tmp_path: Path) -> None:
    example, shown = readme_example()
    (tmp_path / "example.py").write_text(example)
    (tmp_path / "where.py").write_text("import qo; print(qo.__file__)")

    assert run_installed(str(environment / "python"), "where.py", folder=tmp_path).startswith(str(environment.parent))
    assert run_installed(str(environment / "python"), "example.py", folder=tmp_path) == shown


def test_the_installed_command_names_its_version(environment: Path, tmp_path: Path) -> None:
    assert run_installed(str(environment / "qo"), "--version", folder=tmp_path) == f"qo {qo.__version__}\n"
