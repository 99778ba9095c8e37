"""The examples of docs/how-to/tasks.md, processes.md, sentry.md and opentelemetry.md run as they stand there."""

from __future__ import annotations

import gzip
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.docs.examples import DOCS, examples_of
from tests.processes import Process

FOLDER = DOCS / "how-to"
RUN = """
import asyncio, sys, qo, app

async def main():
    async with await qo.connect("memory://") as queue:
        job = await queue.submit("build", "site", user="ada")
        await app.worker(queue).run_until_idle()
        print("job", job.id, file=sys.stderr)

asyncio.run(main())
"""


def write_files(page: str, folder: Path) -> None:
    examples_of(FOLDER / page).write_files(folder)


def test_the_tasks_of_a_module_run_in_one_process_and_are_submitted_in_another(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    write_files("tasks.md", tmp_path)
    page = (FOLDER / "tasks.md").read_text()
    assert "```\nqo worker shop.tasks\n```" in page

    start("worker", "shop.tasks").until("runs invoice")
    printed = subprocess.run(
        [sys.executable, "order.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )

    assert f"$ python order.py\n{printed.stdout}```" in page


def test_a_worker_function_runs_with_its_lifespan(
    start: Callable[..., Process], call: Callable[..., Call], tmp_path: Path
) -> None:
    write_files("tasks.md", tmp_path)

    start("worker", "shop.run:worker").until("runs fetch, invoice")
    with served(tmp_path, []) as port:
        done = call("submit", "fetch", f'"http://127.0.0.1:{port}/"', "--wait", "--json")

    assert done.json["result"] == 200


def test_the_function_of_the_page_runs_in_a_process(
    start: Callable[..., Process], call: Callable[..., Call], tmp_path: Path
) -> None:
    write_files("processes.md", tmp_path)
    (tmp_path / ".qo.toml").write_text((FOLDER / "processes.md").read_text().split("```toml\n")[1].split("```")[0])

    start("worker", "reports").until("runs count_primes")
    ended = call("submit", "count_primes", "5000", "--wait", "--json").json

    assert (ended["result"], ended["progress"]["done"]) == (669, 4000)


# --- recipes ----------------------------------------------------------------------------------------------------


class served:
    """A server on loopback that keeps what is sent to it."""

    def __init__(self, folder: Path, received: list[bytes]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()

            def do_POST(self) -> None:
                received.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.do_GET()

            def log_message(self, *args: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> int:
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return int(self._server.server_address[1])

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def run(folder: Path, **environment: str) -> tuple[str, str]:
    """Run the page's worker, and return what it printed and the id of its job."""
    printed = subprocess.run(
        [sys.executable, "-c", RUN], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return printed.stdout, printed.stderr.rpartition("job ")[2].strip()


@pytest.mark.nightly
def test_sentry_gets_each_error_once_with_the_id_of_its_job(tmp_path: Path) -> None:
    write_files("sentry.md", tmp_path)
    received: list[bytes] = []

    with served(tmp_path, received) as port:
        _, job_id = run(tmp_path, SENTRY_DSN=f"http://key@127.0.0.1:{port}/1")

    (event,) = events_in(received)
    assert event["exception"]["values"][0]["value"] == "site cannot be built"
    assert (event["transaction"], event["tags"]["qo.job"], event["tags"]["qo.attempt"]) == ("build", job_id, 1)


def events_in(envelopes: list[bytes]) -> Iterator[dict[str, Any]]:
    for envelope in envelopes:
        lines = [json.loads(line) for line in gzip.decompress(envelope).splitlines() if line.startswith(b"{")]
        for head, item in itertools.pairwise(lines):
            if head.get("type") == "event":
                yield item


@pytest.mark.nightly
def test_opentelemetry_gets_the_span_of_each_run_with_what_the_program_adds(tmp_path: Path) -> None:
    write_files("opentelemetry.md", tmp_path)

    printed, job_id = run(tmp_path)
    decoder, spans = json.JSONDecoder(), []
    while printed.strip():
        span, end = decoder.raw_decode(printed.lstrip())
        spans.append(span)
        printed = printed.lstrip()[end:]

    inside, handled = spans
    assert (inside["name"], handled["name"]) == ("write", "process build")
    assert inside["parent_id"] == handled["context"]["span_id"]
    assert (handled["attributes"]["messaging.message.id"], handled["attributes"]["app.user"]) == (job_id, "ada")
