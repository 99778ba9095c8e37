"""A user of the server who may do no more than docs/stores.md says that qo needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError

import qo
from tests.servers.redis import Kind, Server
from tests.store.redis.redis_calls import KINDS

RULE = re.compile(r"^user qo on >(?P<password>\S+) .+$", re.MULTILINE)
PAGE = Path(__file__).parents[3] / "docs/stores.md"


@pytest.mark.parametrize("kind", KINDS)
async def test_the_rights_that_the_page_gives_are_all_that_qo_needs(kind: Kind) -> None:
    rule = RULE.search(PAGE.read_text())
    assert rule is not None
    with Server(kind, config=[rule.group()]) as server:
        url = f"redis://qo:{rule['password']}@127.0.0.1:{server.port}"
        async with await qo.connect(url, settings={}) as queue:
            worker = qo.Worker(queue, "worker-1")

            @worker.task(max_concurrent=1)
            async def build(data: int) -> int:
                return data + 1

            jobs = [await queue.submit("build", number, user="u", parent="p", groups=["gpu"]) for number in range(3)]
            await queue.set_limit("gpu", 1)
            await queue.cancel(jobs[2].id)
            await worker.run_until_idle()
            limiter = qo.Limiter({"ollama": 1}, queue=queue)
            async with limiter.acquire("ollama"):
                pass
            limiter.close()

            assert [(await queue.get(job.id)).result for job in jobs] == [1, 2, None]
        with Redis(port=server.port, username="qo", password=rule["password"]) as theirs:
            for command in ("FLUSHALL", "KEYS *", "CONFIG SET maxmemory 1", "GET others"):
                with pytest.raises(NoPermissionError):
                    theirs.execute_command(*command.split())
