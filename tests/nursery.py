"""A process that forks others, and stops, wakes and kills them, one order a line.

Forking is quick where starting Python is not. `run_nursery` is the program, `nursery` starts it for a test.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from tests.processes import Process

Life = Callable[[str], Awaitable[object]]
"""Everything that a forked process does, by its name. It lives until it is killed."""


# --- in the process -------------------------------------------------------------------------------------------


def run_nursery(live: Life) -> None:
    """Answer each order once it has been carried out. When the orders end with the test, all processes end."""
    nursery = _Nursery(live)
    try:
        while order := sys.stdin.readline().split():
            verb, name = order
            getattr(nursery, verb)(name)
            tell(f"{verb} {name} done")
    finally:
        nursery.kill_all()


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class _Nursery:
    def __init__(self, live: Life) -> None:
        self._live = live
        self._pids: dict[str, int] = {}

    def start(self, name: str) -> None:
        pid = os.fork()
        if pid:
            self._pids[name] = pid
            return
        try:
            sys.stdin.close()

            async def live() -> None:
                await self._live(name)

            asyncio.run(live())
        except BaseException:
            traceback.print_exc()
        os._exit(1)  # it lives until it is killed; the code after this point belongs to its parent

    def stop(self, name: str) -> None:
        os.kill(self._pids[name], signal.SIGSTOP)
        _, status = os.waitpid(self._pids[name], os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise SystemExit(f"{name} ended before it was stopped; its error is above.")

    def wake(self, name: str) -> None:
        os.kill(self._pids[name], signal.SIGCONT)

    def kill(self, name: str) -> None:
        pid = self._pids.pop(name)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            raise SystemExit(f"{name} ended before it was killed; its error is above.")

    def kill_all(self) -> None:
        for name in tuple(self._pids):
            self.kill(name)


# --- in the tests ---------------------------------------------------------------------------------------------


class Nursery(Process):
    def __init__(self, command: Sequence[str]) -> None:
        super().__init__(command)
        self._turn = asyncio.Lock()

    async def order(self, verb: str, name: str) -> None:
        """Returns when the order was carried out."""
        async with self._turn:
            self.say(f"{verb} {name}")
            # A process that is woken may write a line before the nursery answers that it was woken.
            await self.line_with(f"{verb} {name} done", keeping_others=True)


@asynccontextmanager
async def nursery(command: Sequence[str]) -> AsyncIterator[Nursery]:
    with Nursery(command) as started:
        yield started
