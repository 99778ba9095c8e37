"""The names under which a server answers."""

from __future__ import annotations

import pytest

from qo.service.access.gate import Gate
from qo.service.access.keys import Keys
from qo.service.access.refused import Refused
from tests.service.access.gate.asking import MakeGate, bearer, status
from tests.service.access.requests import request

HOSTS = [
    ("localhost", 200),
    ("localhost:8765", 200),
    ("LOCALHOST", 200),
    ("127.0.0.1", 200),
    ("127.0.0.1:9000", 200),
    ("192.0.2.7", 200),
    ("[::1]", 200),
    ("[::1]:8765", 200),
    ("[2001:DB8::1]", 200),
    ("qo.example.com", 200),
    ("QO.Example.com:443", 200),
    ("evil.example", 421),
    ("localhost.evil.example", 421),
    ("qo.example.com.evil.example", 421),
    ("xqo.example.com", 421),
    ("sub.qo.example.com", 421),
    ("127.0.0.1.evil.example", 421),
    ("2130706433", 421),
    ("localhost:", 421),
    ("localhost:http", 421),
    ("localhost@evil.example", 421),
    ("evil.example@localhost", 421),
    ("evil.example/localhost", 421),
    ("localhost evil.example", 421),
    ("[evil.example]", 421),
    ("[::1", 421),
    ("::1", 421),
    ("", 421),
    (None, 421),
]


@pytest.mark.parametrize(("host", "expected"), HOSTS)
async def test_a_request_for_another_host_is_misdirected(
    make_gate: MakeGate, keys: Keys, host: str | None, expected: int
) -> None:
    gate = make_gate(hosts=("Qo.example.com",))

    without_keys = await status(gate, host=host)
    made = await keys.create("admin")

    assert without_keys == expected
    assert await status(gate, host=host, headers=bearer(made)) == expected
    assert await status(gate, host=host) == (401 if expected == 200 else 421)


async def test_two_host_headers_are_refused(gate: Gate) -> None:
    assert await status(gate, headers={"Host": "evil.example"}) == 421


async def test_the_name_in_public_url_has_to_be_among_the_hosts(make_gate: MakeGate) -> None:
    gate = make_gate(public_url="https://qo.example.com")

    assert await status(gate, host="qo.example.com") == 421


@pytest.mark.parametrize("host", ["evil.example", "", None])
@pytest.mark.parametrize(
    ("path", "root_path", "is_refused"),
    [
        ("/healthz", "", False),
        ("/queue/healthz", "/queue", False),
        ("/readyz", "", True),
        ("/healthz/x", "", True),
        ("/jobs/healthz", "", True),
    ],
)
def test_the_health_of_the_process_is_told_under_any_name(
    gate: Gate, host: str | None, path: str, root_path: str, is_refused: bool
) -> None:
    try:
        gate.check_host(request(path=path, root_path=root_path, host=host))
        refused = False
    except Refused:
        refused = True

    assert refused is is_refused
