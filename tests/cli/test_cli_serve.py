"""`qo serve` as a user starts it: a process that listens, answers and ends."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Callable
from typing import Any

import httpx

from tests.cli.conftest import Call
from tests.processes import Process
from tests.servers.redis import Server

ADDRESS = re.compile(r"qo is at (http://\S+)")
CLIENTS_WAIT = 10
"""seconds"""


def address_of(server: Process) -> str:
    line = server.until("qo is at")
    found = ADDRESS.search(line)
    assert found is not None, line
    return found[1]


def test_it_serves_the_queue_of_the_folder_until_sigterm(
    start: Callable[..., Process], call: Callable[..., Call]
) -> None:
    server = start("serve", "--port", "0")
    url = address_of(server)
    made: dict[str, Any] = httpx.post(f"{url}/api/jobs", json={"task": "echo", "id": "one"}, timeout=30).json()

    assert made["position"] == 1
    assert '"one"' in call("jobs", "--json").out
    server.signal(signal.SIGTERM)
    assert server.ends() == 0
    assert "Traceback" not in server.output()


def test_a_taken_port_is_one_sentence(start: Callable[..., Process], call: Callable[..., Call]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        refused = call("serve", "--port", str(port))

    assert refused.code == 1
    assert f"Port {port} of 127.0.0.1 is taken" in refused.err


def test_an_address_that_others_can_reach_needs_a_key(call: Callable[..., Call]) -> None:
    refused = call("serve", "--host", "0.0.0.0", "--port", "0")

    assert refused.code == 2
    assert "qo keys create" in refused.err


def test_a_request_is_answered_while_the_store_is_away_before_its_client_gives_up(
    start: Callable[..., Process],
) -> None:
    with Server("valkey") as store:
        server = start("serve", "--port", "0", "--url", store.url)
        url = address_of(server)
        store.stop()

        # With a key, which is looked up before the job is read.
        refused = httpx.get(f"{url}/api/jobs", headers={"Authorization": "Bearer qo_none_none"}, timeout=CLIENTS_WAIT)

    assert refused.status_code == 503
    assert refused.headers["content-type"] == "application/problem+json"
