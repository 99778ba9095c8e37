"""Jobs that have half a minute to start, given as a span or as a time."""

from __future__ import annotations

from typing import Any

import pytest

from qo.store.contract import Store
from qo.values import Claimed
from tests.conformance.suite.harness import LEASE, NOW, SECOND, at, fresh_id, standing

SPAN = 30 * SECOND
LATE = "Not started within 30 seconds"
WITHIN: dict[str, Any] = {"start_within_ms": SPAN, "overdue_message": LATE}
BY: dict[str, Any] = {"start_by_ms": NOW + SPAN, "overdue_message": LATE}
ONE_A_DAY = standing(daily_quota=1)

given_either_way = pytest.mark.parametrize("start_by", [WITHIN, BY], ids=["span", "time"])


async def one_claim(store: Store, *, now: int, capacity: int = 9) -> Claimed:
    return await at(store, now).claim(
        worker="w1", tasks=["work"], capacity=capacity, lease_ms=LEASE, claim_id=fresh_id("claim")
    )
