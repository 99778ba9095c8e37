"""How a test asks a gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qo.service.access.caller import Caller
from qo.service.access.gate import Gate
from qo.service.access.keys import NewKey
from qo.service.access.refused import Refused
from tests.service.access.requests import request

MakeGate = Callable[..., Gate]
LOCAL_COOKIE = "qo-8765"
OURS = "http://localhost:8765"


def bearer(key: NewKey) -> dict[str, str]:
    return {"Authorization": f"Bearer {key.text}"}


async def answer(gate: Gate, *args: Any, **kwargs: Any) -> Caller | Refused:
    try:
        return await gate.who(request(*args, **kwargs))
    except Refused as refused:
        return refused


async def status(gate: Gate, *args: Any, **kwargs: Any) -> int:
    found = await answer(gate, *args, **kwargs)
    return found.status if isinstance(found, Refused) else 200
