"""The numbers and names of the rules, as the Lua functions use them.

They are defined in `policy/` and `values/`, and written into the library when it is put together: a Lua file uses a
name of this table as it stands.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from qo.event import CANCEL_WANTED, GRANTED, LEASE_LOST
from qo.job import ENDED, HELD, LOST, NORMAL, REVOKED, State
from qo.policy.admission import CAPPED_DELAY_MS
from qo.policy.days import DAY_MS
from qo.policy.figures import DEPTH, HIGHEST_WAIT_BUCKET_SECONDS, PROMISE_KEPT, PROMISE_MISSED
from qo.policy.groups import COUNTED_IF_LIMITED, GATES, KINDS
from qo.policy.job_history import KEPT_ATTEMPTS, KEPT_STATES
from qo.policy.lifecycle import GIVES_WAY_TO_CANCEL, PASSES_THROUGH_RUNNING, WAITS
from qo.policy.ordering import (
    AGED_LEVELS,
    CELL,
    FIRST_SEQUENCE,
    MAX_BOOST,
    MOVED_COUNTED_AT_MOST,
    PLACE_BITS,
    SPREAD_AT_MOST,
    STEPS_PER_CELL,
)
from qo.policy.turns import NEAR_KINDS
from qo.store.contract import HANDED_OVER_LEASE_MS
from qo.values import (
    DEFAULT_LEASE_MS,
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_TURN_AFTER,
    GROUPS_A_LOOK,
    Bounds,
    Source,
    Standing,
    Suspicion,
)

LOOK_AGAIN = "look"
"""The message to an idle worker that something comes due sooner than it knows."""
TOKEN_DIGITS = 16
"""Tokens are stored with so many digits, so that they sort as text."""

Constant = int | str | tuple[int, ...] | tuple[str, ...] | frozenset[str] | Mapping[str, int]

CONSTANTS: dict[str, Constant] = {
    "NORMAL": NORMAL,
    "AGED_LEVELS": AGED_LEVELS,
    "PLACES": 1 << PLACE_BITS,
    "CELL": CELL,
    "STEPS_PER_CELL": STEPS_PER_CELL,
    "FIRST_SEQUENCE": FIRST_SEQUENCE,
    "MAX_BOOST": MAX_BOOST,
    "SPREAD_AT_MOST": SPREAD_AT_MOST,
    "MOVED_COUNTED_AT_MOST": MOVED_COUNTED_AT_MOST,
    "GATES": GATES,
    "COUNTED_IF_LIMITED": COUNTED_IF_LIMITED,
    "GROUPS_A_LOOK": GROUPS_A_LOOK,
    "DEFAULT_BOUNDS": msgspec.structs.asdict(Bounds()),
    "KINDS": frozenset(KINDS),
    "NEAR_KINDS": frozenset(kind.removesuffix(":") for kind in NEAR_KINDS),
    **{source.name: int(source) for source in Source},
    "SUSPECT": int(Suspicion.SUSPECT),
    "LAST_SUSPECT": int(Suspicion.LAST),
    "STANDING_FIELDS": Standing.__struct_fields__,
    "DEFAULT_MAX_ATTEMPTS": DEFAULT_MAX_ATTEMPTS,
    "DEFAULT_LEASE_MS": DEFAULT_LEASE_MS,
    "DEFAULT_TURN_AFTER": DEFAULT_TURN_AFTER,
    "HANDED_OVER_LEASE_MS": HANDED_OVER_LEASE_MS,
    "CAPPED_DELAY_MS": CAPPED_DELAY_MS,
    "DAY_MS": DAY_MS,
    "HIGHEST_WAIT_BUCKET_SECONDS": HIGHEST_WAIT_BUCKET_SECONDS,
    "HELD": HELD,
    "ENDED": ENDED,
    "STATES": tuple(State),
    "LOST": LOST,
    "REVOKED": REVOKED,
    "KEPT_STATES": KEPT_STATES,
    "KEPT_ATTEMPTS": KEPT_ATTEMPTS,
    "DEPTH": DEPTH,
    "PROMISE_KEPT": PROMISE_KEPT,
    "PROMISE_MISSED": PROMISE_MISSED,
    "WAITS": WAITS,
    "PASSES_THROUGH_RUNNING": PASSES_THROUGH_RUNNING,
    "GIVES_WAY_TO_CANCEL": GIVES_WAY_TO_CANCEL,
    "CANCEL_WANTED": CANCEL_WANTED,
    "LEASE_LOST": LEASE_LOST,
    "GRANTED": GRANTED,
    "LOOK_AGAIN": LOOK_AGAIN,
    "TOKEN_DIGITS": TOKEN_DIGITS,
}


def in_lua(value: Constant) -> str:
    """A constant as Lua writes it: a set becomes a table in which each member is true."""
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return f"'{value}'"
    return f"{{ {', '.join(_members(value))} }}"


def _members(values: Collection[int] | Collection[str]) -> list[str]:
    if isinstance(values, Mapping):
        return [f"{name} = {value}" for name, value in values.items()]
    if isinstance(values, frozenset):
        return sorted(f"{member} = true" for member in values)
    return [in_lua(value) for value in values]
