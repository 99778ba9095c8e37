"""From a url and a namespace to a store: what is understood, and what is refused with how to write it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import qo
import qo.sync
from qo.store.open import open_store

NOBODY = 65534
HOW_TO_WRITE_IT = "write sqlite:///x.db for a file in the working directory, or sqlite:////x.db for the absolute path"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "sqlite:/x.db",
            HOW_TO_WRITE_IT,
        ),
        (
            "sqlite:x.db",
            HOW_TO_WRITE_IT,
        ),
        ("sqlite://x.db", HOW_TO_WRITE_IT),
        ("sqlite:///x.db?mode=ro", "a file's path has no options, and its ? and # are written as %3F and %23."),
        ("sqlite:///x.db#1", "a file's path has no options, and its ? and # are written as %3F and %23."),
        ("sqlite:///", "use sqlite:///path/to/qo.db, memory://,"),
        ("sqlite:", "use sqlite:///path/to/qo.db, memory://,"),
        ("memory:", "use sqlite:///path/to/qo.db, memory://,"),
        ("memory://x", "use sqlite:///path/to/qo.db, memory://,"),
        ("x.db", "use sqlite:///path/to/qo.db, memory://,"),
        ("http://[", "use sqlite:///path/to/qo.db, memory://,"),
    ],
)
async def test_a_url_that_could_be_misread_is_refused_with_how_to_write_it(
    url: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(qo.SettingsError) as refused:
        await open_store(url)

    assert str(refused.value).startswith(f"store.url is {url!r}; ")
    assert said in str(refused.value)
    assert os.listdir(tmp_path) == []


async def test_the_password_of_a_url_that_no_store_understands_is_not_shown() -> None:
    with pytest.raises(qo.SettingsError) as refused:
        await open_store("postgresql://ada:hunter2@db/qo")

    assert str(refused.value).startswith("store.url is 'postgresql://db/qo'; use ")


async def test_a_path_is_that_of_an_sqlite_file(tmp_path: Path) -> None:
    odd = tmp_path / "50% of?#.db"
    async with await qo.connect(odd) as queue:
        await queue.submit("greet")

    assert odd.exists()


# --- namespaces ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("namespace", "file"),
    [
        ("default", "qo.db"),
        ("team-a", "qo.team-a.db"),
        ("Team_7.b", "qo.Team_7.b.db"),
        ("..", "qo....db"),
        ("../outside", "qo...%2Foutside.db"),
        ("/etc/x", "qo.%2Fetc%2Fx.db"),
        ("a\\b", "qo.a%5Cb.db"),
        ("a%2Fb", "qo.a%252Fb.db"),
        ("käse ~", "qo.k%C3%A4se%20%7E.db"),
    ],
)
async def test_a_namespace_is_a_file_beside_the_named_one_whatever_it_is_called(
    namespace: str, file: str, tmp_path: Path
) -> None:
    (tmp_path / "inside").mkdir()
    async with await qo.connect(f"sqlite:///{tmp_path}/inside/qo.db", namespace=namespace):
        pass

    assert os.listdir(tmp_path) == ["inside"]
    assert os.listdir(tmp_path / "inside") == [file]


async def test_a_namespace_that_is_too_long_for_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(qo.SettingsError, match="too long for the name of a file; use at most 150 plain letters"):
        await qo.connect(f"sqlite:///{tmp_path}/qo.db", namespace="ä" * 30)


# --- a file that cannot be written --------------------------------------------------------------------------------


@contextmanager
def without_rights() -> Iterator[None]:
    """Rights of files do not bind root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture(params=["file", "file and folder"])
def read_only(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The url of a file that may be read."""
    url = f"sqlite:///{tmp_path}/qo.db"
    with qo.sync.connect(url) as queue:
        queue.submit("greet")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.is_relative_to("/tmp") and folder != Path("/tmp") and folder.owner() == tmp_path.owner():
            folder.chmod(0o755)
    (tmp_path / "qo.db").chmod(0o444)
    tmp_path.chmod(0o777 if request.param == "file" else 0o555)
    return url


async def test_a_file_that_cannot_be_written_is_told_in_a_sentence(read_only: str) -> None:
    with without_rights(), pytest.raises(qo.StoreUnavailable, match=r"^/.*qo\.db cannot be (written|opened)"):
        async with await qo.connect(read_only) as queue:
            await queue.submit("greet")


def test_the_command_ends_with_code_3_and_a_sentence(read_only: str) -> None:
    """In a process of its own, which gives up its rights when everything is loaded."""
    program = """
import os, sys
import qo.cli.main
read_only = sys.argv[1]
def submit(url):
    sys.argv = ["qo", "submit", "greet", "--url", url]
    qo.cli.main.main()
try:
    submit("memory://")
except SystemExit:
    pass
if os.geteuid() == 0:
    os.seteuid(65534)
submit(read_only)
"""
    # Without its rights, a process could not write down which of its lines were covered.
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    ended = subprocess.run(
        [sys.executable, "-c", program, read_only],
        cwd="/",
        env=unmeasured,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 3, ended.stderr
    assert "cannot be" in ended.stderr
    assert "Traceback" not in ended.stderr


async def test_a_file_that_is_broken_is_told_in_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "qo.db"
    queue = await qo.connect(file)
    for number in range(50):
        await queue.submit("greet", "x" * 5000, id=f"job-{number}")
    await queue.close()
    content = bytearray(file.read_bytes())
    content[4096 * 2 :] = b"\xff" * (len(content) - 4096 * 2)
    file.write_bytes(content)

    with pytest.raises(qo.StoreUnavailable, match=r"qo\.db cannot be (used|opened)|could not write"):
        async with await qo.connect(file) as broken:
            await broken.jobs()
