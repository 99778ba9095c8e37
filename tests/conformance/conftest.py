"""The stores that the behaviour suite runs on. A test asks for `store` and never learns which one it got.

Marked `small_bounds`, a test also runs with bounds of 2 and 3, as if every step could do next to nothing. Marked
`bounded_by(...)`, it runs with bounds of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from invariants import broken_invariants
from model_store import ModelStore
from stores import STORES

from qo.store.base import Store
from qo.store.values import Bounds


class ModelUnderTest:
    """The reference model behind the contract, so that the suite checks what the stores are compared with."""

    name = "model"
    crowd = 20

    async def open(self, bounds: Bounds) -> Store:
        return ModelStore(bounds)

    async def snapshot(self, store: Any) -> dict[str, Any]:
        return store.model.snapshot()

    async def close(self, store: Store) -> None:
        await store.close()


# Imported above like anything else: where one of them is missing, no case is dropped, all fail.
STORES_UNDER_TEST: list[Any] = [ModelUnderTest(), *STORES]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "small_bounds: also run with bounds of 2 and 3 for every step")
    config.addinivalue_line("markers", "bounded_by(**bounds): run with these bounds")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "under_test" not in metafunc.fixturenames:
        return
    if own := metafunc.definition.get_closest_marker("bounded_by"):
        cases = [pytest.param(one, Bounds(**own.kwargs), id=one.name) for one in STORES_UNDER_TEST]
        metafunc.parametrize(("under_test", "bounds"), cases)
        return
    marker = metafunc.definition.get_closest_marker("small_bounds")
    small = (2, 3) if marker and marker.kwargs.get("apply", True) else ()
    cases = []
    for one in STORES_UNDER_TEST:
        # A store under test in two settings of the same code needs small bounds in one of them only.
        sizes = (256, *small) if getattr(one, "small_bounds", True) else (256,)
        cases += [pytest.param(one, Bounds(examine=size, portion=size), id=f"{one.name}-by{size}") for size in sizes]
    metafunc.parametrize(("under_test", "bounds"), cases)


@pytest.fixture
async def store(under_test: Any, bounds: Bounds) -> AsyncIterator[Store]:
    """An empty store. Whatever the test did to it, its invariants hold at the end."""
    store = await under_test.open(bounds)
    try:
        yield store
        assert broken_invariants(await under_test.snapshot(store)) == []
    finally:
        await under_test.close(store)


@pytest.fixture
def snapshot(under_test: Any, store: Store) -> Callable[[], Awaitable[dict[str, Any]]]:
    """The store's whole state, to show that something changed nothing."""
    return lambda: under_test.snapshot(store)


@pytest.fixture
def crowd(under_test: Any) -> int:
    """How many jobs are many: thousands, except where every look is at all of them."""
    return getattr(under_test, "crowd", 1000)
