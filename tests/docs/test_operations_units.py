"""The units for systemd: their commands are run as they stand there; systemd reads them too where it is installed."""

from __future__ import annotations

import configparser
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from qo.meanings import WRONG_CALL
from qo.service.server import GRACE_SECONDS
from qo.settings import load_settings
from tests.docs.operations import DEPLOY, SECTIONS
from tests.processes import Process

INSTALLED = "/srv/qo/.venv/bin/qo"
STORE = "sqlite:////var/lib/qo/qo.db"
UNITS = {"qo-serve.service": "qo-serve.service", "qo-worker.service": "qo-worker@1.service"}
"""By file, the name of the unit that is started."""


def unit(file: str) -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(strict=True, interpolation=None, delimiters=["="], comment_prefixes=["#"])
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string((DEPLOY / file).read_text())
    return parsed


def command_of(file: str) -> list[str]:
    """Its command behind `qo`, as systemd would start the unit 1."""
    executable, *arguments = unit(file)["Service"]["ExecStart"].replace("%i", "1").split()
    assert executable == INSTALLED
    return arguments


@pytest.mark.parametrize("file", UNITS)
def test_a_unit_is_readable_and_systemd_finds_nothing_wrong_where_it_is_installed(file: str, tmp_path: Path) -> None:
    service = unit(file)["Service"]
    assert service["Environment"] == f"QO_URL={STORE}"
    assert STORE.removeprefix("sqlite:///").startswith(f"/var/lib/{service['StateDirectory']}/")
    assert service["WorkingDirectory"] == INSTALLED.partition("/.venv")[0]
    assert int(service["RestartPreventExitStatus"]) == WRONG_CALL

    if shutil.which("systemd-analyze"):
        (tmp_path / UNITS[file]).write_text((DEPLOY / file).read_text().replace(INSTALLED, sys.executable))
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", tmp_path / UNITS[file]], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_the_page_installs_the_units_under_the_names_that_they_are_made_for() -> None:
    for file, name in UNITS.items():
        template = name.replace("@1", "@")
        assert f"docs/deploy/{file} /etc/systemd/system/{template}" in SECTIONS["systemd"]
        assert name.removesuffix(".service") in SECTIONS["systemd"]
        assert f"/etc/systemd/system/{template}" in (DEPLOY / file).read_text()


def test_the_server_of_the_unit_answers_and_ends_in_its_time(start: Callable[..., Process]) -> None:
    server = start(*command_of("qo-serve.service"), "--port", "0")
    address = server.until("qo is at").partition("qo is at ")[2].split()[0]

    assert httpx.get(f"{address}/readyz", timeout=30).status_code == 200
    server.signal(signal.SIGTERM)
    assert server.ends() == 0
    assert int(unit("qo-serve.service")["Service"]["TimeoutStopSec"]) > GRACE_SECONDS


@pytest.mark.usefixtures("app")
def test_the_worker_of_the_unit_runs_and_is_given_its_grace(start: Callable[..., Process]) -> None:
    command = command_of("qo-worker.service")
    assert command[command.index("--metrics-port") + 1] == "9101"
    worker = start(*("0" if argument == "9101" else argument for argument in command))

    worker.until("the numbers of this worker are at")
    worker.until("runs")
    worker.signal(signal.SIGTERM)
    assert worker.ends() == 0
    assert int(unit("qo-worker.service")["Service"]["TimeoutStopSec"]) > load_settings({}, environ={}).worker.grace_secs
