"""What is found out about a store before it is trusted, and the servers that the tests themselves trust."""

from __future__ import annotations

import asyncio
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qo.errors import SettingsError, StoreUnavailable
from qo.store.bucket import BucketSlots
from qo.store.bucket.address import parse_bucket_url
from qo.store.bucket.driver import client_for
from tests.processes import environment
from tests.servers.bucket import BUCKET, CarelessServer, bucket_url, shared_bucket_server
from tests.servers.local import PATIENCE_SECS, POLL_SECS
from tests.store.bucket.proxy import LOST_REPLY, Fault, Proxy, done_but_answered, refused
from tests.store.bucket.staging import Clock, Place, objects_at, place_fixture, proxy_fixture

__all__ = ["place_fixture", "proxy_fixture"]

STARTED_ELSEWHERE = """
import sys
from tests.servers.bucket import BucketServer
server = BucketServer()
server.start()
print(server.pid, server.folder, flush=True)
sys.stdin.read()
"""


async def test_a_store_that_ignores_conditions_is_refused_by_name_and_left_clean() -> None:
    with CarelessServer() as careless:
        with pytest.raises(StoreUnavailable, match=rf"s3://{BUCKET}/limits at .*:{careless.port} does not keep cond"):
            await BucketSlots.open(careless.url("limits"), sleep=Clock().sleep)

        assert objects_at(careless.port, "limits") == {}


@pytest.mark.parametrize("condition", ["If-None-Match", "If-Match"])
async def test_a_store_that_ignores_one_of_the_conditions_is_refused(
    place: Place, proxy: Proxy, condition: str
) -> None:
    proxy.drop_header(condition)

    with pytest.raises(StoreUnavailable, match=rf"does not keep conditions.*{condition}"):
        await place.slots(through=proxy)

    assert objects_at(place.server.port, place.prefix) == {}


async def test_a_store_that_keeps_conditions_is_accepted_and_left_clean(place: Place) -> None:
    await place.slots()

    assert objects_at(place.server.port, place.prefix) == {}


@pytest.mark.parametrize("fault", [refused(500), refused(503), done_but_answered(500), LOST_REPLY], ids=repr)
async def test_a_good_store_on_a_bad_day_is_accepted(place: Place, proxy: Proxy, fault: Fault) -> None:
    proxy.plan("PUT", fault, path="/probes/")
    proxy.plan("DELETE", fault, path="/probes/")

    await place.slots(through=proxy)

    assert proxy.all_happened
    assert objects_at(place.server.port, place.prefix) == {}


async def test_many_can_begin_at_once(place: Place) -> None:
    await asyncio.gather(*(place.slots() for _ in range(10)))

    assert objects_at(place.server.port, place.prefix) == {}


async def test_a_bucket_that_does_not_exist_is_told_at_once() -> None:
    clock = Clock()
    url = bucket_url(shared_bucket_server().port).replace(BUCKET, "no-such-bucket")

    with pytest.raises(StoreUnavailable, match=r"no-such-bucket.*make the bucket first"):
        await BucketSlots.open(url, sleep=clock.sleep)

    assert clock.pauses == []


async def test_the_url_may_leave_everything_to_the_environment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{place.server.port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")

    slots = await BucketSlots.open(f"s3://{BUCKET}/{place.prefix}")

    assert await slots.try_acquire("api", 1, "h", None, 60) == 0


async def test_a_wrong_region_is_told() -> None:
    url = bucket_url(shared_bucket_server().port).replace("us-east-1", "eu-west-1")

    with pytest.raises(StoreUnavailable, match="name the region"):
        await BucketSlots.open(url, sleep=Clock().sleep)


async def test_an_endpoint_of_the_url_wins_over_the_environments(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")

    assert await (await place.slots()).try_acquire("api", 1, "h", None, 60) == 0


@pytest.mark.parametrize(
    "url",
    [
        "s3://limits/x?region=eu-west-1&access_key_id=a&secret_access_key=b&session_token=c&endpoint=https://host",
        "gs://limits/x?endpoint=https://host",
        "az://limits/x?account_name=a&account_key=YQ==&endpoint=https://host",
    ],
)
def test_every_option_is_one_that_the_driver_knows(url: str) -> None:
    assert client_for(parse_bucket_url(url), request_seconds=1) is not None


async def test_what_the_driver_finds_wrong_with_the_url_is_told() -> None:
    with pytest.raises(SettingsError, match=r"concurrency\.store az://limits cannot be used"):
        await BucketSlots.open("az://limits")


def test_a_server_of_the_tests_ends_with_the_process_that_started_it() -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTED_ELSEWHERE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
    )
    with starter:
        assert starter.stdout is not None
        pid, folder = starter.stdout.readline().split()
        server = os.pidfd_open(int(pid))
        starter.kill()

    try:
        assert select.select([server], [], [], PATIENCE_SECS)[0], "it outlived its process"
    finally:
        os.close(server)
    deadline = time.monotonic() + PATIENCE_SECS
    while Path(folder).exists() and time.monotonic() < deadline:
        time.sleep(POLL_SECS)  # the watchdog removes it after the kill, and nobody tells when
    assert not Path(folder).exists()
