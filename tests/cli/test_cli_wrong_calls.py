"""A wrong call prints on stderr what to write instead, and changes nothing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.cli.installed_command import COMMAND, environment

WRONG = [
    (["jbos"], "Did you mean 'jobs'?"),
    (["xyzzy"], "use one of init, up, serve, worker"),
    (["queue", "puase"], "Did you mean 'pause'?"),
    (["jobs", "--limt", "3"], "--limit"),
    (["job"], "Missing argument 'ID'"),
    (["up"], "`qo up module:worker`"),
    (["submit", "t", "--priority", "100"], "urgent (10), high (20), normal (50), low (70), background (90)"),
    (["submit", "t", "--priority", "soon"], "a whole number from 0 (soonest) to 99"),
    (["queue", "priority", "x", "soon"], "a whole number from 0 (soonest) to 99"),
    (["queue", "priority", "x"], "qo queue priority ID PRIORITY"),
    (["queue", "move", "x"], "--before OTHER, or --after OTHER"),
    (["queue", "move", "x", "--before", "a", "--after", "b"], "--before and --after were both given"),
    (["cancel"], "the ID of a job, or --parent"),
    (["cancel", "x", "--parent", "7"], "The ID 'x' and --parent were both given"),
    (["retry"], "the ID of a job, or --all-failed"),
    (["retry", "x", "--all-failed"], "The ID 'x' and --all-failed were both given"),
    (["retry", "x", "--task", "t"], "are for --all-failed"),
    (["tier", "ada", "gold"], "bootstrapper, cto_scale, partner"),
    (["completion", "tcsh"], "'bash', 'zsh', 'fish'"),
    (["bench", "--namespace", "mine"], "--namespace is not for qo bench"),
    (["worker", "app:worker", "--burst", "--watch"], "--burst and --watch were both given"),
    (["worker", "app:worker", "--quiet", "--log-level", "info"], "--quiet and --log-level were both given"),
    (["submit", "t", '{"a": }'], "line 1, column 7"),
    (["submit", "t", "hello"], "text in double quotes"),
    (["submit", "t", '{"a": NaN}'], "JSON has no NaN"),
    (["submit", "t", "[1e999]"], "1e999 is too large"),
    (["submit", "t", "@missing.json"], "missing.json cannot be read"),
    (["submit", "t", "--delay", "soon"], "s, m, h or d"),
    (["submit", "t", "--run-at", "tomorrow"], "2030-12-31T18:00:00Z"),
    (["submit", "t", "--run-at", "2030-12-31T18:00:00"], "no time zone"),
    (["submit", "t", "--start-by", "soon"], "s, m, h or d"),
    (["submit", "t", "--start-by", "2030-12-31T18:00:00"], "no time zone"),
    (["submit", "t", "--start-by", "1m", "--delay", "2m"], "could not start in time"),
    (["submit", "t", "--delay", "1m", "--run-at", "2030-12-31T18:00:00Z"], "--delay and --run-at were both given"),
    (["submit", "t", "--tier", "gold", "--user", "ada"], "bootstrapper, cto_scale, partner"),
    (["submit", "t", "--tier", "partner"], "--tier partner was given without --user"),
    (["submit", "t", "--phase", "2"], "--phase 2 was given without --parent"),
    (["up", "--demo", "app:worker"], "--demo and app:worker were both given"),
    (["submit", "a:b"], "a:b"),
    (["concurrency", "set", "g", "--limit", "-1"], "--limit"),
    (["concurrency", "set", "g"], "Missing option '--limit'"),
    (["jobs", "--url", "ftp://x"], "sqlite:///path/to/qo.db, memory://, redis://"),
]


@pytest.mark.parametrize(("arguments", "hint"), WRONG, ids=[" ".join(arguments) for arguments, _ in WRONG])
def test_a_wrong_call_says_what_is_right(call: Callable[..., Call], arguments: list[str], hint: str) -> None:
    done = call(*arguments)

    assert done.code == 2
    assert done.out == ""
    assert hint in " ".join(done.err.split())


def test_with_json_an_error_is_an_object_on_stderr(call: Callable[..., Call], empty_store: None) -> None:
    wrong, unknown = call("submit", "t", "{", "--json"), call("job", "nobody", "--json")

    assert (wrong.code, unknown.code) == (2, 1)
    assert wrong.out == unknown.out == ""
    assert "not JSON" in json.loads(wrong.err)["error"]
    assert json.loads(unknown.err)["kind"] == "JobNotFound"


@pytest.mark.parametrize("command", ["job", "why", "cancel", "retry", "confirm"])
def test_an_unknown_job_is_exit_code_1(call: Callable[..., Call], empty_store: None, command: str) -> None:
    done = call(command, "nobody")

    assert done.code == 1
    assert "There is no job 'nobody'" in done.err


def test_a_store_that_cannot_be_reached_is_exit_code_3(call: Callable[..., Call], tmp_path: Path) -> None:
    (tmp_path / "no.db").write_text("This is no database, but it is long enough to be looked at as if it were one." * 9)

    missing, broken = call("submit", "t", "--url", "sqlite:///nowhere/qo.db"), call("jobs", "--url", "sqlite:///no.db")

    assert (missing.code, broken.code) == (3, 3)
    assert "nowhere/qo.db cannot be opened" in missing.err


def test_a_wrong_setting_names_the_file_and_what_was_expected(call: Callable[..., Call], tmp_path: Path) -> None:
    (tmp_path / ".qo.toml").write_text('[queue]\ncap = "many"\n')

    done = call("jobs")

    assert done.code == 2
    assert ".qo.toml: queue.cap is 'many'; expected a whole number" in done.err


def test_a_reader_that_closes_the_pipe_causes_no_error(
    call: Callable[..., Call], submit: Callable[..., str], tmp_path: Path
) -> None:
    for _ in range(3):
        submit("t")

    done = subprocess.run(
        f"'{COMMAND}' jobs | true", shell=True, cwd=tmp_path, env=environment(), capture_output=True, text=True
    )

    assert done.stderr == f"(SQLite file {tmp_path}/qo.db)\n"
