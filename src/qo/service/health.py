"""Whether the process lives, and whether it can do its work."""

from __future__ import annotations

from qo.service.access.refused import Refused
from qo.service.operations import Call, May, Operation

TRY_AGAIN_SECONDS = 1


async def healthz(call: Call) -> dict[str, str]:
    return {"status": "alive"}


async def readyz(call: Call) -> dict[str, str]:
    found = await call.shared.readiness.check()
    if found is not None:
        raise Refused(503, found.reason, found.detail, retry_after=TRY_AGAIN_SECONDS)
    return {"status": "ready"}


HEALTH = (
    Operation("GET", "/healthz", May.ANYBODY, healthz, "Whether the process lives.", answers=dict[str, str]),
    Operation("GET", "/readyz", May.ANYBODY, readyz, "Whether the store can be used.", answers=dict[str, str]),
)
