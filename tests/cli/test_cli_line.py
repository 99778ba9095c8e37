"""The line and its limits from a terminal."""

from __future__ import annotations

from collections.abc import Callable

from tests.cli.conftest import Call
from tests.processes import Process


def order(call: Callable[..., Call]) -> list[str]:
    return [job["id"] for job in call("queue", "list", "--json").json]


def test_the_line_is_listed_in_its_order(call: Callable[..., Call], submit: Callable[..., str]) -> None:
    last, first = submit("build"), submit("build", "--priority", "high")
    submit("build", "--delay", "1h")

    people = call("queue", "list")

    assert order(call) == [first, last]
    assert people.out.index(first) < people.out.index(last)
    assert "2 jobs in line, 0 running on 0 workers with a capacity of 0." in people.out


def test_a_job_is_moved_before_or_behind_another(call: Callable[..., Call], submit: Callable[..., str]) -> None:
    a, b, c = submit("t"), submit("t"), submit("t")

    moved = call("queue", "move", c, "--before", a, "--by", "ops")
    assert order(call) == [c, a, b]
    moved_behind = call("queue", "move", c, "--after", b, "--json")

    assert moved.out == f"t {c} is #1 in line.\n"
    assert moved_behind.json["position"] == 3
    assert order(call) == [a, b, c]


def test_the_priority_of_a_job_is_changed_by_number_or_name(
    call: Callable[..., Call], submit: Callable[..., str]
) -> None:
    a, b = submit("t"), submit("t")

    done = call("queue", "priority", b, "high")
    again = call("queue", "priority", a, "5", "--json")

    assert done.out == f"t {b} is #1 in line.\n"
    assert again.json["priority"] == 5
    assert order(call) == [a, b]


def test_the_priority_of_a_parent_is_that_of_all_its_jobs(
    call: Callable[..., Call], submit: Callable[..., str]
) -> None:
    submit("t", "--parent", "7", "--phase", "1")
    submit("t", "--parent", "7", "--phase", "2")

    done = call("queue", "priority", "--parent", "7", "urgent", "--json")

    assert [job["priority"] for job in done.json] == [10, 10]


def test_everything_or_a_group_is_paused_and_resumed(call: Callable[..., Call], submit: Callable[..., str]) -> None:
    job = submit("t")

    everything, group = call("queue", "pause"), call("queue", "pause", "t", "--json")
    listed, why = call("queue", "list").out, call("why", job).out

    assert everything.out.startswith("Paused everything: nobody new starts")
    assert group.json["paused"] is True
    assert "Paused: global, t." in listed
    assert "global is paused" in why
    assert call("queue", "resume").out == "Resumed everything.\n"
    assert call("queue", "resume", "t", "--json").json["paused"] is False


def test_a_limit_is_set_shown_and_removed(call: Callable[..., Call]) -> None:
    changed = call("concurrency", "set", "gpu", "--limit", "2")
    listed, programs = call("concurrency", "status"), call("concurrency", "status", "--json")
    one = call("concurrency", "status", "gpu", "--json")
    removed = call("concurrency", "remove", "gpu")

    assert changed.out == "gpu has a limit of 2, set by the operator; 0 in use, 0 put aside because of it.\n"
    assert listed.out.splitlines()[1].split() == ["gpu", "0", "of", "2", "operator", "open", "0"]
    assert (programs.json[0]["group"], programs.json[0]["source"]) == ("gpu", "operator")
    assert (one.json["limit"], one.json["slots"]) == (2, [])
    assert removed.out.startswith("gpu has no limit;")
    assert call("concurrency", "status").out == "No group has a limit, a pause or holders.\n"


def test_idle_groups_that_only_a_tier_limits_are_left_out_of_the_list(
    call: Callable[..., Call], submit: Callable[..., str]
) -> None:
    job = submit("t", "--user", "ada", "--tier", "partner")
    call("cancel", job)

    listed, everything = call("concurrency", "status"), call("concurrency", "status", "--all")

    assert "user:ada" not in listed.out
    assert "--all" in listed.out
    assert "user:ada  0 of 3  tier" in everything.out


def test_a_slot_is_released_by_force_only_while_its_lease_lives(
    call: Callable[..., Call], submit: Callable[..., str], worker: Process
) -> None:
    call("concurrency", "set", "slow", "--limit", "1")
    job = submit("slow")
    worker.until("slow has begun")

    shown = call("concurrency", "status", "slow")
    refused = call("concurrency", "release", "slow", "0")
    forced = call("concurrency", "release", "slow", "0", "--force", "--by", "ops")
    worker.until("slow has begun")
    again = call("concurrency", "release", "slow", "0", "--force", "--json")

    assert job in shown.out
    assert "w1" in shown.out
    assert refused.code == 1
    assert "release it with force" in refused.err
    assert forced.out == f"Released slot 0 of slow; {job} held it and has lost its lease.\n"
    assert again.json == {"group": "slow", "slot_id": 0, "holder": job}


def test_a_free_slot_cannot_be_released(call: Callable[..., Call], empty_store: None) -> None:
    done = call("concurrency", "release", "gpu", "3", "--force")

    assert done.code == 1
    assert "Slot 3 of group 'gpu' is not held" in done.err
