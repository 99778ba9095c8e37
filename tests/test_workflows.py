"""The workflows and the hooks run what the Makefile runs, on the Python versions that the package names."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGET = re.compile(r"^([a-z]+):", re.MULTILINE)
CLASSIFIER = re.compile(r"Programming Language :: Python :: (3\.\d+)")


def workflow(name: str) -> dict[Any, Any]:
    parsed: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())
    return parsed


def steps_of(parsed: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in parsed["jobs"].values() for step in job["steps"]]


def make_commands(parsed: dict[Any, Any]) -> list[str]:
    return [step["run"] for step in steps_of(parsed) if step.get("run", "").startswith("make ")]


def named_versions() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [found[1] for line in project["classifiers"] if (found := CLASSIFIER.fullmatch(line))]


def test_the_gate_runs_on_every_python_version_that_the_classifiers_name() -> None:
    gate = workflow("gate.yml")

    assert len(named_versions()) >= 3
    assert gate["jobs"]["test"]["strategy"]["matrix"]["python"] == named_versions()
    assert "make test PYTHON=python${{ matrix.python }}" in make_commands(gate)


def test_the_makefile_and_the_checkers_know_the_same_versions() -> None:
    versions = named_versions()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert settings["project"]["requires-python"] == f">={versions[0]}"
    assert settings["tool"]["pyright"]["pythonVersion"] == versions[0]
    newest_first = [f"python{version}" for version in reversed(versions)]
    assert f"PYTHON ?= {' '.join(newest_first)} python3 python\n" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_targets_of_the_makefile_and_may_only_read(path: Path) -> None:
    parsed = workflow(path.name)
    targets = set(TARGET.findall((ROOT / "Makefile").read_text()))

    commands = make_commands(parsed)

    assert commands
    assert {command.split()[1] for command in commands} <= targets
    assert parsed["permissions"] == {"contents": "read"}


def test_the_nightly_is_scheduled_and_keeps_its_records() -> None:
    nightly = workflow("nightly.yml")

    triggers = nightly[True]  # YAML 1.1 reads the key `on` as a boolean
    assert triggers["schedule"]
    assert {"make nightly", "make coverage", "make pyright"} <= set(make_commands(nightly))
    (upload,) = [step for step in steps_of(nightly) if "upload-artifact" in step.get("uses", "")]
    assert upload["if"] == "always()"
    assert upload["with"]["path"] == ".nightly"


def test_the_hooks_are_the_commands_of_make_check() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    # As if nothing had called this make: under another one it says so in its output.
    alone = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    command = ["make", "--dry-run", "check"]
    shown = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, check=True)

    # A hook gets the changed files and mends their format; `make check` looks at all and changes nothing.
    in_check = [line.removesuffix(" .").removesuffix(" --check") for line in shown.stdout.splitlines()]
    in_hooks = [hook["entry"].removesuffix(" --force-exclude") for hook in hooks]
    assert in_hooks == in_check
