"""The tutorial, step by step: its files in an empty folder, its worker and its API as processes, and a real browser."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from qo.settings import load_settings
from tests.browser import chromium
from tests.cli.installed_command import COMMAND, environment
from tests.docs.examples import DOCS, examples_of
from tests.processes import Process
from tests.servers.redis import shared_server

PAGE = DOCS / "start/tutorial.md"
TEXT = PAGE.read_text()
TOML = "\n".join(re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL))
(HTML,) = re.findall(r"```html\n(.*?)```", TEXT, re.DOTALL)
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
A_PART = "await asyncio.sleep(1)"
BY_HAND = """qo submit ask '{"prompt": "Why?", "provider": "ollama"}' --wait"""


@pytest.fixture(params=["sqlite", "valkey"])
def variables(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment of every terminal: nothing at first, and in section 6 the url of a server."""
    if request.param == "sqlite":
        return environment()
    return environment(QO_URL=shared_server("valkey").url, QO_STORE__NAMESPACE=f"tutorial-{secrets.token_hex(6)}")


@pytest.fixture
def api(tmp_path: Path, variables: dict[str, str]) -> Iterator[str]:
    """The address of the API, with a worker beside it."""
    files = examples_of(PAGE).files
    assert A_PART in files["app.py"]
    files["app.py"] = files["app.py"].replace(A_PART, "await asyncio.sleep(0.05)")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "index.html").write_text(HTML)
    assert "qo worker app:worker" in COMMANDS
    assert "uvicorn api:api" in COMMANDS
    with ExitStack() as until_the_end:

        def start(*command: str | Path) -> Process:
            started = Process(command, cwd=tmp_path, env=variables, stderr=subprocess.STDOUT)
            return until_the_end.enter_context(started)

        start(COMMAND, "worker", "app:worker").until("runs ask")
        server = start(sys.executable, "-m", "uvicorn", "api:api", "--port", "0")
        yield server.until("running on").partition("running on ")[2].split()[0]


def qo(folder: Path, variables: dict[str, str], *arguments: str) -> str:
    done = subprocess.run([COMMAND, *arguments], cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def test_the_application_shows_places_progress_and_answers(
    api: str, tmp_path: Path, variables: dict[str, str]
) -> None:
    assert BY_HAND in COMMANDS
    assert "because" in qo(tmp_path, variables, "submit", "ask", '{"prompt": "Why?", "provider": "ollama"}', "--wait")

    async with httpx.AsyncClient(base_url=api, timeout=60) as client:
        asked = [(await client.post("/ask", params={"user": "ben", "prompt": "Why?"})).json() for _ in range(6)]
        assert asked[0]["message"].startswith("You are #1 in queue")
        assert [each["jobs_left_today"] for each in asked] == [4, 3, 2, 1, 0, 0]
        assert asked[5]["message"] == "Scheduled for tomorrow"

        lines = (await client.get(f"/jobs/{asked[4]['id']}/events")).text.splitlines()
        assert any("5 of 5 parts" in line for line in lines)
        assert any("ollama says: because." in line for line in lines)
        assert (await client.get(f"/jobs/{asked[4]['id']}")).json()["state"] == "succeeded"


@pytest.mark.parametrize("variables", ["sqlite"], indirect=True)  # a browser sees no difference between stores
async def test_the_page_of_the_application_follows_a_job_until_its_answer(api: str) -> None:
    async with chromium() as browser:
        page = await browser.new_page()
        await page.goto(api)
        await page.get_by_role("button", name="Ask").click()

        await page.get_by_text("ollama says: because.").wait_for(timeout=60_000)


def test_the_settings_of_the_tutorial_are_valid_together() -> None:
    import tomllib

    settings = load_settings(tomllib.loads(TOML), environ={})

    assert settings.tiers["bootstrapper"].jobs_per_day == 20
    assert settings.concurrency.limits["provider:ollama"] == 2
