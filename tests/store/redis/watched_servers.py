"""A primary and its replica, watched over by three sentinels."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from redis import Redis

from tests.servers.redis import Kind, Server
from tests.store.redis.redis_calls import eventually

NAME = "main"


@dataclass(frozen=True)
class Watched:
    primary: Server
    replica: Server
    sentinels: tuple[Server, ...]

    @property
    def url(self) -> str:
        return f"redis+sentinel://{self.hosts}/{NAME}"

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)

    def promote_the_replica(self) -> None:
        """As an operator does it; the primary lives on, and is told only seconds later that it is none any more."""
        with Redis(port=self.sentinels[0].port) as sentinel:
            sentinel.execute_command("SENTINEL FAILOVER", NAME)

    def has_replicated(self) -> bool:
        with Redis(port=self.primary.port) as client:
            return bool(client.wait(1, 100) == 1)


@asynccontextmanager
async def watched(kind: Kind, *, password: str | None = None) -> AsyncIterator[Watched]:
    """Entered when every sentinel knows the others and the replica, without which none would promote it.
    `password`: what the sentinels ask for."""
    with ExitStack() as running:
        primary = running.enter_context(Server(kind, config=["repl-diskless-sync-delay 0"]))
        replica = running.enter_context(Server(kind, config=[f"replicaof 127.0.0.1 {primary.port}"]))
        lines = [
            f"sentinel monitor {NAME} 127.0.0.1 {primary.port} 2",
            f"sentinel down-after-milliseconds {NAME} 500",
            f"sentinel failover-timeout {NAME} 5000",
            *([f"requirepass {password}", f"sentinel sentinel-pass {password}"] if password else []),
        ]
        sentinels = tuple(running.enter_context(Server(kind, config=lines, sentinel=True)) for _ in range(3))
        for sentinel in sentinels:
            await eventually(partial(_knows_all, sentinel, password))
        yield Watched(primary, replica, sentinels)


def _knows_all(sentinel: Server, password: str | None) -> bool:
    with Redis(port=sentinel.port, password=password) as client:
        told = client.execute_command("SENTINEL MASTER", NAME)
    return (int(told["num-other-sentinels"]), int(told["num-slaves"])) == (2, 1)
