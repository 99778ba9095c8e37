"""Every Python example of the pages is run, here or by a test of its own page."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.installed_command import COMMAND, environment
from tests.docs.examples import DOCS, ROOT, WITH_EXAMPLES, examples_of, name_of, run_program
from tests.processes import Process

PROGRAMS = ["README.md", "how-to/app-builder.md", "how-to/llm-gateway.md", "running.md", "semaphores.md"]
"""Pages whose blocks are one program that needs nothing else. tests/test_wheel.py runs the README's files."""
OTHER_QUEUE = re.compile(r"^```py\n# (\w+): [\w.]+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HERE = ["how-to/migrating.md", "how-to/testing.md", "how-to/web.md"]
ELSEWHERE = {
    "how-to/opentelemetry.md": "tests/docs/test_task_pages.py",
    "how-to/processes.md": "tests/docs/test_task_pages.py",
    "how-to/sentry.md": "tests/docs/test_task_pages.py",
    "how-to/tasks.md": "tests/docs/test_task_pages.py",
    "limits.md": "tests/docs/test_limits_page.py",
    "start/tutorial.md": "tests/docs/test_tutorial.py",
    "widget.md": "tests/service/widget/test_widget_page.py",
}


def test_the_examples_of_every_page_are_run_by_a_test() -> None:
    assert sorted(map(name_of, WITH_EXAMPLES)) == sorted([*PROGRAMS, *HERE, *ELSEWHERE])
    assert [file for file in ELSEWHERE.values() if not (ROOT / file).exists()] == []


@pytest.mark.parametrize("page", PROGRAMS)
async def test_a_program_prints_what_its_page_says(
    page: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("QO_URL", raising=False)

    path = ROOT / page if page == "README.md" else DOCS / page
    await run_program(path)

    assert capsys.readouterr().out.splitlines() == examples_of(path).promised


def python(folder: Path, *arguments: str, **variables: str) -> str:
    """Run Python in that folder, as a reader does who has installed qo."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_tests_of_the_page_on_testing_pass(tmp_path: Path) -> None:
    examples_of(DOCS / "how-to/testing.md").write_files(tmp_path)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )

    # Only the plugin that the page names: the others that are installed here take seconds to load.
    printed = python(tmp_path, "-m", "pytest", "-q", "-p", "pytest_asyncio.plugin", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")

    assert "6 passed" in printed


MIGRATED = {
    ("mails", "signup"): "ada@example.com is on news",
    ("thumbnails", "upload"): "a.png is 64 wide",
    ("fetching", "crawl"): "example.com is fetched by qo",
    ("invoices", "checkout"): "7 is printed",
}
"""The module with the tasks, the program that submits, and what it prints."""


@pytest.mark.parametrize(("tasks", "program"), MIGRATED)
def test_each_program_of_the_page_on_migrating_runs_in_two_processes(tasks: str, program: str, tmp_path: Path) -> None:
    page = examples_of(DOCS / "how-to/migrating.md")
    page.write_files(tmp_path)
    assert set(page.files) == {f"{name}.py" for names in MIGRATED for name in names}
    with Process(
        [COMMAND, "worker", f"{tasks}:worker"], cwd=tmp_path, env=environment(), stderr=subprocess.STDOUT
    ) as worker:
        worker.until(" runs ")

        assert python(tmp_path, f"{program}.py") == f"{MIGRATED[tasks, program]}\n"


def test_the_programs_for_other_queues_on_the_page_on_migrating_can_be_parsed() -> None:
    blocks = OTHER_QUEUE.findall((DOCS / "how-to/migrating.md").read_text())

    assert {queue for queue, _ in blocks} == {"Celery", "RQ", "arq", "Dramatiq"}
    for _, text in blocks:
        ast.parse(text)


CALLS = """
import time
import django
from django.conf import settings
settings.configure(
    ROOT_URLCONF="urls",
    SECRET_KEY="x",
    ALLOWED_HOSTS=["testserver"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "django.db"}},
)
django.setup()
import fast, flasky
from django.test import Client
from starlette.testclient import TestClient

def show_result(read):
    deadline = time.monotonic() + 60
    while (answer := read())["status"] != "succeeded":
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    print(answer["result"])

client = Client()
print(client.get("/submit", {"path": "a.png", "id": "one"}).json())
show_result(lambda: client.get("/read/one").json())
print(client.get("/read/two").status_code)

client = flasky.app.test_client()
made = client.post("/thumbnails/b.png").json
print(made["message"])
show_result(lambda: client.get(f"/thumbnails/{made['id']}").json)
print(client.get("/thumbnails/none").status_code)

with TestClient(fast.app) as client:
    made = client.post("/thumbnails", params={"path": "c.png"}).json()
    print(made["message"])
    show_result(lambda: client.get(f"/thumbnails/{made['id']}").json())
    print(client.get("/thumbnails/none").status_code)
"""
"""Django, Flask and FastAPI in one process, because each start takes seconds."""
URLS = """
import views
from django.urls import path
urlpatterns = [path("submit", views.submit), path("read/<job_id>", views.read)]
"""
FIRST = "You are #1 in queue. Your position may change as priority jobs are added\n"


def test_the_applications_of_the_page_on_web_frameworks_submit_to_a_worker(tmp_path: Path) -> None:
    examples_of(DOCS / "how-to/web.md").write_files(tmp_path)
    (tmp_path / "urls.py").write_text(URLS)
    with Process(
        [COMMAND, "worker", "app:worker"], cwd=tmp_path, env=environment(), stderr=subprocess.STDOUT
    ) as worker:
        worker.until("runs thumbnail")

        printed = python(tmp_path, "-c", CALLS)
        assert printed == "{'id': 'one'}\na-small.png\n404\n" + "".join(
            f"{FIRST}{name}-small.png\n404\n" for name in ("b", "c")
        )
        assert python(tmp_path, "script.py", "b.png", "c.png") == "b-small.png\nc-small.png\n"
