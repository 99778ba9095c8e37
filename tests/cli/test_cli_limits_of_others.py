"""Two folders with a file each and one store: commands that only read change no limit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.processes import Process

LIMITED_APP = """
import asyncio, os
import qo

HERE = os.path.dirname(os.path.abspath(__file__))

def note(sign):
    with open(os.path.join(HERE, "witness"), "a") as file:
        file.write(sign)

def worker(queue):
    worker = qo.Worker(queue)

    @worker.task("ask", groups=["provider:ollama"])
    async def ask(data, ctx):
        note("+")
        print("ask has begun", flush=True)
        while not os.path.exists(os.path.join(HERE, "go")):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        note("-")

    return worker
"""


@pytest.fixture
def production(tmp_path: Path) -> Path:
    """A folder whose file gives the group two slots."""
    return folder_with(tmp_path, "production", 'limits = { "provider:ollama" = 2 }')


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """Another folder on the same store, whose file gives the group 99 slots."""
    return folder_with(tmp_path, "elsewhere", 'limits = { "provider:ollama" = 99 }')


def folder_with(tmp_path: Path, name: str, concurrency: str) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    (folder / ".qo.toml").write_text(f'[store]\nurl = "sqlite:///{tmp_path}/qo.db"\n\n[concurrency]\n{concurrency}\n')
    (folder / "app.py").write_text(LIMITED_APP)
    return folder


def most_at_once(folder: Path) -> int:
    inside = most = 0
    for sign in (folder / "witness").read_text():
        inside += 1 if sign == "+" else -1
        most = max(most, inside)
    return most


READING = [
    ("jobs",),
    ("jobs", "--json"),
    ("queue", "list"),
    ("concurrency", "status"),
    ("concurrency", "status", "provider:ollama"),
    ("usage", "ada"),
    ("why", "j0"),
    ("job", "j0"),
]


def test_reading_commands_in_another_folder_change_no_limit_and_never_more_run_than_it_allows(
    call: Callable[..., Call], start: Callable[..., Process], production: Path, elsewhere: Path
) -> None:
    process = start("worker", "app:worker", folder=production)
    process.until("runs ask")
    for number in range(6):
        assert call("submit", "ask", "--id", f"j{number}", folder=production).code == 0
    process.until("ask has begun")
    process.until("ask has begun")
    before = state_of(call, production)

    for command in READING:
        assert call(*command, folder=elsewhere).code == 0
    after = state_of(call, production)
    (production / "go").touch()
    for number in range(6):
        assert call("job", f"j{number}", "--watch", "--json", folder=elsewhere).code == 0

    assert before == after
    assert before["limit"] == 2
    assert most_at_once(production) == 2


def state_of(call: Callable[..., Call], folder: Path) -> dict[str, object]:
    """The status of the group, and the whole audit trail."""
    status = call("concurrency", "status", "provider:ollama", "--json", folder=folder).json
    return {"limit": status["limit"], "source": status["source"], "audit": audit_of(folder)}


def audit_of(folder: Path) -> list[tuple[object, ...]]:
    import asyncio

    import qo

    async def read() -> list[tuple[object, ...]]:
        async with await qo.connect(f"sqlite:///{folder.parent}/qo.db", settings={}) as queue:
            return [(entry.by, entry.action, entry.subject, entry.detail) for entry in await queue.audit()]

    return asyncio.run(read())
