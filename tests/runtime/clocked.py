"""A store on a clock that the test sets: every operation that takes `now` is given it."""

from __future__ import annotations

import inspect
from typing import Any

from qo.store.base import Store

TAKES_NOW = frozenset(
    name
    for name, method in inspect.getmembers(Store, inspect.isfunction)
    if "now" in inspect.signature(method).parameters
)


class ClockedStore:
    def __init__(self, store: Store, *, now: int) -> None:
        self._store = store
        self.now = now

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in TAKES_NOW:
            return method

        async def at_the_set_time(*args: Any, **kwargs: Any) -> Any:
            return await method(*args, **{"now": self.now, **kwargs})

        return at_the_set_time
