"""`qo apply`: the store's configured limits become exactly those of the file; and `status` shows a difference."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import qo
from tests.cli.conftest import Call

Stored = tuple[dict[str, tuple[int | None, str]], list[tuple[str | None, str, dict[str, Any]]]]


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., None]:
    """Write the limits of the file beside the store."""

    def write(**limits: int) -> None:
        lines = [f'"{group}" = {slots}' for group, slots in limits.items()]
        (tmp_path / ".qo.toml").write_text("\n".join(["[concurrency.limits]", *lines, ""]))

    return write


@pytest.fixture
def stored(tmp_path: Path) -> Callable[[], Stored]:
    """The limits of the store, each with its source, and the newest entries of its audit trail."""

    async def read() -> Stored:
        async with await qo.connect(f"sqlite:///{tmp_path}/qo.db", settings={}) as queue:
            limits = {
                each.group: (each.limit, each.source.name.lower()) for each in await queue.limits() if each.source
            }
            audit = [(entry.by, entry.subject, entry.detail) for entry in await queue.audit()]
            return limits, audit

    return lambda: asyncio.run(read())


def test_it_adds_changes_and_removes_limits_and_prints_each(
    call: Callable[..., Call], file: Callable[..., None], stored: Callable[[], Stored]
) -> None:
    file(gpu=2, old=1)
    first = call("apply", "--by", "ada")
    call("concurrency", "set", "held", "--limit", "7", "--by", "ops")
    file(gpu=3, new=5, held=9)
    second = call("apply", "--by", "ada")
    third = call("apply", "--by", "ada")

    assert first.out.splitlines() == ["Adds gpu: 2.", "Adds old: 1."]
    assert second.out.splitlines() == [
        "Adds new: 5.",
        "Changes gpu from 2 to 3.",
        "Removes the limit of old, which was 1.",
        "Leaves held at 7: an operator's wins over 9.",
    ]
    assert "Nothing to change" in third.out
    limits, audit = stored()
    assert limits == {"gpu": (3, "configuration"), "new": (5, "configuration"), "held": (7, "operator")}
    assert audit[:3] == [
        ("ada", "old", {"limit": None, "source": 2, "from": 1, "from_source": 2}),
        ("ada", "new", {"limit": 5, "source": 2, "from": None, "from_source": None}),
        ("ada", "gpu", {"limit": 3, "source": 2, "from": 2, "from_source": 2}),
    ]
    assert len(audit) == 6


def test_a_dry_run_prints_the_same_and_changes_nothing(
    call: Callable[..., Call], file: Callable[..., None], stored: Callable[[], Stored]
) -> None:
    file(gpu=2, old=1)
    call("apply")
    file(gpu=3, new=5)
    before = stored()

    done = call("apply", "--dry-run")
    as_json = call("apply", "--dry-run", "--json").json

    assert done.out.splitlines() == [
        "Would add new: 5.",
        "Would change gpu from 2 to 3.",
        "Would remove the limit of old, which was 1.",
    ]
    assert as_json["dry_run"] is True
    assert as_json["added"] == [{"group": "new", "limit": 5}]
    assert as_json["changed"] == [{"group": "gpu", "limit": 3, "from": 2, "from_source": "configuration"}]
    assert as_json["removed"] == [{"group": "old", "from": 1}]
    assert stored() == before


def test_a_file_without_limits_removes_all_of_the_configuration_and_says_so(
    call: Callable[..., Call], file: Callable[..., None], stored: Callable[[], Stored]
) -> None:
    file(gpu=2)
    call("apply")
    call("concurrency", "set", "held", "--limit", "7")
    file()

    done = call("apply")

    assert done.code == 0
    assert "Removes the limit of gpu, which was 2." in done.out
    assert "The settings name no limits" in done.out
    assert stored()[0] == {"held": (7, "operator")}


def test_without_a_file_no_limit_is_removed(
    call: Callable[..., Call], file: Callable[..., None], stored: Callable[[], Stored], tmp_path: Path
) -> None:
    file(gpu=2)
    call("apply")
    (tmp_path / ".qo.toml").unlink()

    done = call("apply")

    assert done.code == 2
    assert "There is no .qo.toml" in done.err
    assert stored()[0] == {"gpu": (2, "configuration")}


def test_limits_of_the_environment_count_like_those_of_the_file(
    call: Callable[..., Call], stored: Callable[[], Stored]
) -> None:
    done = call("apply", env={"QO_CONCURRENCY__LIMITS__GPU": "4"})

    assert done.out == "Adds gpu: 4.\n"
    assert stored()[0] == {"gpu": (4, "configuration")}


def test_a_limit_of_a_task_that_the_file_names_is_changed_and_the_output_names_its_source(
    call: Callable[..., Call], file: Callable[..., None], stored: Callable[[], Stored], tmp_path: Path
) -> None:
    async def limited_by_code() -> None:
        async with await qo.connect(f"sqlite:///{tmp_path}/qo.db", settings={}) as queue:
            await qo.ConcurrencyManager(queue).try_acquire("gpu", 8, "holder")

    asyncio.run(limited_by_code())
    file(gpu=2)

    assert call("apply").out == "Changes gpu from 8, which the task had set, to 2.\n"
    assert stored()[0] == {"gpu": (2, "configuration")}


def test_status_says_where_the_file_and_the_store_differ(call: Callable[..., Call], file: Callable[..., None]) -> None:
    file(gpu=2, old=1, same=3, held=5)
    call("apply")
    call("concurrency", "set", "held", "--limit", "7")
    file(gpu=4, same=3, new=6, held=5)

    output = " ".join(call("concurrency", "status").out.split())
    rows = {each["group"]: (each["limit"], each["configured"]) for each in call("concurrency", "status", "--json").json}

    assert "gpu: The settings here say 4; qo apply would set that" in output
    assert "new: The settings here say 6; qo apply would set that" in output
    assert "old: The settings here do not limit it; qo apply would remove the limit." in output
    assert "held: The settings here say 5, but the operator's limit counts." in output
    assert "same: " not in output
    assert rows == {"gpu": (2, 4), "held": (7, 5), "new": (None, 6), "old": (1, None), "same": (3, 3)}
    assert "The settings here say 4" in call("concurrency", "status", "gpu").out
    assert "The settings" not in call("concurrency", "status", "same").out
    assert call("concurrency", "status", "gpu", "--json").json["configured"] == 4


# --- commands that only read ------------------------------------------------------------------------------------

READING = [
    ("jobs",),
    ("job", "x"),
    ("job", "x", "--watch"),
    ("why", "x"),
    ("queue", "list"),
    ("concurrency", "status"),
    ("concurrency", "status", "gpu"),
    ("usage", "ada"),
    ("apply", "--dry-run"),
    ("workers",),
    ("audit",),
    ("retry", "--all-failed", "--dry-run"),
]
ABOUT_WHAT_IS_THERE = [
    ("cancel", "x"),
    ("queue", "resume"),
    ("concurrency", "remove", "gpu"),
]


@pytest.mark.parametrize("command", READING + ABOUT_WHAT_IS_THERE, ids=" ".join)
def test_a_reading_command_makes_no_store_and_says_that_there_is_none(
    call: Callable[..., Call], file: Callable[..., None], tmp_path: Path, command: tuple[str, ...]
) -> None:
    file(gpu=2)

    done = call(*command)

    assert (done.code, done.out) == (3, "")
    assert f"There is no queue yet (SQLite file {tmp_path}/qo.db)" in " ".join(done.err.split())
    assert [path.name for path in tmp_path.iterdir()] == [".qo.toml"]


@pytest.mark.parametrize("command", [each for each in READING if each[0] not in ("job", "why", "apply")], ids=" ".join)
def test_a_reading_command_says_which_store_it_read_and_json_stays_alone(
    call: Callable[..., Call], submit: Callable[..., str], tmp_path: Path, command: tuple[str, ...]
) -> None:
    submit("echo")

    done, as_json = call(*command), call(*command, "--json")

    assert (done.code, done.err) == (0, f"(SQLite file {tmp_path}/qo.db)\n")
    assert as_json.err == ""


def test_on_redis_a_reading_command_makes_no_namespace_and_shows_no_password(
    call: Callable[..., Call], redis_url: str
) -> None:
    done = call("jobs", "--url", redis_url, "--namespace", "nobody-made-this")

    assert done.code == 3
    assert "There is no queue yet (Redis at" in " ".join(done.err.split())
    assert "namespace nobody-made-this" in " ".join(done.err.split())
    assert call("jobs", "--url", redis_url, "--namespace", "nobody-made-this").code == 3


@pytest.fixture
def redis_url() -> str:
    from tests.servers.redis import shared_server

    return shared_server("valkey").url
