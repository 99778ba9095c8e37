"""`qo history` on a store that keeps its history itself, and `qo record`, which needs one that does not."""

from __future__ import annotations

from collections.abc import Callable

from tests.cli.conftest import Call


def test_a_cancelled_job_is_in_the_history_and_in_the_figures_of_its_day(
    call: Callable[..., Call], submit: Callable[..., str]
) -> None:
    job_id = submit("echo", "--user", "ann")
    assert call("history").out == "The history has no such jobs.\n"
    assert call("history", "--daily").out == "The history has nothing of these days.\n"
    call("cancel", job_id)

    listed = call("history", "--user", "ann", "--json").json
    (daily,) = call("history", "--daily", "--json").json

    assert [(job["id"], job["state"]) for job in listed] == [(job_id, "cancelled")]
    assert job_id in call("history", "--limit", "1").out
    assert (daily["cancelled"], daily["succeeded"], daily["wait_p50"]) == (1, 0, None)


def test_a_file_needs_no_recorder(call: Callable[..., Call], empty_store: None) -> None:
    refused = call("record", "--to", "postgresql://localhost/qo")

    assert refused.code == 2
    assert "keeps its history itself and needs no recorder" in refused.err


def test_a_recorder_needs_a_database(call: Callable[..., Call], empty_store: None) -> None:
    refused = call("record", "--migrate")
    both = call("record", "--migrate", "--off")

    assert refused.code == both.code == 2
    assert "name a database with --to" in refused.err
    assert "not both" in both.err
