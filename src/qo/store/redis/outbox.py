"""The outbox on Redis: `lib/outbox.lua` adds to it."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable

from qo.store.outbox import OutboxEntry, OutboxOptions, OutboxPortion, OutboxStatus
from qo.store.redis.calling import Given
from qo.store.redis.rows import Reply


class RedisOutbox:
    def __init__(self, run: Callable[[str, Given], Awaitable[Reply]], *, namespace: str) -> None:
        """`run` calls an operation by its name."""
        self._run = run
        self.namespace = namespace

    async def configure(self, options: OutboxOptions) -> None:
        await self._run("outbox_set", {"most": options.most, "drops": options.drops, "payloads": options.payloads})

    async def next(
        self, recorded: OutboxEntry | None, *, after: OutboxEntry | None = None, entries: int, bytes_at_most: int
    ) -> OutboxPortion:
        known = {
            "recorded": None if recorded is None else _sign(recorded),
            "after": None if after is None else _sign(after),
        }
        reply = await self._run("outbox_read", {**known, "entries": entries, "bytes": bytes_at_most})
        found = enumerate(reply.answer["ids"], start=1)
        return OutboxPortion(
            entries=tuple(OutboxEntry(int(id_), reply.blob(number)) for number, id_ in found),
            length=reply.answer["length"],
        )

    async def status(self) -> OutboxStatus:
        answer = (await self._run("outbox_status", {})).answer
        return OutboxStatus(
            options=OutboxOptions(most=answer["most"], drops=answer["drops"], payloads=answer["payloads"]),
            length=answer["length"],
            dropped=answer["dropped"],
            age_seconds=answer["age_ms"] / 1000,
        )


def _sign(entry: OutboxEntry) -> dict[str, str]:
    return {"id": str(entry.id), "sha1": hashlib.sha1(entry.packed, usedforsecurity=False).hexdigest()}
