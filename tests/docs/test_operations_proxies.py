"""The examples for nginx and Caddy are run as they stand, in front of a real `qo serve` with the page's settings."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest

from tests.cli.installed_command import COMMAND, environment
from tests.docs.operations import toml_in
from tests.processes import Process
from tests.servers.proxy import Caddy, Nginx, Proxy

KINDS: dict[str, type[Proxy]] = {
    "nginx.conf": Nginx,
    "Caddyfile": Caddy,
    "nginx-prefix.conf": Nginx,
    "Caddyfile.prefix": Caddy,
}
WITHIN_SECONDS = 10.0
"""Far below the 15 seconds of a heartbeat, which would push buffered events out."""
NAMES = ["a/b", "x/why", "%", "é", "a b?c#d", ".."]


class Front:
    """A proxy with the service behind it, and a client on the outside."""

    def __init__(self, proxy: Proxy, *, example: str, public_url: str, folder: Path) -> None:
        self.proxy = proxy
        self.example = example
        self.public_url = public_url
        self.folder = folder
        parts = urlsplit(public_url)
        self.host, self.prefix = parts.netloc, parts.path
        self.key = ""

    def client(self, *, address: str = "127.0.0.1", key: str | None = None) -> httpx.Client:
        """A client at this address of the machine. It knows the host by its name, as the world does."""

        def to_this_machine(request: httpx.Request) -> None:
            request.extensions["sni_hostname"] = self.host

        headers = {"Host": self.host} | ({"Authorization": f"Bearer {key}"} if key else {})
        return httpx.Client(
            base_url=f"https://127.0.0.1:{self.proxy.port}{self.prefix}",
            headers=headers,
            transport=httpx.HTTPTransport(verify=self.proxy.trusting(), local_address=address),
            event_hooks={"request": [to_this_machine]},
            timeout=WITHIN_SECONDS,
        )

    def qo(self, *arguments: str) -> str:
        done = subprocess.run(
            [COMMAND, *arguments], cwd=self.folder, env=environment(), capture_output=True, text=True, check=True
        )
        return done.stdout.strip()


@pytest.fixture(scope="module", params=list(KINDS))
def front(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """The proxy in front of a server with the page's settings, and an admin's key. Before that is made, nothing is
    served through a proxy."""
    folder = tmp_path_factory.mktemp("front")
    settings = toml_in("Behind a proxy")
    if "prefix" in request.param:
        settings = settings.replace("https://qo.example.com", "https://example.com/queue")
        settings = settings.replace('"qo.example.com"', '"example.com"')
    (folder / ".qo.toml").write_text(settings)
    (public_url,) = re.findall(r'public_url = "(.+)"', settings)
    with ExitStack() as until_the_end:
        serve = Process([COMMAND, "serve", "--port", "0"], cwd=folder, env=environment(), stderr=subprocess.STDOUT)
        server = until_the_end.enter_context(serve)
        upstream = server.until("qo is at").partition("http://")[2].split()[0]
        proxy = until_the_end.enter_context(KINDS[request.param](request.param, upstream=upstream))
        made = Front(proxy, example=request.param, public_url=public_url, folder=folder)
        with made.client() as client:
            refused = client.get("/api/jobs")
            assert refused.status_code == 403
            assert "proxy" in refused.json()["detail"]
        made.key = made.qo("keys", "create", "--role", "admin")
        yield made


@pytest.fixture
def client(front: Front) -> Iterator[httpx.Client]:
    with front.client(key=front.key) as client:
        yield client


def submitted(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = client.post("/api/jobs", json={"task": "build", **fields})
    assert answer.status_code in (200, 201), answer.text
    job: dict[str, Any] = answer.json()
    return job


def test_events_come_through_at_once(front: Front, client: httpx.Client) -> None:
    job = submitted(client)
    with client.stream("GET", f"/api/jobs/{job['id']}/stream") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: connected"

        with front.client(key=front.key) as other:
            other.post(f"/api/jobs/{job['id']}/cancel", json={}).raise_for_status()

        # A buffered event does not come before the timeout of the client, which raises.
        assert any('"cancelled"' in line for line in lines)


def test_the_events_of_a_watch_link_come_through_at_once(front: Front, client: httpx.Client) -> None:
    job = submitted(client)
    assert job["watch_url"].startswith(f"{front.public_url}/watch/")
    path = job["watch_url"].removeprefix(front.public_url)
    with front.client() as stranger:
        assert "in queue" in stranger.get(path).text
        with stranger.stream("GET", path, headers={"Accept": "text/event-stream"}) as stream:
            assert next(stream.iter_lines()) == "event: connected"


def test_the_address_of_a_caller_is_that_of_the_client_whatever_it_says(front: Front) -> None:
    """Wrong keys are counted by address: more than ten from one get 429, and others are not touched."""
    guesser, neighbour = "127.0.0.2", "127.0.0.3"
    with front.client(address=guesser, key="qo_no_key") as client:
        answers = [
            client.get("/api/jobs", headers={"X-Forwarded-For": f"203.0.113.{number}"}).status_code
            for number in range(12)
        ]
    assert answers == [401] * 10 + [429] * 2

    with front.client(address=neighbour, key="qo_no_key") as client:
        assert client.get("/api/jobs", headers={"X-Forwarded-For": guesser}).status_code == 401


def test_names_come_through_as_they_were_encoded(front: Front, client: httpx.Client) -> None:
    for name in NAMES:
        submitted(client, id=name)
        encoded = quote(name, safe="").replace(".", "%2E")  # clients drop a plain `..` before they send it
        if name == ".." and front.example == "Caddyfile.prefix":
            encoded = "..%09"  # Caddy cleans a path from which it takes a prefix; the example says so

        assert client.get(f"/api/jobs/{encoded}").json()["id"] == name
        assert "sentence" in client.get(f"/api/jobs/{encoded}/why").json()


def test_a_list_larger_than_a_mebibyte_comes_through(client: httpx.Client) -> None:
    jobs = [{"task": "build", "data": "x" * 900_000} for _ in range(3)]

    answer = client.post("/api/jobs", json=jobs)

    assert answer.status_code == 200
    assert [job["state"] for job in answer.json()] == ["queued"] * 3


def test_a_browser_signs_in_and_changes_something(front: Front) -> None:
    with front.client() as browser:
        browser.headers["Origin"] = f"https://{front.host}"
        signed_in = browser.post("/api/session", json={"key": front.key})

        cookie = signed_in.headers["set-cookie"]
        assert cookie.startswith("__Secure-qo=" if front.prefix else "__Host-qo=")
        assert f"Path={front.prefix or '/'};" in cookie
        assert "Secure" in cookie
        # httpx keeps it for 127.0.0.1 otherwise, and `__Host-` cookies need the host's name.
        browser.headers["Cookie"] = cookie.partition(";")[0]
        changed = browser.post("/api/queue/pause", json={"group": "gpu"}, headers={"X-Qo-Csrf": "1"})
        assert changed.status_code == 200, changed.text


def test_http_2_is_offered(front: Front) -> None:
    assert front.proxy.protocol_with(["h2", "http/1.1"]) == "h2"


@pytest.mark.parametrize("front", ["nginx.conf", "Caddyfile"], indirect=True)
def test_plain_http_leads_to_https(front: Front) -> None:
    answer = httpx.get(f"http://127.0.0.1:{front.proxy.http_port}/docs", headers={"Host": front.host})

    assert answer.status_code == 308
    assert answer.headers["location"].startswith(f"https://{front.host}")
