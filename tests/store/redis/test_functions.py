"""How the library is put together from its files, and that servers take the real one as it is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qo.store.redis.server import functions
from tests.servers.redis import Kind
from tests.store.redis.redis_calls import KINDS, on_shared

STEP = "-- exports begin\nlocal function begin(keys, argv, operation)\n  return operation(argv)\nend\n"

Put = Callable[[str, str], None]


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Put]:
    """Puts files into a package of the test's own, from which the library is then made."""
    package = tmp_path / f"functions_{tmp_path.name}"  # of its own name: Python keeps packages it has seen
    (package / "lib").mkdir(parents=True)
    (package / "operations").mkdir()
    (package / "__init__.py").touch()
    (package / "lib" / "step.lua").write_text(STEP)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(functions, "PACKAGE", package.name)

    def forget() -> None:
        functions.library.cache_clear()
        functions.function.cache_clear()

    def put_file(name: str, text: str) -> None:
        (package / name).write_text(text)

    forget()
    yield put_file
    forget()


async def answer(kind: Kind, operation: str, *arguments: str) -> Any:
    async with on_shared(kind) as client:
        return await client.run(functions.function(operation), arguments)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_file_knows_what_it_includes_by_what_that_exports(put: Put, kind: Kind) -> None:
    put("lib/a.lua", "-- include lib/step.lua\n-- exports a, TWO\nlocal a, TWO = {}, 2\nfunction a.one() return 1 end")
    put("lib/b.lua", "-- include lib/a.lua\n-- exports b\nlocal function b() return a.one() + TWO end\n")
    put("operations/add.lua", "-- include lib/b.lua\n-- include lib/a.lua\nreturn {a.one(), b(), arguments[1]}\n")
    put("operations/other.lua", "-- include lib/b.lua\nreturn b()\n")

    assert await answer(kind, "add", "x") == [1, 3, b"x"]
    assert await answer(kind, "other") == 3


def test_what_a_file_does_not_export_is_its_own(put: Put) -> None:
    put("lib/a.lua", "-- include lib/step.lua\n-- exports a\nlocal hidden = 1\nlocal a = hidden\n")
    put("operations/add.lua", "-- include lib/a.lua\nreturn hidden\n")

    assert "exported.hidden" not in functions.library().text


async def test_flags_say_in_which_states_of_the_server_a_function_runs(put: Put) -> None:
    put("operations/add.lua", "-- flags no-writes, allow-stale\n-- include lib/step.lua\nreturn 1\n")

    assert "flags = { 'no-writes', 'allow-stale' }" in functions.library().text
    assert await answer("valkey", "add") == 1


def test_comments_and_blank_lines_are_left_out(put: Put) -> None:
    put("operations/add.lua", "-- add: numbers.\n--\n-- include lib/step.lua\n\n  -- why\nreturn 1 -- one\n")

    text = functions.library().text
    assert "why" not in text
    assert "return 1 -- one" in text
    assert "\n\n" not in text


def test_each_file_is_put_in_once(put: Put) -> None:
    put("lib/a.lua", "-- include lib/step.lua\n-- include lib/b.lua\n-- exports a\nlocal a = 'a once'\n")
    put("lib/b.lua", "-- include lib/a.lua\n-- exports b\nlocal b = 'b once'\n")
    for operation in ("one", "two"):
        put(f"operations/{operation}.lua", "-- include lib/a.lua\n-- include lib/b.lua\nreturn a\n")

    text = functions.library().text
    assert (text.count("'a once'"), text.count("'b once'")) == (1, 1)


def test_a_missing_file_is_named_with_who_wants_it(put: Put) -> None:
    put("operations/claim.lua", "-- include lib/gruops.lua\n")

    with pytest.raises(AssertionError, match=r"operations/claim\.lua wants lib/gruops\.lua, which is not in"):
        functions.library()
    with pytest.raises(AssertionError, match=r"no operation 'clami'"):
        functions.function("clami")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("local b = 1\n", r"lib/b\.lua is included and exports nothing"),
        ("-- exports a\nlocal a = 1\n", r"lib/b\.lua exports a, as lib/a\.lua does"),
    ],
)
def test_an_included_file_exports_something_of_its_own(put: Put, text: str, said: str) -> None:
    put("lib/a.lua", "-- include lib/step.lua\n-- exports a\nlocal a = 1\n")
    put("lib/b.lua", text)
    put("operations/claim.lua", "-- include lib/a.lua\n-- include lib/b.lua\nreturn 1\n")

    with pytest.raises(AssertionError, match=said):
        functions.library()


def test_a_library_is_named_by_its_content_and_made_once(put: Put) -> None:
    put("operations/add.lua", "-- include lib/step.lua\nreturn 1\n")
    first = functions.library()
    assert functions.library() is first

    functions.library.cache_clear()
    put("operations/add.lua", "-- include lib/step.lua\nreturn 2\n")
    assert functions.library().name != first.name


@pytest.mark.parametrize("kind", KINDS)
async def test_servers_take_the_library_and_every_operation_is_in_it(kind: Kind) -> None:
    library = functions.library()
    async with on_shared(kind) as client:
        assert await client.command("FUNCTION", "LOAD", "REPLACE", library.text) == library.name.encode()
        listed = await client.command("FUNCTION", "LIST", "LIBRARYNAME", library.name)

    names = {function.name for function in map(functions.function, functions.operations())}
    assert {name for name in names if name.encode() not in str(listed).encode()} == set()
    assert "claim" in functions.operations()
