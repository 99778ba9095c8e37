"""Slots on a real S3 server, seen by contenders with clocks of their own. Nobody waits: clocks are put forward."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import obstore
import pytest
from obstore.store import S3Store

from qo.store.bucket import BucketSlots
from tests.servers.bucket import BUCKET, BucketServer, bucket_url, shared_bucket_server
from tests.store.bucket.proxy import Proxy

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LEASE = 300.0


@dataclass
class Clock:
    """Of one machine: how long it has been up, and what its clock on the wall is wrong by."""

    elapsed: float = 1000.0
    wrong_by: timedelta = timedelta()
    pauses: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.elapsed

    def wall(self) -> datetime:
        return NOON + timedelta(seconds=self.elapsed) + self.wrong_by

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


@dataclass
class Place:
    """A prefix that one test has for itself."""

    server: BucketServer
    prefix: str

    async def slots(
        self,
        clock: Clock | None = None,
        *,
        through: Proxy | None = None,
        request_seconds: float = 10.0,
        sleep: Callable[[float], Awaitable[None]] | None = None,
    ) -> BucketSlots:
        """`sleep` is called for the pause between two attempts, instead of the clock's."""
        clock = clock or Clock()
        port = through.port if through else self.server.port
        return await BucketSlots.open(
            bucket_url(port, self.prefix),
            clock=clock,
            wall_clock=clock.wall,
            sleep=sleep or clock.sleep,
            request_seconds=request_seconds,
        )


@pytest.fixture(name="place")
def place_fixture() -> Place:
    return Place(shared_bucket_server(), f"test/{uuid.uuid4().hex}")


@pytest.fixture(name="slots")
async def slots_fixture(place: Place) -> BucketSlots:
    return await place.slots()


@pytest.fixture(name="proxy")
async def proxy_fixture(place: Place) -> AsyncIterator[Proxy]:
    async with Proxy.before(place.server.port) as proxy:
        yield proxy


async def acquire(
    slots: BucketSlots, holder: str = "h", *, group: str = "api", limit: int | None = 1, lease: float = LEASE
) -> int | None:
    return await slots.try_acquire(group, limit, holder, "w", lease)


async def holders(slots: BucketSlots, group: str = "api") -> list[str]:
    return [slot.holder for slot in (await slots.get_status(group)).slots]


def objects_at(port: int, prefix: str) -> dict[str, bytes]:
    """All objects below a prefix, as another program sees them."""
    bucket = _bucket_at(port)
    keys = [each["path"] for each in obstore.list(bucket, prefix).collect()]
    return {key.removeprefix(f"{prefix}/"): bytes(obstore.get(bucket, key).bytes()) for key in keys}


def put_object(place: Place, key: str, body: bytes) -> None:
    """Write an object below the prefix, as another program does."""
    obstore.put(_bucket_at(place.server.port), f"{place.prefix}/{key}", body, mode="create")


def _bucket_at(port: int) -> S3Store:
    return S3Store(
        BUCKET,
        config={"endpoint": f"http://127.0.0.1:{port}", "access_key_id": "x", "secret_access_key": "x"},
        client_options={"allow_http": True},
    )
