"""`qo worker` and `qo up`: what they run, and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from servers import Server

from qo.store.redis.client import PATIENCE_SECONDS

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
    ("nonsense", "write module:worker"),
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
def test_what_is_no_worker_is_told_what_one_is(call, app, tmp_path, reference, hint):
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


def test_up_says_the_same_of_what_is_no_worker(call):
    done = call("up", "nonsense")

    assert done.code == 2
    assert "write module:worker" in done.err


def test_the_function_that_makes_the_worker_may_be_async(call, start, app):
    start("worker", "app:worker_made_later").until("runs ask, broken, echo, slow, staged")

    assert call("submit", "echo", "7", "--wait", "--json").json["result"] == 7


def test_name_and_concurrency_are_those_of_the_call(call, start, app, submit):
    for _ in range(2):
        submit("slow")
    process = start("worker", "app:worker", "--name", "solo", "--concurrency", "1")
    process.until("slow has begun")

    assert [job["worker"] for job in call("jobs", "--status", "running", "--json").json] in ([], ["solo"])
    assert "1 job in line, 1 running on 1 worker with 1 place." in call("queue", "list").out


def test_the_log_of_a_worker_is_json_for_machines(call, start, app):
    process = start("worker", "app:worker", "--name", "w1", "--json")

    line = json.loads(process.until("runs"))

    assert (line["level"], line["message"]) == ("info", "worker w1 runs ask, broken, echo, slow, staged")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_worker_and_leaves_nothing_behind(worker, left_behind, number):
    worker.signal(number)

    assert worker.ends() == 0
    assert "worker w1 is gone" in worker.output()
    assert left_behind() == (0, 0)


@pytest.mark.parametrize("command", [("worker", "app:worker"), ("up", "app:worker")])
def test_a_second_signal_hands_running_jobs_back_at_once(call, start, app, submit, left_behind, command):
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


def test_up_runs_an_application_for_as_long_as_it_is_told(call, start, app, left_behind):
    process = start("up", "app:worker", "--for", "3", "--concurrency", "7")
    process.until("runs")

    assert call("submit", "echo", "7", "--wait").code == 0
    assert process.ends() == 0
    assert left_behind() == (0, 0)


@pytest.mark.parametrize(
    ("command", "longer_than_a_call"),
    [(("worker", "app:worker"), True), (("up", "app:worker"), False), (("up", "--demo"), False)],
)
def test_a_worker_waits_for_a_server_that_is_not_there_yet(start, app, command, longer_than_a_call):
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
def test_a_signal_ends_a_worker_that_waits_for_its_store(start, app, command, number):
    with Server("valkey") as server:
        server.kill()
        process = start(*command, "--url", server.url)
        process.until("cannot be used")
        began = time.monotonic()
        process.signal(number)

        assert process.ends() == 0
        assert time.monotonic() - began < 3
        assert "Traceback" not in process.output()


def test_a_worker_waits_for_a_process_that_is_stopped_inside_a_write(start, app, call, submit, tmp_path):
    submit("echo")
    holding = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(tmp_path / "qo.db")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holding.stdout.readline() == b"holding\n"
        os.kill(holding.pid, signal.SIGSTOP)
        process = start("worker", "app:worker")
        process.until(f"process {holding.pid} (python")
        os.kill(holding.pid, signal.SIGCONT)
        holding.communicate(b"\n", timeout=60)
        process.until("can be used again after")
        process.until("echo")
    finally:
        holding.kill()
        holding.communicate()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("redis://127.0.0.1:{port}/99", "has no database 99"),
        ("redis://:wrong@127.0.0.1:{port}", "refused the login"),
        ("sqlite:///app.py", "cannot be opened"),
        ("sqlite:///nowhere/qo.db", "nowhere"),
    ],
)
def test_wrong_settings_end_a_worker_at_once(call, app, url, sentence):
    with Server("valkey") as server:
        done = call("worker", "app:worker", "--url", url.format(port=server.port))

    assert done.code == 3
    assert sentence in done.err
