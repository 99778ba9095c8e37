"""A program that submits 25 jobs at once through a queue: submitting_process.py URL NAME

Prints `connected`, waits for a line, sends all its submits, prints `sent`, and then their results as JSON.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

import qo

SUBMITS = 25


class Answer(msgspec.Struct, frozen=True):
    job_id: str
    retry_after_seconds: float | None
    """None when the job was accepted."""


async def main(url: str, name: str) -> None:
    async with await qo.connect(url) as queue:
        say("connected")
        sys.stdin.readline()
        ids = [f"{name}-{number}" for number in range(SUBMITS)]
        submits = [asyncio.create_task(queue.submit("build", {"by": id}, id=id, user=id, tier="partner")) for id in ids]
        await asyncio.sleep(0)  # each of them runs as far as it can
        assert not any(submit.done() for submit in submits)
        say("sent")
        answers = await asyncio.gather(*submits, return_exceptions=True)
    say(msgspec.json.encode([result_of(*each) for each in zip(ids, answers, strict=True)]).decode())


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def result_of(job_id: str, answer: qo.Job | BaseException) -> Answer:
    if isinstance(answer, qo.Job):
        return Answer(job_id, None)
    if isinstance(answer, qo.QueueFull):
        return Answer(job_id, answer.retry_after.total_seconds())
    raise answer


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
