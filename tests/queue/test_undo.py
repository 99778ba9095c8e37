"""Undo, with another change in the moment between its look at the audit trail and its own change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import qo
from qo.errors import UndoRefused

Change = Callable[[qo.Queue], Awaitable[object]]

CHANGES: dict[str, tuple[str, Change, Change]] = {
    "priority": (
        "a",
        lambda queue: queue.set_priority("a", "high"),
        lambda queue: queue.set_priority("a", "low"),
    ),
    "move": ("a", lambda queue: queue.move("a", after="b"), lambda queue: queue.move("a", after="c")),
    "limit": ("gpu", lambda queue: queue.set_limit("gpu", 3), lambda queue: queue.set_limit("gpu", 7)),
    "pause": ("gpu", lambda queue: queue.pause("gpu"), lambda queue: _resumed_and_paused(queue)),
}


async def _resumed_and_paused(queue: qo.Queue) -> None:
    await queue.resume("gpu")
    await queue.pause("gpu")


def before_the_first_write(monkeypatch: pytest.MonkeyPatch, queue: qo.Queue, other: Change) -> list[str]:
    """Makes the other change when the undo is about to write. Returns what the undo wrote with."""
    written: list[str] = []

    def interfered(name: str) -> Callable[..., Awaitable[Any]]:
        write = getattr(queue.store, name)

        async def later(*args: Any, **kwargs: Any) -> Any:
            if not written:
                written.append(name)
                await other(queue)
            return await write(*args, **kwargs)

        return later

    for name in ("set_priority", "move", "set_limits", "set_paused"):
        monkeypatch.setattr(queue.store, name, interfered(name))
    return written


@pytest.mark.parametrize("action", CHANGES)
async def test_a_change_that_comes_in_between_is_not_undone(
    queue: qo.Queue, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job_id in ("a", "b", "c"):
        await queue.submit("build", id=job_id)
    subject, change, other = CHANGES[action]
    await change(queue)
    (entry, *_) = await queue.audit(subject, limit=1)
    written = before_the_first_write(monkeypatch, queue, other)

    with pytest.raises(UndoRefused, match=f"changed again since entry {entry.id}"):
        await queue.undo(entry.id)

    assert written
    newest = (await queue.audit(subject, limit=1))[0]
    assert (newest.action, newest.id > entry.id) == (action, True)
    assert (await queue.get("a")).priority == {"priority": 70}.get(action, 50)
    status = await queue.limit("gpu")
    assert (status.limit, status.paused) == {"limit": (7, False), "pause": (None, True)}.get(action, (None, False))
