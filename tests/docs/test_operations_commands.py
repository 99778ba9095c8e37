"""The commands of docs/operations.md are commands of qo, and do what the page says."""

from __future__ import annotations

import re
from collections.abc import Callable

import httpx
import pytest
from click.testing import CliRunner

from qo.cli.main import qo
from qo.service.stream.watchers import KEPT_FOR_KEYS, MOST_OF_AN_ADDRESS, MOST_STREAMS
from tests.cli.conftest import Call
from tests.docs.operations import DEPLOY, PAGE, SECTIONS, examples
from tests.processes import Process

KEYS = examples("sh", "Keys")[0].splitlines()
NAMED = re.compile(r"`(?:\$ )?(qo [a-z][^`]*)`")
IN_DEPLOY = re.compile(r"\]\(deploy/([\w.-]+)\)")


def arguments_of(line: str) -> list[str]:
    program, *arguments = line.split()
    assert program == "qo"
    return arguments


def address_of(server: Process) -> str:
    return server.until("qo is at").partition("qo is at ")[2].split()[0]


def status_with(key: str, url: str) -> int:
    return httpx.get(f"{url}/api/jobs", headers={"Authorization": f"Bearer {key}"}, timeout=30).status_code


def test_every_example_file_is_on_the_page_and_every_one_on_the_page_is_there() -> None:
    assert set(IN_DEPLOY.findall(PAGE)) == {file.name for file in DEPLOY.iterdir()}


@pytest.mark.parametrize("line", sorted({found.replace("ID", "one") for found in NAMED.findall(PAGE)}))
def test_a_command_that_the_text_names_exists(line: str) -> None:
    asked = CliRunner().invoke(qo, [*arguments_of(line), "--help"])

    assert asked.exit_code == 0, asked.output


def test_a_key_is_rotated_without_a_gap_and_then_revoked(
    call: Callable[..., Call], start: Callable[..., Process]
) -> None:
    *creating, listing = KEYS
    keys = [call(*arguments_of(line)) for line in creating]
    assert [key.code for key in keys] == [0] * len(creating)
    shown = call(*arguments_of(listing)).out
    assert all(role in shown for role in ("admin", "viewer", "user", "u1", "p1"))
    old, new = keys[0].out.strip(), call(*arguments_of(creating[0])).out.strip()
    in_between = address_of(start("serve", "--port", "0"))

    assert [status_with(key, in_between) for key in (old, new)] == [200, 200]
    assert call("keys", "revoke", old.split("_")[1]).code == 0
    # At a new server: that the others follow within 5 seconds is shown by tests/service/access.
    afterwards = address_of(start("serve", "--port", "0"))
    assert [status_with(key, afterwards) for key in (old, new)] == [401, 200]


def test_two_namespaces_are_two_servers_and_a_key_of_one_is_unknown_to_the_other(
    call: Callable[..., Call], start: Callable[..., Process]
) -> None:
    urls, keys = [], []
    for line in examples("sh", "What runs where")[0].splitlines():
        command = re.sub(r"--port \d+", "--port 0", line)
        namespace = command.split()[3]
        keys.append(call("keys", "create", "--role", "admin", "--namespace", namespace).out.strip())
        urls.append(address_of(start(*arguments_of(command))))

    assert [status_with(key, url) for url in urls for key in keys] == [200, 401, 401, 200]


def test_doctor_exits_as_the_page_says(call: Callable[..., Call], submit: Callable[..., str]) -> None:
    assert call("doctor").code == 3
    assert call("keys", "create", "--role", "admin").code == 0
    assert call("doctor").code == 0
    submit("build")
    assert call("doctor").code == 1
    assert call("doctor", env={"QO_SERVER__PORT": "none"}).code == 2


def test_the_numbers_of_the_page_are_those_of_the_service() -> None:
    assert f"at most {MOST_STREAMS:,} open streams, of which {KEPT_FOR_KEYS} are kept" in SECTIONS["Sizing"]
    assert f"{MOST_OF_AN_ADDRESS} streams of watch links from an address" in SECTIONS["Sizing"]
