"""Jobs from a terminal: submit, show, watch, change."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len

import qo
from qo.values import Registration, TaskOptions
from tests.cli.conftest import Call
from tests.cli.installed_command import COMMAND, environment
from tests.processes import Process


def test_submit_prints_the_position_in_line_and_the_id(call: Callable[..., Call]) -> None:
    call("submit", "build")

    done = call("submit", "build", '{"id": 7}', "--user", "ada", "--id", "job-2")

    assert done.code == 0
    assert done.out.startswith("build job-2 is #2 in line, when it starts is not known yet: no worker runs task build.")
    assert call("jobs", "--user", "ada", "--json").json[0]["id"] == "job-2"


def test_every_option_of_submit_reaches_the_job(call: Callable[..., Call]) -> None:
    job = call(
        *("submit", "build", "null", "--json", "--id", "j", "--priority", "high", "--user", "u", "--project", "p"),
        *("--tier", "partner", "--parent", "107", "--phase", "1", "--group", "gpu", "--group", "eu"),
        *("--concurrency-group", "ports", "--concurrency-limit", "4", "--unique", "k", "--max-attempts", "7"),
        *("--timeout", "1.5m"),
    ).json

    assert (job["id"], job["priority"], job["user"], job["project"], job["tier"]) == ("j", 20, "u", "p", "partner")
    assert (job["parent"], job["phase"], job["unique"], job["max_attempts"]) == ("107", 1, "k", 7)
    assert job["timeout_seconds"] == 90
    assert {"gpu", "eu", "ports"} <= set(job["groups"])
    assert call("concurrency", "status", "ports", "--json").json["limit"] == 4


@pytest.mark.parametrize("option", [("--delay", "2h"), ("--run-at", "2090-12-31T18:00:00+02:00")])
def test_a_job_for_later_is_scheduled(call: Callable[..., Call], option: tuple[str, str]) -> None:
    done = call("submit", "build", *option)

    assert " is scheduled for " in done.out
    assert call("jobs", "--status", "scheduled", "--json").json[0]["run_at"]


@pytest.mark.parametrize("start_by", ["2h", "2090-12-31T18:00:00+02:00"])
def test_a_job_that_has_to_start_in_time_says_so(call: Callable[..., Call], start_by: str) -> None:
    assert call("submit", "build", "--id", "j", "--start-by", start_by).code == 0

    assert " It must start by " in call("why", "j").out


@pytest.mark.parametrize("given", ["argument", "file", "stdin"])
def test_data_comes_as_an_argument_a_file_or_on_stdin(
    call: Callable[..., Call], worker: Process, tmp_path: Path, given: str
) -> None:
    text = '{"name": "Zoë", "parts": [1, 2.5, null]}'
    (tmp_path / "data.json").write_text(text)

    done = call(
        "submit", "echo", {"argument": text, "file": "@data.json", "stdin": "-"}[given], "--wait", "--json", stdin=text
    )

    assert done.code == 0
    assert done.json["result"] == json.loads(text)


def test_submit_with_wait_prints_the_result(call: Callable[..., Call], worker: Process) -> None:
    done = call("submit", "echo", "[1, 2]", "--wait")

    assert done.code == 0
    assert done.out.splitlines()[1:] == [
        f"{done.out.split('.')[0].rpartition(' is ')[0]} has succeeded.",
        "Result: [1, 2]",
    ]


def test_in_a_terminal_submit_with_wait_shows_what_happens(worker: Process, tmp_path: Path) -> None:
    lines = without_colours(in_terminal(["submit", "staged", "--wait"], tmp_path, columns=120)).splitlines()

    assert "is #1 in line" in lines[0]
    assert any(line.endswith("is at stage code: writing") for line in lines)
    assert lines[-2].endswith(" is ready.")
    assert lines[-1] == 'Result: "done"'


def test_submit_with_wait_is_exit_code_1_when_the_job_fails(call: Callable[..., Call], worker: Process) -> None:
    people, programs = call("submit", "broken", "--wait"), call("submit", "broken", "--wait", "--json")

    assert (people.code, programs.code) == (1, 1)
    assert "has failed: It cannot be done." in people.out
    assert programs.json["error"]["message"] == "It cannot be done."


def test_submit_with_wait_ends_after_its_timeout(call: Callable[..., Call]) -> None:
    done = call("submit", "nobody_does_this", "--wait-timeout", "0.1")

    assert done.code == 1
    assert "has not ended within 0.1 seconds" in done.err


def test_a_refused_submit_is_exit_code_1(call: Callable[..., Call]) -> None:
    full = {"QO_QUEUE__CAP": "0"}

    done = call("submit", "t", "--user", "u", "--tier", "partner", env=full)

    assert done.code == 1
    assert "The system is busy, try again in" in done.err


def test_a_limit_without_effect_is_a_warning_beside_the_output(call: Callable[..., Call]) -> None:
    call("concurrency", "set", "t", "--limit", "3")

    done = call("submit", "t", "--concurrency-limit", "9", "--json")

    assert done.code == 0
    assert done.json["task"] == "t"
    assert "the limit 9 of group t" in json.loads(done.err)["message"]


def test_jobs_are_listed_in_line_order_and_filtered(call: Callable[..., Call], submit: Callable[..., str]) -> None:
    normal, urgent, other = (
        submit("a"),
        submit("a", "--priority", "urgent"),
        submit("b", "--user", "ada", "--parent", "7"),
    )

    assert [job["id"] for job in call("jobs", "--json").json] == [urgent, normal, other]
    assert [job["id"] for job in call("jobs", "--json", "--user", "ada").json] == [other]
    assert [job["id"] for job in call("jobs", "--json", "--task", "a", "--limit", "1").json] == [urgent]
    assert [job["id"] for job in call("jobs", "--json", "--parent", "7").json] == [other]
    assert [job["id"] for job in call("jobs", "--json", "--priority", "urgent", "--id", urgent[:20]).json] == [urgent]
    assert call("jobs", "--json", "--project", "p", "--tier", "partner").json == []
    assert call("jobs", "--json", "--status", "running").json == []


@pytest.fixture
def busy_worker(tmp_path: Path) -> None:
    """A worker with a capacity of one, which is in use; no job of its task has ended yet."""

    async def register() -> None:
        async with await qo.connect(f"sqlite:///{tmp_path}/qo.db", settings={}) as line:
            options = (TaskOptions(name="build"),)
            await line.store.register(Registration(name="w", tasks=options, capacity=1, lifetime_ms=10**9))
            await line.submit("build")
            await line.store.claim(worker="w", tasks=["build"], capacity=1, lease_ms=10**9, claim_id="c")

    asyncio.run(register())


def test_every_command_that_shows_a_job_shows_its_estimate(
    call: Callable[..., Call], submit: Callable[..., str], busy_worker: None
) -> None:
    for number in range(3):
        submit("build", "--id", f"job-{number}", "--user", "ada", "--tier", "partner")
    words = "14 minutes-26 minutes (first guess)"  # second in line, a capacity of one, a first guess of 10 minutes

    one, all_of_them, the_line = (
        call(*asked, "--json").json for asked in (["job", "job-1"], ["jobs"], ["queue", "list"])
    )

    assert one["estimate"] == all_of_them[1]["estimate"] == the_line[1]["estimate"]
    assert (one["estimate"]["estimate_seconds"], one["estimate"]["message"]) == (1200, words)
    assert (one["estimate"]["basis"], one["estimate"]["confidence"]) == ("first_guess", "low")
    assert re.search(rf"^  starts in +{re.escape(words)}$", call("job", "job-1").out, re.MULTILINE)
    for asked in (["jobs"], ["queue", "list"]):
        done = call(*asked)
        header, _, second, *_ = done.out.splitlines()
        assert "starts in" in header
        assert " ~14-26 min " in second
        assert "~ is a first guess" in done.err
    output = call("submit", "build", "--user", "ada", "--tier", "partner").out
    assert output.endswith("is #4 in line, it starts in 28 minutes-52 minutes (first guess).\n")


def test_a_job_that_cannot_start_is_shown_without_a_time(call: Callable[..., Call], submit: Callable[..., str]) -> None:
    job = submit("build", "--group", "gpu")
    call("queue", "pause", "gpu")

    estimate = call("job", job, "--json").json["estimate"]
    assert (estimate["estimate_seconds"], estimate["message"]) == (None, "not known yet: no worker runs task build")
    assert re.search(r"^  starts in +not known yet: no worker runs task build$", call("job", job).out, re.MULTILINE)
    header, row = call("jobs").out.splitlines()
    assert "starts in" in header
    assert " not known " in row


def test_a_table_in_a_pipe_is_whole_and_plain(call: Callable[..., Call], submit: Callable[..., str]) -> None:
    long_name = "a-user-with-a-very-long-name-" * 5
    job = submit("build", "--user", long_name)

    header, row = call("jobs", env={"COLUMNS": "40"}).out.splitlines()

    assert header.split()[:4] == ["#", "id", "task", "status"]
    assert row.split()[:4] == ["1", job, "build", "queued"]
    assert long_name in row
    assert "\x1b" not in header + row


def test_a_job_takes_one_line_of_a_terminal_and_its_shortened_id_is_accepted(
    call: Callable[..., Call], submit: Callable[..., str], tmp_path: Path
) -> None:
    jobs = [submit("build", "--user", "a-user-with-a-long-name " * 4), submit("Grüße und 王小明 " * 5)]

    lines = in_terminal(["jobs"], tmp_path, columns=80).splitlines()

    rows = [line for line in lines if line.lstrip().startswith(("1", "2"))]
    assert [cell_len(without_colours(row)) <= 80 for row in rows] == [True, True]
    shortened = [without_colours(row).split()[1] for row in rows]
    assert [len(each) for each in shortened] == [12, 12]
    assert call("job", shortened[0], "--json").json["id"] == jobs[0]
    assert call("cancel", shortened[1]).code == 0
    ambiguous = call("why", jobs[0][:4])
    assert ambiguous.code == 2
    assert all(job in ambiguous.err for job in jobs)


def test_a_state_has_its_colour_in_a_terminal(submit: Callable[..., str], tmp_path: Path) -> None:
    submit("build", "--delay", "1h")

    assert "\x1b[34mscheduled" in in_terminal(["jobs"], tmp_path, columns=80)


def test_no_color_is_respected_in_a_terminal(submit: Callable[..., str], tmp_path: Path) -> None:
    submit("build")

    shown = in_terminal(["jobs"], tmp_path, columns=200, NO_COLOR="1")

    assert not re.search(r"\x1b\[[0-9;]*3\d", shown)


def test_control_characters_of_a_job_do_not_reach_the_terminal(call: Callable[..., Call], worker: Process) -> None:
    call("submit", "echo", '"\\u001b]0;owned\\u0007"', "--id", "sly", "--wait")

    done = call("job", "sly")

    assert "owned" in done.out
    assert "\x1b" not in done.out


def test_no_jobs_are_a_sentence_for_people_and_an_empty_list_for_programs(
    call: Callable[..., Call], empty_store: None
) -> None:
    assert call("jobs").out == "There are no jobs.\n"
    assert call("jobs", "--json").json == []


def test_a_job_is_shown_with_all_its_known_fields(call: Callable[..., Call], submit: Callable[..., str]) -> None:
    job = submit("build", '{"app": "shop"}', "--user", "ada", "--priority", "20")

    people, programs = call("job", job), call("job", job, "--json")

    assert people.out.startswith(f"build {job} is #1 in line.")
    assert re.search(r"^  priority +20 \(high\)$", people.out, re.MULTILINE)
    assert re.search(r"^  user +ada$", people.out, re.MULTILINE)
    assert (programs.json["id"], programs.json["position"]) == (job, 1)
    assert re.search(r'^  data +\{"app": "shop"\}$', people.out, re.MULTILINE)
    assert programs.json["data"] == {"app": "shop"}
    assert programs.json["why"]["no_worker"] is True
    assert [each["status"] for each in programs.json["history"]["states"]] == ["queued"]
    assert {"checkpoint", "slots", "usage", "upgrade_url", "groups"} <= programs.json.keys()


def test_watching_follows_a_job_to_its_end(
    call: Callable[..., Call], start: Callable[..., Process], app: Path, submit: Callable[..., str]
) -> None:
    job = submit("staged")
    watching = start("job", job, "--watch")
    watching.until("is #1 in line")

    start("worker", "app:worker", "--name", "w1")

    watching.until("starts on w1, attempt 1 of 3")
    watching.until("is at stage code: writing")
    watching.until("is ready.")
    assert watching.ends() == 0
    events = [json.loads(line) for line in call("job", job, "--watch", "--json").out.splitlines()]
    assert [event["kind"] for event in events] == ["succeeded"]


def test_watching_a_job_in_line_prints_its_position_when_it_changed_and_every_few_seconds(
    call: Callable[..., Call], start: Callable[..., Process], submit: Callable[..., str]
) -> None:
    first, job = submit("build"), submit("build")
    watching = start("job", job, "--watch")
    watching.until("is #2 in line")

    call("cancel", first)
    first = watching.until("is #1 in line")
    again = watching.until("is #1 in line")
    submit("build", "--priority", "urgent")
    overtaken = watching.until("is #2 in line")

    for line in (first, again):
        assert line.endswith(f"build {job} is #1 in line, when it starts is not known yet: no worker runs task build")
    assert overtaken.endswith("is #2 in line, when it starts is not known yet: no worker runs task build")
    submit("build", "--priority", "urgent")
    assert "Originally #2, now #3: 2 priority jobs were placed ahead of you" in watching.until("is #3 in line")


def test_watching_a_job_that_fails_is_exit_code_1(
    call: Callable[..., Call], worker: Process, submit: Callable[..., str]
) -> None:
    done = call("job", submit("broken"), "--watch")

    assert done.code == 1
    assert "has failed: It cannot be done." in done.out


def test_ctrl_c_ends_watching_with_exit_code_130(start: Callable[..., Process], submit: Callable[..., str]) -> None:
    watching = start("job", submit("nobody_does_this"), "--watch")
    watching.until("in line")

    watching.signal(signal.SIGINT)

    assert watching.ends() == 130
    assert "Traceback" not in watching.output()


def test_why_names_what_blocks_a_job(call: Callable[..., Call], submit: Callable[..., str]) -> None:
    job = submit("build")

    people, programs = call("why", job), call("why", job, "--json")

    assert "no worker for task build is running" in people.out
    assert programs.json["no_worker"] is True


def test_cancelling_and_retrying_a_job(call: Callable[..., Call], worker: Process, submit: Callable[..., str]) -> None:
    waiting, failed = submit("nobody_does_this"), submit("broken")
    assert call("job", failed, "--watch").code == 1

    cancelled = call("cancel", waiting, "--message", "not needed", "--by", "ops")
    retried = call("retry", failed, "--json")

    assert cancelled.out == f"nobody_does_this {waiting} was cancelled: not needed.\n"
    assert retried.json["state"] == "queued"
    again = call("retry", waiting)
    assert again.code == 1
    assert f"Job '{waiting}' is cancelled; only a failed job can be retried." in again.err


def test_cancelling_a_parent_cancels_all_its_jobs(call: Callable[..., Call], submit: Callable[..., str]) -> None:
    submit("a", "--parent", "7", "--phase", "1")
    submit("a", "--parent", "7", "--phase", "2")

    done = call("cancel", "--parent", "7", "--json")

    assert [job["state"] for job in done.json] == ["cancelled", "cancelled"]


def test_a_job_that_waits_for_a_confirmation_goes_on_when_it_is_confirmed(
    call: Callable[..., Call], worker: Process, submit: Callable[..., str]
) -> None:
    job = submit("ask", "--user", "u", "--tier", "bootstrapper")
    worker.until(f"ask {job}: confirming")
    assert "waits for a person to confirm: Continue for 2 more iterations" in wait_for_state(call, job, "confirming")

    done = call("confirm", job)

    assert done.code == 0
    assert call("job", job, "--watch").code == 0


def test_usage_prints_how_much_of_the_quota_is_used_and_left(
    call: Callable[..., Call], submit: Callable[..., str]
) -> None:
    submit("t", "--user", "ada", "--tier", "bootstrapper")

    assert "ada has used 1 job today, 4 remain" in call("usage", "ada").out
    assert call("usage", "ada", "--json").json["jobs_remaining"] == 4
    assert "nothing limits how many" in call("usage", "nobody").out
    assert call("usage", "nobody", "--tier", "partner", "--json").json["jobs_remaining"] == 50


def test_common_options_may_stand_before_the_command(call: Callable[..., Call], tmp_path: Path) -> None:
    call("--url", "sqlite:///other.db", "submit", "t")

    assert len(call("--json", "--url", "sqlite:///other.db", "jobs").json) == 1
    assert (tmp_path / "other.db").exists()
    assert call("jobs", "--json", env={"QO_URL": "sqlite:///other.db"}).json != []


def wait_for_state(call: Callable[..., Call], job: str, state: str) -> str:
    """A worker logs before it stores, so the store may be a moment behind the log."""
    for _ in range(50):
        if call("job", job, "--json").json["state"] == state:
            return call("job", job).out
    raise AssertionError(f"{job} did not become {state}")


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def in_terminal(arguments: list[str], folder: Path, *, columns: int, **env: str) -> str:
    """The output in a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    done = subprocess.Popen([COMMAND, *arguments], cwd=folder, env=environment(**env), stdout=theirs, stdin=theirs)
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 65536):
            seen += piece
    except OSError:
        pass  # a pseudo-terminal raises this when its other side is closed
    os.close(ours)
    assert done.wait(60) == 0
    return seen.decode()
