"""API keys from a terminal."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import qo
from qo.service.access.keys import Key, Keys
from tests.cli.conftest import Call

IMPORTS_THE_COMMAND = "import sys, qo.cli.keys; print(*sys.modules)"


def found(folder: Path, text: str) -> Key | None:
    """The key with this text, as a server would find it."""

    async def find() -> Key | None:
        async with await qo.connect(f"sqlite:///{folder}/qo.db", settings={}) as queue:
            keys = Keys(queue.store)
            key = await keys.find(text)
            await keys.close()
            return key

    return asyncio.run(find())


def test_a_key_is_printed_once_and_a_server_knows_it(call: Callable[..., Call], tmp_path: Path) -> None:
    made = call("keys", "create", "--role", "admin")
    text = made.out.strip()
    key = found(tmp_path, text)

    assert made.code == 0
    assert key is not None
    assert (key.role, key.user, key.expires_at) == ("admin", None, None)
    assert text == f"qo_{key.id}_{text.split('_', 2)[2]}"
    assert made.err == f"This key is shown only now; keep it safe. Its id is {key.id}.\n"


def test_a_key_of_a_user_has_its_user_project_and_expiry(call: Callable[..., Call], tmp_path: Path) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    options = ("--role", "user", "--user", "ada", "--project", "p1", "--expires", "90d")

    made = call("keys", "create", *options, "--json").json
    key = found(tmp_path, made["key"])

    assert key is not None
    assert (key.id, key.role, key.user, key.project) == (made["id"], "user", "ada", "p1")
    assert key.expires_at is not None
    assert before <= key.expires_at - timedelta(days=90) <= datetime.now(UTC)


def test_the_list_shows_the_keys_and_no_secret(call: Callable[..., Call], tmp_path: Path) -> None:
    user = call("keys", "create", "--role", "user", "--user", "ada", "--project", "p1", "--json").json
    viewer = call("keys", "create", "--role", "viewer", "--expires", "2090-12-31T18:00:00Z", "--json").json
    found(tmp_path, viewer["key"])

    listed, programs = call("keys", "list"), call("keys", "list", "--json")

    header, first, second = listed.out.splitlines()
    assert header.split() == ["id", "role", "user", "project", "expires", "last", "used"]
    assert first.split() == [user["id"], "user", "ada", "p1", "never", "never"]
    assert second.startswith(f"{viewer['id']}  viewer")
    assert "2090-12-31 18:00:00 UTC" in second
    assert f"{datetime.now(UTC):%Y-}" in second  # its last use
    assert [key["id"] for key in programs.json] == [user["id"], viewer["id"]]
    assert programs.json[0] | {"created_at": None} == {
        "id": user["id"],
        "role": "user",
        "user": "ada",
        "project": "p1",
        "created_at": None,
        "expires_at": None,
        "last_used_at": None,
        "revoked_at": None,
    }
    for made in (user, viewer):
        secret = made["key"].split("_", 2)[2]
        assert secret not in listed.out + programs.out


def test_without_keys_the_list_says_what_that_means(call: Callable[..., Call], empty_store: None) -> None:
    assert "everybody on it is an admin" in call("keys", "list").out
    assert call("keys", "list", "--json").json == []


def test_a_revoked_key_is_refused_and_stays_in_the_list(call: Callable[..., Call], tmp_path: Path) -> None:
    first, second = (call("keys", "create", "--role", "admin", "--json").json for _ in range(2))

    one = call("keys", "revoke", first["id"])
    last = call("keys", "revoke", second["id"])
    again = call("keys", "revoke", first["id"], "--json")

    sentence = "Revoked key {}; every server refuses it within 5 seconds.\n"
    assert one.out == sentence.format(first["id"])
    assert last.out == sentence.format(second["id"]) + (
        "No valid key is left, so the service refuses everybody; make one with qo keys create.\n"
    )
    assert found(tmp_path, first["key"]) is None
    listed = call("keys", "list", "--json").json
    assert [key["id"] for key in listed if key["revoked_at"]] == [first["id"], second["id"]]
    assert again.json == listed[0]


def test_an_unknown_key_cannot_be_revoked(call: Callable[..., Call], empty_store: None) -> None:
    done = call("keys", "revoke", "nobody")

    assert done.code == 1
    assert done.err == "Error: There is no key 'nobody'; `qo keys list` shows the ids of all keys.\n"


def test_watch_links_are_made_void(call: Callable[..., Call], empty_store: None) -> None:
    people, programs = call("keys", "rotate-watch"), call("keys", "rotate-watch", "--json")

    assert people.out == "All watch links that were given out until now are void on every server within 5 seconds.\n"
    assert programs.json == {"rotated": "watch"}


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ([], "Missing option '--role'"),
        (["--role", "boss"], "'admin', 'viewer', 'user'"),
        (["--role", "user"], "name that user"),
        (["--role", "viewer", "--user", "ada"], "only a key of role user has one"),
        (["--role", "admin", "--project", "p1"], "only a key of role user has one"),
        (["--role", "admin", "--expires", "soon"], "s, m, h or d"),
        (["--role", "admin", "--expires", "0"], "give a time in the future"),
        (["--role", "admin", "--expires", "2020-01-01T00:00:00Z"], "give a time in the future"),
    ],
)
def test_a_wrong_call_makes_no_key(
    call: Callable[..., Call], empty_store: None, arguments: list[str], hint: str
) -> None:
    done = call("keys", "create", *arguments)

    assert (done.code, done.out) == (2, "")
    assert hint in " ".join(done.err.split())
    assert call("keys", "list", "--json").json == []


def test_the_command_needs_no_library_of_the_service() -> None:
    imported = subprocess.run(
        [sys.executable, "-c", IMPORTS_THE_COMMAND], capture_output=True, text=True, check=True
    ).stdout.split()

    assert "qo.service.access.keys" in imported
    assert {"starlette", "fastapi", "uvicorn"}.isdisjoint(imported)
