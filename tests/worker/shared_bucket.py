"""A bucket on a real S3 server that keeps the slots of one group, and queues apart from each other that share it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import qo
from qo.store.bucket import BucketSlots
from tests.servers.bucket import shared_bucket_server

GROUP = "provider:openai"


@pytest.fixture(name="bucket_url")
def bucket_url_fixture() -> str:
    return shared_bucket_server().url(f"shared-{secrets.token_hex(6)}")


@pytest.fixture(name="bucket")
async def bucket_fixture(bucket_url: str) -> AsyncIterator[BucketSlots]:
    opened = await BucketSlots.open(bucket_url)
    yield opened
    await opened.close()


@pytest.fixture(name="settings")
def settings_fixture(bucket_url: str) -> dict[str, Any]:
    return {
        "concurrency": {"store": bucket_url, "shared_groups": [GROUP], "limits": {GROUP: 2}},
        "worker": {"grace_secs": 5},
    }


@pytest.fixture(name="queues")
async def queues_fixture(settings: dict[str, Any], tmp_path: Path) -> AsyncIterator[list[qo.Queue]]:
    """Three machines with a local queue each."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(await qo.connect(f"sqlite:///{tmp_path}/{n}.db", settings=settings))
            for n in range(3)
        ]


async def held(bucket: BucketSlots) -> int:
    return (await bucket.get_status(GROUP)).active
