"""The only slot of a reserved group: who holds it records, and a second recorder waits."""

from __future__ import annotations

from contextlib import suppress

from qo.errors import QoError
from qo.loops.system import System
from qo.policy.groups import RECORDER
from qo.store.contract import Store
from qo.values import Limit, Renewal, Source, Ticket

LEASE_SECONDS = 30.0
RENEWALS_PER_LEASE = 3


class RecorderSlot:
    """Keeps the slot while `keep` is called often enough. Two recorders that both believe to hold it do no harm: the
    database takes one portion at a time, and each entry once."""

    def __init__(self, store: Store, *, system: System, lease_seconds: float = LEASE_SECONDS) -> None:
        self._store = store
        self._monotonic = system.monotonic
        self._holder = f"recorder:{system.new_id()}"
        self._lease_ms = round(lease_seconds * 1000)
        self._token: str | None = None
        self._renew_at = 0.0

    async def take(self) -> bool:
        """Whether the slot is this recorder's now. Otherwise it waits in line, as long as this is called again within
        15 seconds."""
        await self._store.set_limits([Limit(group=RECORDER, slots=1, source=Source.OPERATOR)], by="qo record")
        (grant,) = await self._store.acquire([Ticket(holder=self._holder, groups=(RECORDER,), lease_ms=self._lease_ms)])
        self._token, self._renew_at = grant.token, 0.0
        return grant.token is not None and await self.keep()

    async def keep(self) -> bool:
        """Renew the lease when it is time. False: it was lost."""
        if self._token is None:
            return False
        if self._monotonic() < self._renew_at:
            return True
        next_at = self._monotonic() + self._lease_ms / 1000 / RENEWALS_PER_LEASE
        renewal = Renewal(holder=self._holder, token=self._token, lease_ms=self._lease_ms)
        (held,) = (await self._store.renew([renewal])).held
        if held.lost:
            self._token = None
            return False
        self._renew_at = next_at
        return True

    async def give_back(self) -> None:
        with suppress(QoError):  # if the store cannot be reached, the lease runs out
            await self._store.release([(self._holder, None)])
        self._token = None
