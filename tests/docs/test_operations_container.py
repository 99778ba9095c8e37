"""The Containerfile, followed without an engine: its files, its pip step, its command and its health check."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Call
from tests.docs.operations import DEPLOY, ROOT, examples
from tests.processes import Process

INSTRUCTION = re.compile(r"^([A-Z]+) (.+)$")
KNOWN = ["FROM", "COPY", "RUN", "USER", "WORKDIR", "VOLUME", "ENV", "EXPOSE", "HEALTHCHECK", "CMD"]
PORT = "8765"


def instructions() -> list[tuple[str, str]]:
    """In their order; an instruction that goes on in the next line is one."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Containerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    parsed = [found.groups() for line in lines if (found := INSTRUCTION.match(line))]
    assert len(parsed) == len(lines)
    return [(name, rest) for name, rest in parsed]


def values_of(name: str) -> list[str]:
    return [rest for each, rest in instructions() if each == name]


def value_of(name: str) -> str:
    (value,) = values_of(name)
    return value


def command_of(value: str) -> list[str]:
    """The command in its exec form, which gets signals itself. The shell form would give them to a shell."""
    command: list[str] = json.loads(value)
    return command


def test_every_instruction_is_one_that_there_is_and_root_is_left_before_the_command() -> None:
    names = [name for name, _ in instructions()]

    assert set(names) == set(KNOWN)
    assert int(value_of("USER")) > 0
    assert names.index("USER") < names.index("CMD")
    assert f"--uid {value_of('USER')} " in values_of("RUN")[1]
    assert f"--home-dir {value_of('VOLUME')} " in values_of("RUN")[1]
    assert value_of("ENV") == f"QO_URL=sqlite:///{value_of('VOLUME')}/qo.db"
    assert value_of("EXPOSE") == PORT


def test_the_image_has_a_python_that_qo_supports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = re.fullmatch(r"docker\.io/library/python:(3\.\d+)-slim", value_of("FROM"))

    assert version is not None
    assert f"Programming Language :: Python :: {version[1]}" in project["classifiers"]


def test_the_files_that_are_copied_are_enough_to_install_qo(tmp_path: Path) -> None:
    image = tmp_path / "image"
    for line in values_of("COPY"):
        *sources, target = line.split()
        for source in sources:
            place = image / target.lstrip("/")
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, place)
    pip, install, *options, wanted = shlex.split(values_of("RUN")[0])
    found = re.fullmatch(r"(/\w+)\[([\w,]+)\]", wanted)
    assert (pip, install, options) == ("pip", "install", ["--no-cache-dir"])
    assert found is not None
    extras = tomllib.loads((image / "src/pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"server", "redis"} <= set(found[2].split(",")) <= set(extras)

    # Without a network: what qo needs, and what builds it, is in the environment of the tests.
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    source = f"{image}{found[1]}"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, *offline, "--target", tmp_path / "installed", source],
        check=True,
        timeout=120,
    )
    version = subprocess.run(
        [sys.executable, "-m", "qo", "--version"],
        env=os.environ | {"PYTHONPATH": str(tmp_path / "installed")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert version.startswith("qo ")


def test_the_command_serves_once_there_is_a_key_and_the_health_check_notices(
    call: Callable[..., Call], start: Callable[..., Process]
) -> None:
    program, *arguments = command_of(value_of("CMD"))
    assert program == "qo"
    assert call(*arguments, "--port", "0").code == 2, "others can reach it, and there is no key"
    (run_it,) = [line for line in examples("sh", "Containers")[0].splitlines() if "keys create" in line]
    assert call(*run_it.partition(" qo qo ")[2].split()).code == 0

    server = start(*arguments, "--port", "0")
    port = server.until("qo is at").partition("http://0.0.0.0:")[2].split()[0]

    assert health_check(port) == 0
    server.signal(15)
    assert server.ends() == 0
    assert health_check(port) == 1


def health_check(port: str) -> int:
    """Its exit code, with the server at another port."""
    check = re.fullmatch(r"--interval=30s --timeout=5s --start-period=10s CMD (\[.+\])", value_of("HEALTHCHECK"))
    assert check is not None
    program, *arguments = command_of(check[1])
    assert program == "python"
    assert sum(f":{PORT}/" in argument for argument in arguments) == 1
    done = subprocess.run(
        [sys.executable, *(argument.replace(f":{PORT}/", f":{port}/") for argument in arguments)],
        capture_output=True,
        timeout=60,
    )
    return done.returncode


def test_the_page_and_the_file_build_it_by_the_same_command() -> None:
    command = "docker build -f docs/deploy/Containerfile -t qo ."

    assert command in examples("sh", "Containers")[0]
    assert command in (DEPLOY / "Containerfile").read_text()
