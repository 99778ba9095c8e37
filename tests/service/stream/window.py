"""A page's window of the whole line: read once, then changed by frames alone."""

from __future__ import annotations

from typing import Any

import qo
from qo.store.paging import read_jobs
from tests.service.stream.client import Frame, StreamClient


class Window:
    """Does what a page does: rows by id, sorted by their keys, and the number of jobs in line."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        """Jobs in line, by id."""
        self.count = 0
        """How many jobs are in line, counted by the keys in frames and never by the rows."""
        self.waiting = 0
        self.groups: dict[str, dict[str, Any]] = {}
        self.resets = 0

    @property
    def order(self) -> list[str]:
        return sorted(self.rows, key=lambda job_id: int(self.rows[job_id]["key"]))

    async def read(self, queue: qo.Queue) -> None:
        jobs = await read_jobs(queue.store, limit=100_000, status="queued")
        self.rows = {job.id: {"key": job.key, "priority": job.priority, "tier": job.tier} for job in jobs}
        self.count = len(jobs)

    async def apply(self, frame: Frame, queue: qo.Queue) -> None:
        data = frame.data
        self.waiting = data["waiting"]
        self.groups |= {group["group"]: group for group in data.get("groups", ())}
        if frame.event == "reset":
            self.resets += 1
            await self.read(queue)
        for job_id, key in data["gone"]:
            if job_id in self.rows:
                assert self.rows[job_id]["key"] == key
                del self.rows[job_id]
            self.count -= 1
        for row in data["changed"]:
            if "key" in row:
                if row["id"] in self.rows:
                    assert self.rows[row["id"]]["key"] == row["key_before"]
                self.count += "key_before" not in row
                self.rows[row["id"]] = row

    async def follow(self, client: StreamClient, queue: qo.Queue, *, until_id: int) -> None:
        """Apply frames until the one that has this event."""
        while True:
            frame = await client.next()
            await self.apply(frame, queue)
            assert frame.id is not None
            if frame.id >= until_id:
                return

    async def follow_until_job(self, client: StreamClient, queue: qo.Queue, job_id: str) -> None:
        """Apply frames until the one with which this job has joined the line."""
        while job_id not in self.rows:
            await self.apply(await client.next(), queue)
