"""A namespace of another qo is left alone, and code that the server forgot costs nothing."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import pytest
from redis import Redis

import qo
from qo.errors import StoreUnavailable
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.store.redis.store import SCHEMA, RedisStore
from tests.conformance.suite.harness import submit_all
from tests.servers.redis import Kind, Server, shared_server
from tests.store.redis.redis_calls import KINDS, new_namespace

JOBS = 40
AT_MOST_SECONDS = 30


@pytest.mark.parametrize("kind", KINDS)
async def test_a_namespace_of_a_newer_qo_is_refused_and_left_alone(kind: Kind) -> None:
    assert await refusal_of_a_namespace_left_alone(kind, schema=SCHEMA + 1) == (
        f"This namespace was written by a newer qo (schema {SCHEMA + 1}, this one knows {SCHEMA}); "
        "upgrade qo, or name another namespace."
    )


@pytest.mark.parametrize("kind", KINDS)
async def test_a_namespace_of_an_older_qo_is_refused_and_left_alone(kind: Kind) -> None:
    """Its workers may be running: their code could not read the rows of workers that this qo writes."""
    assert await refusal_of_a_namespace_left_alone(kind, schema=SCHEMA - 1) == (
        f"This namespace was written by an older qo (schema {SCHEMA - 1}, this one knows {SCHEMA}); "
        "let that version finish its jobs, or name another namespace."
    )


async def refusal_of_a_namespace_left_alone(kind: Kind, *, schema: int) -> str:
    """What the refusal of a namespace with jobs and this schema said; nothing in it has changed."""
    url, namespace = shared_server(kind).url, new_namespace()
    store = await RedisStore.open(url, namespace=namespace)
    await submit_all(store, ["a", "b"])
    with Redis.from_url(url) as server:
        server.set(f"{store.client.prefix}schema", schema)
        before = everything(server, store.client.prefix)

        with pytest.raises(StoreUnavailable) as refused:
            await RedisStore.open(url, namespace=namespace)

        assert everything(server, store.client.prefix) == before
        server.delete(*before)
    await store.close()
    return str(refused.value)


async def test_only_the_namespace_of_a_newer_qo_is_refused() -> None:
    url, theirs, mine = shared_server("valkey").url, new_namespace(), new_namespace()
    newer = await RedisStore.open(url, namespace=theirs)
    await newer.client.command("SET", f"{newer.client.prefix}schema", SCHEMA + 1)

    store = await RedisStore.open(url, namespace=mine)
    again = await RedisStore.open(url, namespace=mine)

    assert await store.client.command("GET", f"{store.client.prefix}schema") == str(SCHEMA).encode()
    assert (await again.line(limit=0)).queued == 0
    for opened in (newer, store, again):
        await opened.client.command("DEL", f"{opened.client.prefix}schema")
        await opened.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_code_flushed_from_the_server_in_the_middle_of_a_run_loses_nothing(
    kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    ran: Counter[str] = Counter()
    with Server(kind) as server, Redis.from_url(server.url) as admin:
        queue = Queue(await RedisStore.open(server.url), load_settings({}, environ={}))
        worker = qo.Worker(queue, "worker-1", concurrency=4)

        @worker.task
        async def flush(data: None, ctx: qo.Context) -> None:
            """So that whatever the worker asks for next is not there: reports, outcomes, claims."""
            ran[ctx.job.id] += 1
            forget_all_code(admin)
            await ctx.progress(1, 2)
            forget_all_code(admin)

        with caplog.at_level(logging.WARNING):
            jobs = await queue.submit_many([qo.New("flush")] * JOBS)
            async with asyncio.timeout(AT_MOST_SECONDS):
                await worker.run_until_idle()

        ids = [job.id for job in jobs if isinstance(job, qo.Job)]
        assert len(ids) == JOBS
        assert ran == dict.fromkeys(ids, 1)
        ended = [await queue.get(job_id) for job_id in ids]
        assert {(job.state, job.attempts) for job in ended} == {(qo.State.SUCCEEDED, 1)}
        assert calls_of_missing_code(admin) > JOBS / 4, "it was hardly ever missing when it was needed"
        assert caplog.messages == []
        await queue.close()


def forget_all_code(server: Redis) -> None:
    server.script_flush()
    server.function_flush()


def calls_of_missing_code(server: Redis) -> int:
    counted = server.info("errorstats")
    return sum(counted.get(f"errorstat_{code}", {"count": 0})["count"] for code in ("NOSCRIPT", "ERR"))


def everything(server: Redis, prefix: str) -> dict[bytes | str, bytes | None]:
    return {key: server.dump(key) for key in server.keys(f"{prefix}*")}
