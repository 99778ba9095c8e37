"""A worker's registration in the store: made when it starts, made again when it was lost, removed when it leaves.

A name belongs to one live worker at a time. A worker that finds its own taken goes on under the next free one.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable, Iterator, Sequence

import msgspec

from qo.loops.system import SYSTEM, System
from qo.loops.timing import to_its_end
from qo.policy.checks import MAX_NAME_CHARACTERS
from qo.store.contract import Store
from qo.values import Held, Registered, Registration, Renewal, WorkerInfo
from qo.worker.log import log_taken_name
from qo.worker.store_time import StoreTime

_running_here: set[str] = set()
"""The instances of the workers that run in this process."""


class Membership:
    """`join` and `leave` are called by the worker, `renew` and `join_again` by its heartbeat in between."""

    def __init__(
        self, store: Store, wanted: Registration, *, joined: Callable[[Registered], None], system: System = SYSTEM
    ) -> None:
        """Calls `joined` with the store's answer to each registration. A worker without tasks registers nothing."""
        self._store = store
        self._wanted = wanted
        self._joined = joined
        self.name = wanted.name
        """The worker's name. It differs from the wanted one while another live worker has that."""
        self.lifetime_ms = wanted.lifetime_ms
        self.is_lost = False
        """The last renewal found that the worker is not registered."""
        self._store_time = StoreTime(monotonic=system.monotonic, test_clock=system.test_clock)

    async def join(self) -> StoreTime:
        """Register under the wanted name, or under that name with the next free number. Replaces a worker of that name
        whose process has ended on this host.

        Returns the store's time, which every later answer of the store corrects.
        """
        _running_here.add(self._wanted.instance)
        try:
            await self._take_a_name(replace_dead=True)
        except BaseException:
            _running_here.discard(self._wanted.instance)
            raise
        return self._store_time

    async def join_again(self) -> None:
        """Register anew, under the same name where it is free. Replaces nobody: two workers that each take the other
        for dead would replace each other in turns.

        A cancellation takes effect when the store has answered, so that `leave` cannot overtake this registration.
        """
        await to_its_end(self._take_a_name(replace_dead=False))
        self.is_lost = False

    async def leave(self) -> None:
        _running_here.discard(self._wanted.instance)
        await self._register(self.name, tasks=())

    async def renew(self, renewals: Sequence[Renewal]) -> Sequence[Held]:
        """Renew these leases together with the registration. Returns the store's answers for the leases."""
        registered = self.name if self._wanted.tasks else None
        renewed = await self._store.renew(renewals, worker=registered, instance=self._wanted.instance)
        self._store_time.learn(renewed.now_ms)
        self.is_lost = renewed.registration is not None and renewed.registration.lost
        return renewed.held

    async def _take_a_name(self, *, replace_dead: bool) -> None:
        if not self._wanted.tasks:
            await self.renew(())  # its answer has the store's time
            return
        taken_by: WorkerInfo | None = None
        for name in self._names():
            answer = await self._register(name)
            if answer.namesake is not None and replace_dead and _has_ended(answer.namesake):
                answer = await self._register(name, replaces=answer.namesake.instance)
            if answer.namesake is None:
                self.name = name
                if taken_by is not None:
                    log_taken_name(taken_by, name)
                self._joined(answer)
                return
            taken_by = taken_by or answer.namesake

    def _names(self) -> Iterator[str]:
        """Yields the present name, then the wanted one, then `wanted-2`, `wanted-3`, … without end."""
        wanted = self._wanted.name
        yield self.name
        if self.name != wanted:
            yield wanted
        for number in itertools.count(2):
            suffix = f"-{number}"
            if (name := wanted[: MAX_NAME_CHARACTERS - len(suffix)] + suffix) != self.name:
                yield name

    async def _register(self, name: str, **changes: object) -> Registered:
        answer = await self._store.register(msgspec.structs.replace(self._wanted, name=name, **changes))
        self._store_time.learn(answer.now_ms)
        return answer


def _has_ended(worker: WorkerInfo) -> bool:
    """Whether the worker's process has ended. False where that is not known: on another host, and on Windows."""
    if worker.pid is None or worker.host != socket.gethostname() or os.name != "posix":
        return False
    if worker.pid == os.getpid():
        # In a container that was started again, the new process often has the number of the old one.
        return worker.instance not in _running_here
    try:
        os.kill(worker.pid, 0)  # sends no signal, and fails if there is no such process
    except ProcessLookupError:
        return True
    except OSError:
        return False  # the process exists and belongs to another user
    return False
