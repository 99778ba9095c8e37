"""`qo --help`: its text, and that it imports little."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import click
import pytest

from qo.cli.main import COMMANDS, qo
from tests.cli.conftest import Call

HEAVY = {"apsw", "asyncio", "msgspec", "rich", "qo.settings", "qo.job", "qo.queue", "qo.store", "qo.policy"}
LISTS_MODULES = """
import sys
from qo.cli.main import main
sys.argv = ["qo", *sys.argv[1:]]
try:
    main()
finally:
    sys.stderr.write(" ".join(sys.modules))
"""


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, click.Command]]:
    context = click.Context(group)
    found: list[tuple[str, click.Command]] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
        else:
            found.append((" ".join((*path, name)), command))
    return found


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["nonsense"]])
def test_help_imports_no_command_and_nothing_heavy(arguments: list[str]) -> None:
    imported = subprocess.run(
        [sys.executable, "-c", LISTS_MODULES, *arguments], capture_output=True, text=True
    ).stderr.split()

    assert "qo.cli.main" in imported
    assert HEAVY.isdisjoint(imported)
    assert {place.partition(":")[0] for place, _ in COMMANDS.values()}.isdisjoint(imported)


def test_help_names_every_command_and_the_exit_codes(call: Callable[..., Call]) -> None:
    done = call("--help")

    assert done.code == 0
    assert all(f"\n  {name} " in done.out for name in COMMANDS)
    assert all(f"{code}  " in done.out for code in (0, 1, 2, 3, 130))


@pytest.mark.parametrize(("path", "command"), commands(qo))
def test_every_command_has_help_and_takes_the_common_options(path: str, command: click.Command) -> None:
    options = {option for parameter in command.params for option in parameter.opts}

    assert command.help
    assert {"--url", "--namespace", "--json"} <= options


def test_the_commands_of_the_specification_exist() -> None:
    wanted = ["init", "up", "serve", "worker", "apply", "submit", "jobs", "job", "why", "cancel", "retry", "confirm"]
    wanted += ["workers", "doctor", "usage", "tier", "audit", "history", "record", "bench", "completion"]
    wanted += [f"queue {name}" for name in ("list", "move", "pause", "resume", "priority")]
    wanted += [f"concurrency {name}" for name in ("status", "set", "remove", "release", "cleanup")]
    wanted += [f"keys {name}" for name in ("create", "list", "revoke", "rotate-watch")]

    assert {path for path, _ in commands(qo)} == set(wanted)


def test_python_can_run_it_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "qo", "--version"], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("qo ")
