"""How a script is put together from its files, and that servers take the real ones as they are sent."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

import pytest
from redis_calls import KINDS, on_shared
from servers import Kind

from qo.store.redis import scripts

OPERATIONS = sorted(
    file.name.removesuffix(".lua") for file in resources.files(scripts.PACKAGE).iterdir() if file.name.endswith(".lua")
)

Put = Callable[[str, str], None]


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Put]:
    """Puts files into a package of the test's own, from which scripts are then read."""
    package = tmp_path / f"scripts_{tmp_path.name}"  # of its own name: Python keeps packages it has seen
    (package / "lib").mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(scripts, "PACKAGE", package.name)
    scripts.script.cache_clear()
    yield lambda name, text: (package / name).write_text(text) and None
    scripts.script.cache_clear()


def test_included_files_are_put_in_once_where_they_are_first_mentioned(put: Put) -> None:
    put("lib/keys.lua", "keys\n")
    put("lib/groups.lua", "-- include lib/keys.lua\ngroups\n")
    put("lib/line.lua", "-- include lib/groups.lua\n-- include lib/keys.lua\nline\n")
    put("claim.lua", "first\n-- include lib/line.lua\nsecond\n-- include lib/groups.lua\nthird\n")

    assert scripts.script("claim").text == "first\nkeys\ngroups\nline\nsecond\nthird\n"


def test_files_that_include_each_other_are_put_in_once(put: Put) -> None:
    put("lib/a.lua", "-- include lib/b.lua\na\n")
    put("lib/b.lua", "-- include lib/a.lua\nb\n")
    put("claim.lua", "-- include lib/a.lua\n")

    assert scripts.script("claim").text == "b\na\n"


def test_the_flags_come_first_and_comments_and_blank_lines_are_left_out(put: Put) -> None:
    put("lib/keys.lua", "-- Keys of the store.\n\nlocal x = 1 -- one\n")
    put("claim.lua", "#!lua flags=allow-oom\n-- claim: take jobs.\n--\n-- include lib/keys.lua\n\n  -- why\nreturn x\n")

    assert scripts.script("claim").text == "#!lua flags=allow-oom\nlocal x = 1 -- one\nreturn x\n"


def test_a_missing_file_is_named_with_who_wants_it(put: Put) -> None:
    put("claim.lua", "-- include lib/gruops.lua\n")

    with pytest.raises(AssertionError, match=r"claim\.lua wants lib/gruops\.lua, which is not in"):
        scripts.script("claim")
    with pytest.raises(AssertionError, match=r"wants clami\.lua, which is not in"):
        scripts.script("clami")


def test_an_included_file_cannot_have_flags(put: Put) -> None:
    put("lib/keys.lua", "#!lua flags=no-writes\n")
    put("claim.lua", "-- include lib/keys.lua\n")

    with pytest.raises(AssertionError, match=r"lib/keys\.lua is included and cannot have flags"):
        scripts.script("claim")


def test_a_script_is_put_together_once(put: Put) -> None:
    put("claim.lua", "return 1\n")
    once = scripts.script("claim")

    assert scripts.script("claim") is once
    assert once.sha == hashlib.sha1(b"return 1\n").hexdigest()


@pytest.mark.parametrize("kind", KINDS)
async def test_servers_take_every_script_and_know_it_by_the_same_name(kind: Kind) -> None:
    assert "claim" in OPERATIONS
    async with on_shared(kind) as client:
        for name in OPERATIONS:
            script = scripts.script(name)
            assert await client.command("SCRIPT", "LOAD", script.text) == script.sha.encode(), name
