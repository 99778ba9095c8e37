"""The stores that the behaviour suite runs on. A test asks for `store` and never learns which one it got.

Marked `small_bounds`, a test also runs with bounds of 2, and in `make nightly` of 3, as if every step could do next to
nothing; not on the model, which the state machine compares with the stores under all bounds. Marked `bounded_by(...)`,
it runs with bounds of its own. Of two stores that share their code, the gate runs the suite on one and `make nightly`
on the other; new histories of the state machine and the traces run on all of them in the gate.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any

import pytest

from qo.store.contract import Store
from qo.values import Bounds
from tests.conformance.invariants import broken_invariants
from tests.conformance.model.model import Model
from tests.conformance.model.store import ModelStore
from tests.stores import STORES


class ModelUnderTest:
    """The reference model behind the contract, so that the suite checks what the stores are compared with."""

    name = "model"
    crowd = 20
    is_twin = False

    async def open(self, bounds: Bounds) -> Store:
        return ModelStore(bounds)

    async def snapshot(self, store: Any) -> dict[str, Any]:
        model: Model = store.model
        return model.snapshot()

    async def close(self, store: Store) -> None:
        await store.close()


# Imported above like anything else: where one of them is missing, no case is dropped, all fail.
STORES_UNDER_TEST: list[Any] = [ModelUnderTest(), *STORES]
SMALL_BOUNDS = (2, 3)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "small_bounds: also run with bounds of 2, nightly also of 3, for every step")
    config.addinivalue_line("markers", "bounded_by(**bounds): run with these bounds")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "under_test" not in metafunc.fixturenames:
        return
    if own := metafunc.definition.get_closest_marker("bounded_by"):
        bounds = Bounds(**own.kwargs)
        cases = [pytest.param(one, bounds, id=one.name, marks=_when(one)) for one in STORES_UNDER_TEST]
        metafunc.parametrize(("under_test", "bounds"), cases)
        return
    marker = metafunc.definition.get_closest_marker("small_bounds")
    small = SMALL_BOUNDS if marker and marker.kwargs.get("apply", True) else ()
    cases = [
        pytest.param(one, Bounds(examine=size, portion=size), id=f"{one.name}-by{size}", marks=_when(one, size))
        for one in STORES_UNDER_TEST
        for size in ((256,) if one.is_twin or isinstance(one, ModelUnderTest) else (256, *small))
    ]
    metafunc.parametrize(("under_test", "bounds"), cases)


def _when(under_test: Any, size: int | None = None) -> Collection[pytest.MarkDecorator]:
    return [pytest.mark.nightly] if under_test.is_twin or size == SMALL_BOUNDS[-1] else []


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
async def unchecked_store(under_test: Any, bounds: Bounds) -> AsyncIterator[Store]:
    """An empty store for very many jobs. Its invariants are not checked: that takes the square of their number."""
    store = await under_test.open(bounds)
    yield store
    await under_test.close(store)


@pytest.fixture
def snapshot(under_test: Any, store: Store) -> Callable[[], Awaitable[dict[str, Any]]]:
    """The store's whole state, to show that something changed nothing."""
    return lambda: under_test.snapshot(store)


@pytest.fixture
def crowd(under_test: Any) -> int:
    """How many jobs are many: thousands, except where every look is at all of them."""
    return getattr(under_test, "crowd", 1000)
