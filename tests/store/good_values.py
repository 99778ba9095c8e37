"""Values that a store takes, with fields of the test's own, and what it says to those that it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from qo.errors import InvalidValue, QoError
from qo.job import State
from qo.store import check
from qo.values import (
    Average,
    Limit,
    Outcome,
    Registration,
    Source,
    Standing,
    Submission,
    TaskOptions,
    Ticket,
)

NO_COUNTS = [-1, 1.0, "1", True, 2**31, None]


def submission(**fields: Any) -> Submission:
    return Submission(**{"id": "j1", "task": "build", **fields})


def standing(**fields: Any) -> Standing:
    return Standing(**{"tier": "partner", **fields})


def ticket(**fields: Any) -> Ticket:
    return Ticket(**{"holder": "h1", "groups": ("provider:ollama",), "lease_ms": 1000, **fields})


def registration(**fields: Any) -> Registration:
    return Registration(**{"name": "w1", "tasks": (TaskOptions(name="build"),), "capacity": 1, **fields})


def outcome(**fields: Any) -> Outcome:
    return Outcome(**{"job_id": "j1", "token": "1", "state": State.SUCCEEDED, **fields})


def limit(**fields: Any) -> Limit:
    return Limit(**{"group": "gpu", "slots": 1, "source": Source.OPERATOR, **fields})


def average(**fields: Any) -> Average:
    return Average(**{"name": "task:build", "first": 600.0, "weight": 0.3, **fields})


def claim(**fields: Any) -> None:
    asked: dict[str, Any] = {
        "worker": "w1",
        "tasks": ["build"],
        "capacity": 1,
        "lease_ms": 1000,
        "claim_id": "c1",
        **fields,
    }
    check.check_claim(**asked)


def allowed(checked: Callable[..., object], *arguments: Any, **named: Any) -> bool:
    """Whether a check returns nothing, as it does for what is allowed. Otherwise it raises."""
    return checked(*arguments, **named) is None


def refusal(checked: Callable[..., object], *arguments: Any, **named: Any) -> QoError:
    with pytest.raises(InvalidValue) as refused:
        checked(*arguments, **named)
    return refused.value
