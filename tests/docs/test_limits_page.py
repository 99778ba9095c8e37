"""Every Python example of docs/limits.md is run as it stands there, and prints what it says."""

from __future__ import annotations

import ast
import asyncio
import http.client
import inspect
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import prometheus_client
import pytest

from qo.settings import find_settings_file, load_settings
from tests.servers.bucket import shared_bucket_server
from tests.servers.redis import shared_server

PAGE = (Path(__file__).parents[2] / "docs/limits.md").read_text()
SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
TOML = re.compile(r"```toml\n(.*?)```", re.DOTALL)
PRINTS = re.compile(r"  # prints: (.*)")
SCRIPT = "# ask.py\n"
BUCKET = "team-limits"

EXAMPLES = {title: blocks for title, text in SECTION.findall(PAGE) if (blocks := BLOCK.findall(text))}
"""by section; what stands in one section goes on where the section's last block ended"""

MY_APP = """
import asyncio, os, time

def _note(change):
    with open(os.environ["MODEL_LOG"], "a") as log:
        log.write(f"{time.monotonic_ns()} {change}\\n")

def ask_model(prompt):
    _note(1)
    time.sleep(0.02)
    _note(-1)
    return "because"

async def ask_model_async(prompt):
    _note(1)
    await asyncio.sleep(0.02)
    _note(-1)
    return "because"
"""


@pytest.fixture(autouse=True)
def my_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of its own with the reader's module, which notes each call of the model."""
    (tmp_path / "my_app.py").write_text(MY_APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MODEL_LOG", str(tmp_path / "calls"))
    monkeypatch.delenv("QO_URL", raising=False)
    # One of the same kind: that of the process would keep the page's collector after the test.
    monkeypatch.setattr(prometheus_client, "REGISTRY", prometheus_client.CollectorRegistry(auto_describe=True))
    yield
    sys.modules.pop("my_app", None)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bucket of the page, empty, as its environment variables lead to it."""
    server = shared_bucket_server()
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("PUT", f"/{BUCKET}")
    assert connection.getresponse().status in (200, 409)
    connection.close()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


def calls_at_once(folder: Path) -> int:
    noted = sorted((int(at), int(change)) for at, change in map(str.split, (folder / "calls").read_text().splitlines()))
    inside = most = 0
    for _, change in noted:
        inside += change
        most = max(most, inside)
    assert inside == 0
    return most


async def run(section: str, namespace: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run a section from its first block to its last, as in `python -m asyncio`."""
    namespace = {"__name__": "example"} if namespace is None else namespace
    for block in EXAMPLES[section]:
        code = compile(block, "docs/limits.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        running = eval(code, namespace)
        if inspect.isawaitable(running):
            await asyncio.wait_for(running, 60)
    return namespace


def promised(section: str) -> list[str]:
    return [line for block in EXAMPLES[section] for line in PRINTS.findall(block)]


IN_PROCESS = ["Two minutes", "From the environment", "Waiting", "Groups of your own", "Changing limits", "Metrics"]
ON_A_STORE = ["On a queue"]
ON_A_BUCKET = ["Several machines", "ConcurrencyManager", "Workers with a queue each, one quota"]
BY_THEMSELVES = ["Several processes", "FastAPI"]


def test_every_example_is_run_by_one_of_these_tests() -> None:
    assert sorted(EXAMPLES) == sorted([*IN_PROCESS, *ON_A_STORE, *ON_A_BUCKET, *BY_THEMSELVES])


async def test_the_examples_in_process_print_what_they_say(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, as they are read: later ones use names of earlier ones."""
    for provider in ("OLLAMA", "GEMINI", "OPENAI", "DEEPSEEK", "GLOBAL"):
        monkeypatch.delenv(f"LLM_MAX_CONCURRENCY_{provider}", raising=False)
    namespace: dict[str, Any] = {"__name__": "example"}
    for section in IN_PROCESS:
        await run(section, namespace)

        assert capsys.readouterr().out.splitlines() == promised(section)

    assert calls_at_once(tmp_path) == 4


@pytest.mark.parametrize("store", ["sqlite", "valkey"])
async def test_the_examples_on_a_queue_print_what_they_say(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    if store == "valkey":
        monkeypatch.setenv("QO_URL", shared_server("valkey").url)
        monkeypatch.setenv("QO_STORE__NAMESPACE", f"page-{secrets.token_hex(6)}")
    await run("On a queue")

    assert capsys.readouterr().out.splitlines() == promised("On a queue")


@pytest.mark.parametrize("store", ["sqlite", "valkey"])
def test_three_processes_of_the_example_never_make_more_than_four_calls_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    if store == "valkey":
        monkeypatch.setenv("QO_URL", shared_server("valkey").url)
        monkeypatch.setenv("QO_STORE__NAMESPACE", f"page-{secrets.token_hex(6)}")
    (script,) = EXAMPLES["Several processes"]
    assert script.startswith(SCRIPT)
    (tmp_path / "ask.py").write_text(script)

    started = [subprocess.Popen([sys.executable, "ask.py"], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    ended = [(process.communicate(timeout=60)[0], process.returncode) for process in started]

    assert ended == [("30\n", 0)] * 3
    assert calls_at_once(tmp_path) == 4


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize("section", ["Several machines", "ConcurrencyManager"])
async def test_the_examples_on_a_bucket_print_what_they_say(capsys: pytest.CaptureFixture[str], section: str) -> None:
    await run(section)

    assert capsys.readouterr().out.splitlines() == promised(section)


@pytest.mark.usefixtures("bucket")
async def test_the_example_of_a_shared_quota_runs_with_the_settings_beside_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    section = "Workers with a queue each, one quota"
    (settings,) = TOML.findall(dict(SECTION.findall(PAGE))[section])
    (tmp_path / ".qo.toml").write_text(settings)
    assert find_settings_file(tmp_path) == tmp_path / ".qo.toml"
    assert load_settings().concurrency.store == "s3://team-limits/llm"

    await run(section)

    assert capsys.readouterr().out.splitlines() == promised(section)


async def get(app: Any, paths: list[str]) -> list[httpx.Response]:
    """All of them at once, from an application that is up."""
    transport = httpx.ASGITransport(app=app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        return await asyncio.wait_for(asyncio.gather(*(http.get(path, timeout=60) for path in paths)), 60)


async def test_the_fastapi_example_answers_everybody_and_keeps_the_limit_in_tasks_and_threads(tmp_path: Path) -> None:
    app = (await run("FastAPI"))["app"]

    answers = await get(app, ["/ask?prompt=why", "/ask-in-a-thread?prompt=why"] * 12)

    assert {(answer.status_code, answer.json()["answer"]) for answer in answers} == {(200, "because")}
    assert calls_at_once(tmp_path) == 4


async def test_the_fastapi_example_says_when_it_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_MAX_CONCURRENCY_OLLAMA", "0")
    app = (await run("FastAPI"))["app"]

    asynchronous, plain, metrics = await get(app, ["/ask?prompt=why", "/ask-in-a-thread?prompt=why", "/metrics.json"])

    for answer in (asynchronous, plain):
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert "provider 'ollama'" in answer.json()["error"]
    assert metrics.json()["limits"]["ollama"] == 0
