"""`qo serve` in a process that can be asked what it has: tasks, connections, unsent bytes and sockets.

counted_server.py --port N --url URL     serves until SIGTERM; each line on standard input is answered with the counts
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import stat
import sys

import click
import msgspec

import qo
from qo.queue.inbox import Inbox
from qo.service.connection import Connection
from qo.service.serving import serve


class Counts(msgspec.Struct, frozen=True):
    tasks: int
    connections: int
    inboxes: int
    """The buffers of watchers."""
    unsent_bytes: int
    sockets: int

    @classmethod
    def now(cls) -> Counts:
        gc.collect()
        objects = gc.get_objects()
        connections = [each for each in objects if isinstance(each, Connection)]
        open_now = [each for each in connections if not each.transport.is_closing()]
        return cls(
            tasks=len(asyncio.all_tasks()),
            connections=len(open_now),
            inboxes=sum(isinstance(each, Inbox) for each in objects),
            unsent_bytes=sum(each.transport.get_write_buffer_size() for each in open_now),
            sockets=_sockets(),
        )


def _sockets() -> int:
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += stat.S_ISSOCK(os.stat(int(name)).st_mode)
        except OSError:
            continue  # that by which the folder was read
    return found


async def main(port: int, url: str) -> None:
    loop = asyncio.get_running_loop()

    def answer() -> None:
        if sys.stdin.readline():
            sys.stdout.write(f"counts {msgspec.json.encode(Counts.now()).decode()}\n")
            sys.stdout.flush()
        else:
            os._exit(1)  # the test process is gone

    async with await qo.connect(url, settings={"server": {"port": port}}) as queue:
        loop.add_reader(sys.stdin.fileno(), answer)
        await serve(queue)


@click.command()
@click.option("--port", type=int)
@click.option("--url")
def command(port: int, url: str) -> None:
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
    asyncio.run(main(port, url))


if __name__ == "__main__":
    command()
