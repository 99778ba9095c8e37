"""`qo worker` and `qo up`: the worker that they run, and how they end."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from qo.store.redis.server.client import PATIENCE_SECONDS
from tests.cli.conftest import Call
from tests.processes import Process, program
from tests.servers.redis import Server

HOLDING = """
import sys
import apsw
db = apsw.Connection(sys.argv[1])
db.execute("BEGIN IMMEDIATE")
print("holding", flush=True)
sys.stdin.readline()
db.execute("COMMIT")
"""

WRONG = [
    ("nonsense", "There is no module 'nonsense'"),
    ("app", "app has no functions under @qo.task; write app:worker"),
    ("app:", "write module:worker"),
    (":worker", "write module:worker"),
    ("missing:worker", "There is no module 'missing'"),
    ("app:missing", "app has no 'missing'. It has worker"),
    ("app:number", "app:number is 7, which makes no worker"),
    ("app:no_worker", "app:no_worker returned 7, not a qo.Worker"),
    ("app:wants_more", "cannot be called with the queue alone"),
    ("broken_app:worker", "broken_app cannot be imported: ModuleNotFoundError: No module named 'not_installed'"),
    ("half_app:worker", "half_app cannot be imported: SyntaxError"),
    ("early_app:worker", "takes the queue and returns the worker"),
]


@pytest.mark.parametrize(("reference", "hint"), WRONG)
def test_a_reference_to_something_else_is_an_error_that_shows_what_to_write(
    call: Callable[..., Call], app: Path, tmp_path: Path, reference: str, hint: str
) -> None:
    (tmp_path / "broken_app.py").write_text("import not_installed\n")
    (tmp_path / "half_app.py").write_text("def worker(queue\n")
    (tmp_path / "early_app.py").write_text(
        "import asyncio, qo\n"
        "async def make():\n"
        "    async with await qo.connect('memory://') as queue:\n"
        "        return qo.Worker(queue)\n"
        "worker = asyncio.run(make())\n"
    )

    done = call("worker", reference)

    assert done.code == 2
    assert hint in " ".join(done.err.split())


def test_up_shows_the_same_error_for_a_wrong_reference(call: Callable[..., Call]) -> None:
    done = call("up", ":worker")

    assert done.code == 2
    assert "write module:worker" in done.err


def test_a_module_without_a_worker_runs_the_tasks_in_it(
    call: Callable[..., Call], start: Callable[..., Process], tmp_path: Path
) -> None:
    """Those of all modules of a package, each once, however many modules import it."""
    (tmp_path / "shop" / "tasks").mkdir(parents=True)
    (tmp_path / "shop/tasks/__init__.py").write_text("from shop.tasks.mail import send\n")
    (tmp_path / "shop/tasks/mail.py").write_text("import qo\n@qo.task\nasync def send(data: str) -> str: return data\n")
    (tmp_path / "shop/tasks/pdf.py").write_text(
        "import os, qo\n@qo.task('render', process=True)\ndef pdf() -> bool: return os.getpid() == os.getsid(0)\n"
    )
    (tmp_path / "shop/tasks/__main__.py").write_text("raise SystemExit('a program was run')\n")

    start("worker", "shop.tasks").until("runs render, send")

    assert call("submit", "send", '"ada"', "--wait", "--json").json["result"] == "ada"
    assert call("submit", "render", "--wait", "--json").json["result"] is True


def test_the_function_that_makes_the_worker_may_be_async(
    call: Callable[..., Call], start: Callable[..., Process], app: Path
) -> None:
    start("worker", "app:worker_made_later").until("runs ask, broken, echo, slow, staged")

    assert call("submit", "echo", "7", "--wait", "--json").json["result"] == 7


def test_name_and_concurrency_of_the_call_win(
    call: Callable[..., Call], start: Callable[..., Process], app: Path, submit: Callable[..., str]
) -> None:
    for _ in range(2):
        submit("slow")
    process = start("worker", "app:worker", "--name", "solo", "--concurrency", "1")
    process.until("slow has begun")

    assert [job["worker"] for job in call("jobs", "--status", "running", "--json").json] in ([], ["solo"])
    assert "1 job in line, 1 running on 1 worker with a capacity of 1." in call("queue", "list").out


def test_with_json_the_log_of_a_worker_is_json_lines(
    call: Callable[..., Call], start: Callable[..., Process], app: Path
) -> None:
    process = start("worker", "app:worker", "--name", "w1", "--json")

    line = json.loads(process.until("runs"))

    assert (line["level"], line["message"]) == ("info", "worker w1 runs ask, broken, echo, slow, staged")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_worker_and_leaves_nothing_behind(
    worker: Process, left_behind: Callable[[], tuple[int, int]], number: signal.Signals
) -> None:
    worker.signal(number)

    assert worker.ends() == 0
    assert "worker w1 is gone" in worker.output()
    assert left_behind() == (0, 0)


@pytest.mark.parametrize("command", [("worker", "app:worker"), ("up", "app:worker")])
def test_a_second_signal_hands_running_jobs_back_at_once(
    call: Callable[..., Call],
    start: Callable[..., Process],
    app: Path,
    submit: Callable[..., str],
    left_behind: Callable[[], tuple[int, int]],
    command: tuple[str, str],
) -> None:
    job = submit("slow")
    process = start(*command)
    process.until("slow has begun")

    process.signal(signal.SIGINT)
    process.until("SIGINT: stopping")
    process.signal(signal.SIGINT)

    assert process.ends() == 0
    handed_back = call("job", job, "--json").json
    assert (handed_back["state"], handed_back["attempts"], handed_back["position"]) == ("queued", 0, 1)
    assert left_behind() == (0, 0)


def test_up_runs_an_application_for_the_time_given_with_for(
    call: Callable[..., Call],
    start: Callable[..., Process],
    app: Path,
    submit: Callable[..., str],
    left_behind: Callable[[], tuple[int, int]],
) -> None:
    job = submit("echo", "7")  # before it starts, because on a busy machine a submit takes longer than the time given

    process = start("up", "app:worker", "--for", "3", "--concurrency", "7")

    assert process.ends() == 0
    assert call("job", job, "--json").json["result"] == 7
    assert left_behind() == (0, 0)


@pytest.mark.parametrize(
    ("command", "longer_than_a_call"),
    [(("worker", "app:worker"), True), (("up", "app:worker"), False), (("up", "--demo"), False)],
)
def test_a_worker_waits_for_a_server_that_is_not_there_yet(
    start: Callable[..., Process], app: Path, command: tuple[str, str], longer_than_a_call: bool
) -> None:
    with Server("valkey") as server:
        server.kill()
        process = start(*command, "--url", server.url)
        process.until(f"Redis at 127.0.0.1:{server.port} cannot be used (Connection refused), trying again")
        time.sleep(PATIENCE_SECONDS + 2 if longer_than_a_call else 0)
        server.start()
        process.until("is back after")
        process.until("runs")
        process.signal(signal.SIGTERM)

        assert process.ends() == 0
        assert process.output().count("cannot be used") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("command", [("worker", "app:worker"), ("up", "--demo")])
def test_a_signal_ends_a_worker_that_waits_for_its_store(
    start: Callable[..., Process], app: Path, command: tuple[str, str], number: signal.Signals
) -> None:
    with Server("valkey") as server:
        server.kill()
        process = start(*command, "--url", server.url)
        process.until("cannot be used")
        began = time.monotonic()
        process.signal(number)

        assert process.ends() == 0
        assert time.monotonic() - began < 3
        assert "Traceback" not in process.output()


def test_a_worker_waits_for_a_process_that_is_stopped_inside_a_write(
    start: Callable[..., Process], app: Path, call: Callable[..., Call], submit: Callable[..., str], tmp_path: Path
) -> None:
    submit("echo")
    with Process(program(HOLDING, str(tmp_path / "qo.db"))) as holding:
        holding.until("holding")
        holding.freeze()
        process = start("worker", "app:worker")
        process.until(f"process {holding.pid} (python")
        holding.signal(signal.SIGCONT)
        holding.say("")
        holding.ends()
        process.until("can be used again after")
        process.until("echo")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("redis://127.0.0.1:{port}/99", "has no database 99"),
        ("redis://:wrong@127.0.0.1:{port}", "refused the login"),
        ("sqlite:///app.py", "cannot be opened"),
        ("sqlite:///nowhere/qo.db", "nowhere"),
    ],
)
def test_wrong_settings_end_a_worker_at_once(call: Callable[..., Call], app: Path, url: str, sentence: str) -> None:
    with Server("valkey") as server:
        done = call("worker", "app:worker", "--url", url.format(port=server.port))

    assert done.code == 3
    assert sentence in done.err
