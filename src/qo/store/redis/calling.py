"""How operations reach their functions, and what a refusal means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from qo.errors import InvalidTransition, JobNotFound, ParentNotFound, QoError
from qo.ids import new_mark
from qo.job import State
from qo.policy.lifecycle import allowed_after
from qo.store.redis.client import Client
from qo.store.redis.functions import function
from qo.store.redis.rows import Reply
from qo.store.values import Bounds

_encode = msgspec.msgpack.Encoder().encode
FIRST_BLOB = 3
"""the place of the first payload among the arguments of a function"""


class Calling:
    def __init__(self, client: Client, bounds: Bounds) -> None:
        self.client = client
        self.bounds = bounds

    async def _run(
        self,
        name: str,
        arguments: dict[str, Any],
        *,
        blobs: Sequence[bytes] = (),
        now: int | None = None,
        once: bool = False,
    ) -> Reply:
        """`once`: to be answered from memory when it is sent again, because doing it twice would not be the same."""
        arguments = {**arguments, "bounds": self.bounds, "now": now}
        operation = new_mark() if once else ""
        return Reply(await self.client.run(function(name), [_encode(arguments), operation, *blobs]))

    async def _command(self, command: str, key: str, *arguments: str | int) -> Any:
        """A plain command on one of this namespace's keys."""
        return await self.client.command(command, f"{self.client.prefix}{key}", *arguments)


def refused(reply: Reply) -> str | None:
    reason: str | None = reply.answer.get("refused")
    return reason


def check_refusal(reply: Reply, *, wanted: str, parent: str | None = None) -> None:
    """Raise what a refusal stands for; `wanted` is what the job could not become."""
    detail: Mapping[str, Any] = reply.answer.get("detail") or {}
    match refused(reply):
        case None:
            return
        case "no_job":
            raise JobNotFound(detail["id"])
        case "no_parent":
            assert parent is not None
            raise ParentNotFound(parent)
        case "wrong_state":
            state = detail["state"]
            raise InvalidTransition(f"Job {detail['id']!r}", state, wanted, allowed_after(State(state)))
        case reason:
            raise QoError(f"The store refused: {reason} {dict(detail)}.")
