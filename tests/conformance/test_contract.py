"""The size of the contract, and that what belongs to an operation has the operation's parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from qo.store.check import CHECKS
from qo.store.contract import Store

OPERATIONS = 42


def parameters(function: Callable[..., object]) -> list[tuple[str, object, object]]:
    """Without the first one, which is the store."""
    given = list(inspect.signature(function).parameters.values())
    return [(one.name, one.kind, one.default) for one in given if one.name != "self"]


def test_a_new_operation_of_the_contract_needs_a_reason() -> None:
    """Every store and the model implement each operation. First look for one that can do it with another argument; if
    there is none, say why in the commit that raises this number."""
    operations = {name for name in dir(Store) if not name.startswith("_") and callable(getattr(Store, name))}

    assert len(operations) == OPERATIONS, sorted(operations)


@pytest.mark.parametrize("operation", CHECKS)
def test_a_check_takes_what_its_operation_takes(operation: str) -> None:
    assert parameters(CHECKS[operation]) == parameters(getattr(Store, operation))
