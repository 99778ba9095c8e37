"""The wheel on a machine that has nothing of qo: without a compiler, by pip, pipx and uvx. Needs a package index."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import qo
from tests.test_wheel import NAMED_FILE, SECTION

ROOT = Path(__file__).parents[1]
VERSIONS = ["3.11", "3.12", "3.13", "3.14"]
PLATFORMS = [
    [f"manylinux{glibc}_{machine}" for glibc in ("2014", "_2_17", "_2_24", "_2_28")]
    for machine in ("x86_64", "aarch64")
] + [["macosx_11_0_arm64"]]
EVERYTHING = "[redis,postgres,s3,server]"
PIP = ["-m", "pip", "--disable-pip-version-check", "--quiet", "--quiet"]

pytestmark = pytest.mark.nightly


def interpreters() -> dict[str, str]:
    """The Pythons of this machine that qo supports, by version. The workflow of the night brings all of them."""
    found = {f"{sys.version_info.major}.{sys.version_info.minor}": sys.executable}
    for version in VERSIONS:
        folders = [
            *os.environ["PATH"].split(os.pathsep),
            *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin")),
        ]
        # A name on the PATH may be a shim without a Python behind it, so a folder of the version itself goes first.
        python = shutil.which(f"python{version}", path=os.pathsep.join(reversed(folders)))
        if python is not None:
            found.setdefault(version, python)
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder), folder=ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment with pipx and uv."""
    folder = tmp_path_factory.mktemp("tools")
    venv.create(folder, with_pip=True)
    run(str(folder / "bin/python"), *PIP, "install", "pipx", "uv", folder=folder)
    return folder / "bin"


def run(*command: str, folder: Path, **more: str) -> str:
    """Without a compiler: a package that has to be built would fail."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "QO_", "VIRTUAL_ENV"))}
    done = subprocess.run(
        command,
        cwd=folder,
        env=kept | {"CC": "false", "CXX": "false"} | more,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("platforms", PLATFORMS, ids=lambda platforms: platforms[0])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_dependency_has_a_wheel(wheel: Path, tmp_path: Path, version: str, platforms: list[str]) -> None:
    wanted = ["--dry-run", "--ignore-installed", "--only-binary=:all:", "--target", str(tmp_path)]
    wanted += ["--python-version", version, *(f"--platform={each}" for each in platforms)]

    run(sys.executable, *PIP, "install", *wanted, f"{wheel}{EVERYTHING}", folder=tmp_path)


@pytest.mark.parametrize("python", interpreters().values(), ids=interpreters())
def test_the_example_of_the_readme_runs_where_only_the_wheel_was_installed(
    wheel: Path, tmp_path: Path, python: str
) -> None:
    for text, name in NAMED_FILE.findall(SECTION):
        (tmp_path / name).write_text(text.replace("asyncio.sleep(20)", "asyncio.sleep(0)"))

    run(python, "-m", "venv", "env", folder=tmp_path)
    run("env/bin/python", *PIP, "install", "--only-binary=:all:", str(wheel), folder=tmp_path)

    assert run("env/bin/qo", "--version", folder=tmp_path) == f"qo {qo.__version__}\n"
    assert run("env/bin/python", "submit.py", folder=tmp_path).count("You are #") == 3
    run("env/bin/qo", "worker", "app:worker", "--burst", folder=tmp_path)
    assert run("env/bin/qo", "jobs", folder=tmp_path).count("succeeded") == 3


def test_pipx_installs_the_command(wheel: Path, tools: Path, tmp_path: Path) -> None:
    places = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}

    run(str(tools / "pipx"), "install", str(wheel), folder=tmp_path, **places)

    assert run(str(tmp_path / "bin/qo"), "--version", folder=tmp_path) == f"qo {qo.__version__}\n"


@pytest.mark.parametrize("command", ["qo", "qo-queue"])
def test_uvx_runs_the_command_with_its_demo(wheel: Path, tools: Path, tmp_path: Path, command: str) -> None:
    call = [str(tools / "uvx"), "--from", f"{wheel}[server]", command, "up", "--demo", "--for", "2", "--port", "0"]

    log = run(*call, folder=tmp_path, UV_CACHE_DIR=str(tmp_path / "cache"))

    assert "In a second terminal" in log
    assert "submitted build" in log
