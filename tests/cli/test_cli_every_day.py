"""What people do every day: retry all, see workers and the audit trail, complete in the shell, run a worker once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from qo.cli.reloading import files_in, first_change
from tests.cli.conftest import Call
from tests.cli.installed_command import COMMAND, environment
from tests.processes import Process


def test_a_burst_runs_what_there_is_and_all_failed_jobs_are_retried_together(
    call: Callable[..., Call], app: Path, submit: Callable[..., str]
) -> None:
    done, *failed = submit("echo", "7"), submit("broken"), submit("broken", "--user", "ada"), submit("broken")

    worked = call("worker", "app:worker", "--burst", "--log-format", "json")
    of_ada = call("retry", "--all-failed", "--user", "ada", "--dry-run")
    retried = call("retry", "--all-failed")
    nothing = call("retry", "--all-failed", "--json")

    assert worked.code == 0
    messages = [json.loads(line)["message"] for line in worked.out.splitlines()]
    assert f"echo {done}: succeeded" in messages
    assert of_ada.out == "1 failed job would be retried.\n"
    assert retried.out == "Retried 3 jobs.\n"
    assert {job["id"] for job in call("jobs", "--status", "queued", "--json").json} == set(failed)
    assert nothing.json == {"retried": [], "skipped": []}


def test_a_quiet_worker_logs_only_warnings(call: Callable[..., Call], app: Path, submit: Callable[..., str]) -> None:
    submit("echo")
    submit("broken")

    done = call("worker", "app:worker", "--burst", "--quiet")

    assert done.code == 0
    assert all(" warning: " in line for line in done.out.splitlines())
    assert "It cannot be done." in done.out


def test_a_worker_logs_the_whole_path_of_its_file(call: Callable[..., Call], app: Path, tmp_path: Path) -> None:
    worked = call("worker", "app:worker", "--burst")

    assert f"SQLite file {tmp_path / 'qo.db'}: an acknowledged job survives" in worked.out


def test_workers_are_listed_with_their_tasks_and_load(call: Callable[..., Call], worker: Process) -> None:
    people, programs = call("workers"), call("workers", "--json")

    assert people.out.splitlines()[1].split()[:2] == ["w1", "0/100"]
    assert "ask, broken, echo, slow, staged" in people.out
    assert programs.json[0]["name"] == "w1"


def test_a_tier_is_given_and_the_audit_trail_names_who_did_it(
    call: Callable[..., Call], submit: Callable[..., str]
) -> None:
    job = submit("t", "--user", "ada", "--tier", "bootstrapper")

    given = call("tier", "ada", "partner", "--by", "ops")
    call("queue", "priority", job, "high", "--by", "ops")
    everything, of_the_job = call("audit"), call("audit", job[:14], "--json")

    assert given.out == "ada has the tier partner; 49 jobs remain today.\n"
    newest, tier = everything.out.splitlines()[1:3]
    assert newest.split()[-8:] == ["ops", "priority", job, "priority", "50", "→", "priority", "20"]
    assert tier.split()[-8:-5] == ["ops", "tier", "ada"]
    assert [entry["action"] for entry in of_the_job.json] == ["priority", "submit"]
    assert of_the_job.json[0]["old"] == {"priority": 50}
    assert call("audit", "nobody").out == "The audit trail has nothing about nobody.\n"


def test_pausing_a_group_that_nobody_uses_warns_and_names_the_nearest(
    call: Callable[..., Call], submit: Callable[..., str]
) -> None:
    submit("t", "--group", "provider:ollama")

    slip, used, everything = (call("queue", "pause", *group) for group in (["provider:olama"], ["provider:ollama"], []))

    assert "Warning: No job in line or running, no worker and no limit uses the group 'provider:olama'." in slip.err
    assert "Did you mean 'provider:ollama'?" in slip.err
    assert slip.code == 0
    assert used.err == everything.err == ""


def test_resuming_what_is_not_paused_says_so_and_names_what_is(call: Callable[..., Call]) -> None:
    call("queue", "pause", "provider:ollama")

    slip, everything = call("queue", "resume", "provider:olama"), call("queue", "resume")
    resumed, again = (call("queue", "resume", "provider:ollama") for _ in range(2))

    assert slip.out == "provider:olama was not paused; paused are provider:ollama.\n"
    assert everything.out == "global was not paused; paused are provider:ollama.\n"
    assert resumed.out == "Resumed provider:ollama.\n"
    assert again.out == "provider:ollama was not paused; nothing is.\n"
    assert {done.code for done in (slip, everything, resumed, again)} == {0}


def test_a_status_that_is_no_state_is_said_to_be_taken_for_a_stage(
    call: Callable[..., Call], submit: Callable[..., str]
) -> None:
    submit("t")

    state, slip = call("jobs", "--status", "failed"), call("jobs", "--status", "fialed")

    assert state.out == "There are no such jobs.\n"
    assert slip.out == (
        "There are no such jobs. 'fialed' is no state, so it was taken for a stage; the states are queued, scheduled, "
        "waiting, starting, running, confirming, succeeded, failed, cancelled and ready.\n"
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands_and_options(call: Callable[..., Call], tmp_path: Path, shell: str) -> None:
    script = call("completion", shell)

    assert f"_QO_COMPLETE={shell}_complete" in script.out
    if shell == "bash":
        commands, options = (completed(words, tmp_path) for words in ("qo conc", "qo jobs --ti"))
        assert commands == ["plain,concurrency"]
        assert options == ["plain,--tier"]


def completed(words: str, folder: Path) -> list[str]:
    asked = environment(_QO_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1))
    return subprocess.run([COMMAND], cwd=folder, env=asked, capture_output=True, text=True).stdout.split()


def test_bench_measures_in_a_namespace_of_its_own_and_leaves_nothing(call: Callable[..., Call], tmp_path: Path) -> None:
    done = call("bench", "--jobs", "20", "--json")

    assert done.code == 0
    assert done.json["jobs"] == 20
    assert min(done.json[figure] for figure in ("submitted_per_second", "run_per_second", "one_ms")) > 0
    assert os.listdir(tmp_path) == []


def test_a_watched_worker_starts_again_when_its_file_changes_and_ends_with_a_signal(
    start: Callable[..., Process], app: Path
) -> None:
    process = start("worker", "app:worker", "--name", "w1", "--watch")
    process.until("worker w1 runs ask, broken, echo, slow, staged")

    app.write_text(app.read_text().replace('"echo"', '"repeat"'))
    process.until("app.py has changed: starting again")
    process.until("worker w1 runs ask, broken, repeat, slow, staged")
    app.write_text("def worker(queue")
    process.until("it starts again when a file changes")
    process.signal(signal.SIGTERM)

    assert process.ends() == 2


def test_watching_looks_at_python_files_and_settings_but_not_into_environments(tmp_path: Path) -> None:
    for name in ("app.py", "more/tasks.py", ".qo.toml", "notes.txt", ".git/x.py", "env/lib/x.py", "env/pyvenv.cfg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")

    before = files_in(tmp_path)
    (tmp_path / "more/tasks.py").unlink()

    assert set(before) == {"app.py", "more/tasks.py", ".qo.toml"}
    assert first_change(before, before) is None
    assert first_change(before, files_in(tmp_path)) == "more/tasks.py"
