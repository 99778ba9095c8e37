"""A store on a clock that the test sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qo.store.contract import Store


class ClockedStore:
    def __init__(self, store: Store, *, now: int) -> None:
        self._store = store
        self.now = now
        store.clock = lambda: self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    if TYPE_CHECKING:  # a test may put a call of its own in the place of the store's

        def __setattr__(self, name: str, value: Any) -> None: ...
