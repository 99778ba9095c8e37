"""The tokens of watch links: each shows one job to whoever has the link, until it expires."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from qo.job import moment
from qo.loops.system import SYSTEM, System
from qo.service.access.signing import WATCH_SECRET, SigningSecret, milliseconds, signed_structs, verified_struct
from qo.store.contract import Store


class WatchedJob(msgspec.Struct, frozen=True, kw_only=True):
    job_id: str
    submitted_at: datetime
    """Tells the job from a later one that was submitted under the same id."""
    expires_at: datetime


class _Payload(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    job_id: str
    submitted_ms: int
    expires_ms: int


class WatchLinks:
    def __init__(self, store: Store, *, system: System = SYSTEM) -> None:
        self._secret = SigningSecret(store, WATCH_SECRET, system=system)

    async def make(self, job_id: str, submitted_at: datetime, expires_at: datetime) -> str:
        """The token of a link to the job. The times count in whole milliseconds, as a store keeps them."""
        (token,) = await self.make_all([(job_id, submitted_at)], expires_at)
        return token

    async def make_all(self, jobs: Sequence[tuple[str, datetime]], expires_at: datetime) -> list[str]:
        """The tokens of several jobs, each given by its id and when it was submitted."""
        if not jobs:
            return []  # a refused list must not be what makes the secret
        secret, expires_ms = await self._secret.get(), milliseconds(expires_at)
        payloads = (_Payload(job_id, milliseconds(submitted_at), expires_ms) for job_id, submitted_at in jobs)
        return list(signed_structs(secret, payloads))

    async def read(self, token: str, now: datetime) -> WatchedJob | None:
        """The job that a token shows. None for a token that `make` did not make, that has expired or that
        `rotate` has made void: a caller learns no more than that there is nothing to see."""
        payload = verified_struct(await self._secret.get(), token, _Payload)
        if payload is None or payload.expires_ms <= milliseconds(now):
            return None
        return WatchedJob(
            job_id=payload.job_id,
            submitted_at=moment(payload.submitted_ms),
            expires_at=moment(payload.expires_ms),
        )

    async def rotate(self) -> None:
        """Make all links void: on this server at once, on all others within 5 s."""
        await self._secret.rotate()
