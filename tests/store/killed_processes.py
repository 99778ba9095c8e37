"""Processes that use one SQLite file and are killed at random moments.

Run as a program: keeps two of them alive, kills one after the other with SIGKILL, and prints a line for each kill.
Each process writes down what it is about to do and what was acknowledged, so that the test can tell what must be there.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time

from qo.errors import QoError
from qo.job import State
from qo.store.sqlite import SQLiteStore
from qo.store.values import (
    Advance,
    Limit,
    Outcome,
    Registration,
    Renewal,
    Source,
    Standing,
    Submission,
    TaskOptions,
    Ticket,
)

LEASE_MS = 400
TASKS = ("build", "mail")
GROUPS = ("gpu", "api")
PAUSED = ("gpu", "mail")
ALIVE = 2


class Victim:
    def __init__(self, store: SQLiteStore, diary: int, name: str) -> None:
        self.store = store
        self.name = name
        self.rng = random.Random(name)
        self.count = 0
        self.leases: list[tuple[str, str]] = []
        self.callers: list[tuple[str, str | None]] = []
        self._diary = diary

    def note(self, *words: str) -> None:
        os.write(self._diary, (" ".join(words) + "\n").encode())

    def new_id(self) -> str:
        self.count += 1
        return f"{self.name}-{self.count}"

    async def live(self) -> None:
        often = [self.submit, self.claim, self.finish] * 2
        actions = [*often, self.change, self.limit, self.call, self.report, self.rule, self.tend]
        while True:
            try:
                await self.rng.choice(actions)()
            except QoError:
                continue  # a job that another process has ended or moved meanwhile

    async def submit(self) -> None:
        ids = [self.new_id() for _ in range(self.rng.randint(1, 4))]
        self.note("begin", "submit")
        await self.store.submit(
            [
                Submission(
                    id=job_id,
                    task=self.rng.choice(TASKS),
                    groups=tuple(self.rng.sample(GROUPS, self.rng.randint(0, 2))),
                    user=self.rng.choice(("u1", "u2")),
                    standing=Standing(tier="partner", user_limit=3, daily_quota=10_000, boost=self.rng.choice((0, 5))),
                    max_attempts=50,
                )
                for job_id in ids
            ]
        )
        self.note("submitted", *ids)

    async def claim(self) -> None:
        self.note("begin", "claim")
        claimed = await self.store.claim(
            worker=self.name, tasks=TASKS, places=3, lease_ms=LEASE_MS, claim_id=self.new_id()
        )
        self.note("claimed", *(lease.token for lease in claimed.leases))
        self.leases += [(lease.job.id, lease.token) for lease in claimed.leases]

    async def finish(self) -> None:
        if not self.leases:
            return
        job_id, token = self.leases.pop()
        state = self.rng.choice((State.SUCCEEDED, State.SUCCEEDED, State.QUEUED))
        self.note("begin", "finish")
        (answer,) = await self.store.finish([Outcome(job_id=job_id, token=token, state=state)])
        if not answer.lost and state is State.SUCCEEDED:
            self.note("succeeded", job_id)

    async def change(self) -> None:
        jobs = await self.store.jobs(status="queued", limit=5)
        if len(jobs) < 2:
            return
        first, second = self.rng.sample(jobs, 2)
        self.note("begin", "change")
        if self.rng.random() < 0.5:
            await self.store.move(first.id, before=second.id)
        else:
            await self.store.set_priority(self.rng.choice((20, 50, 90)), job_id=first.id)
        self.note("changed")

    async def report(self) -> None:
        if self.leases:
            job_id, token = self.leases[-1]
            self.note("begin", "report")
            await self.store.advance([Advance(job_id=job_id, token=token, stage="code", checkpoint=b"half")])
            await self.store.renew([Renewal(holder=job_id, token=token, lease_ms=LEASE_MS)])
            self.note("reported")

    async def rule(self) -> None:
        """What operators do: pause, change a tier, take a slot away, start a worker."""
        group = self.rng.choice(PAUSED)
        standing = Standing(tier="cto_scale", user_limit=self.rng.randint(1, 5), daily_quota=10_000)
        task = TaskOptions(name="mail", limit=self.rng.choice((None, 2, 4)))
        self.note("begin", "rule")
        await self.rng.choice(
            (
                lambda: self.store.set_paused(group, self.rng.random() < 0.3),
                lambda: self.store.set_tier("u1", standing),
                lambda: self.store.revoke("gpu", 0, force=True),
                lambda: self.store.register(Registration(name=self.name, tasks=(task,), places=3)),
            )
        )()
        self.note("ruled")

    async def tend(self) -> None:
        self.note("begin", "tend")
        await self.store.age(period_ms=50)
        await self.store.catch_up(lease_ms=LEASE_MS)
        await self.store.forget(keep_ms=3_600_000, keep_jobs=1_000_000, keep_events=100)
        self.note("tended")

    async def limit(self) -> None:
        self.note("begin", "limit")
        group = self.rng.choice((*GROUPS, "global", "priority:50"))
        await self.store.set_limits([Limit(group=group, slots=self.rng.randint(1, 4), source=Source.OPERATOR)])
        self.note("limited")

    async def call(self) -> None:
        self.note("begin", "call")
        if self.callers:
            await self.store.release([self.callers.pop()])
        else:
            ticket = Ticket(holder=self.new_id(), groups=GROUPS, lease_ms=LEASE_MS, wait_ms=self.rng.choice((0, 200)))
            (grant,) = await self.store.acquire([ticket])
            self.callers.append((grant.holder, grant.token))
        self.note("called")


def start_victim(path: str, diary_path: str, name: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    diary = os.open(diary_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def live() -> None:
        await Victim(await SQLiteStore.open(path), diary, name).live()

    asyncio.run(live())
    raise AssertionError("a victim lives until it is killed")


def main(path: str, diary_path: str, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    alive = [start_victim(path, diary_path, f"p{number}") for number in range(ALIVE)]
    for number in range(kills):
        time.sleep(rng.uniform(0.005, 0.08))  # the random moment
        pid = alive.pop(0)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        sys.stdout.write(f"killed {number}\n")
        sys.stdout.flush()
        if number < kills - ALIVE:
            alive.append(start_victim(path, diary_path, f"p{number + ALIVE}"))
        elif not alive:
            return


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
