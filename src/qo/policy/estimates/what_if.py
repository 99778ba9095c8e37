"""How long the jobs in line would wait with other limits or other workers. Nothing is changed by asking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from qo.errors import InvalidValue
from qo.job import Basis
from qo.policy.checks import check_group, is_number, shown
from qo.policy.estimates.replay import NEVER
from qo.policy.estimates.situation import Situation, with_capacity, with_limits

MOST_VARIANTS = 5
MOST_SLOTS = 2**31 - 1


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """Limits by group and the capacity of workers by name, as they might be. All others stay as they are."""

    limits: Mapping[str, int] = {}
    """The number of slots, by group."""
    capacity: Mapping[str, int] = {}
    """How many jobs each worker runs at once, by its name."""


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """When the jobs in line start, in seconds from now."""

    median_seconds: float | None
    """The time by which half of the jobs in line have started. None if fewer than half can start, or none is in
    line."""
    last_seconds: float | None
    """When the last of those that can start does. None if none can."""
    cannot_start: int
    """How many cannot start at all: no worker takes their task, or a group of theirs is paused, for example."""


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """The waits as things are, and with each variant. `jobs` were looked at: the first 10,000 in line."""

    jobs: int
    """How many jobs in line were looked at."""
    basis: Basis
    """`first_guess` while no run of any task in line was measured."""
    before: Waits
    """The waits as things are."""
    variants: list[Waits]
    """The waits with each variant, in the order given."""


def waits_of(seconds: Sequence[float]) -> Waits:
    """The waits of jobs that start after so many seconds; NEVER for those that cannot."""
    ordered = sorted(seconds)
    can_start = [each for each in ordered if each != NEVER]
    median = ordered[(len(ordered) - 1) // 2] if ordered else NEVER
    return Waits(
        median_seconds=None if median == NEVER else median,
        last_seconds=can_start[-1] if can_start else None,
        cannot_start=len(ordered) - len(can_start),
    )


def varied(situation: Situation, variant: Variant) -> Situation:
    return with_capacity(with_limits(situation, variant.limits), variant.capacity)


def check_variants(variants: Sequence[Variant]) -> None:
    """Raises `InvalidValue` that names the field. Whether a worker lives is for `check_workers` to say."""
    if len(variants) > MOST_VARIANTS:
        raise InvalidValue(f"variants has {len(variants)} entries; give at most {MOST_VARIANTS} at once.")
    for number, variant in enumerate(variants):
        for field in variant.__struct_fields__:
            if not isinstance(value := getattr(variant, field), Mapping):
                raise InvalidValue(f"variants[{number}].{field} is {shown(value)}; give whole numbers by name.")
        for group in variant.limits:
            try:
                check_group(group)
            except InvalidValue as error:
                raise InvalidValue(f"variants[{number}].limits has a key that is no group; {error}") from None
        _check_numbers(f"variants[{number}].limits", variant.limits)
        _check_numbers(f"variants[{number}].capacity", variant.capacity)


def check_workers(variants: Sequence[Variant], situation: Situation) -> None:
    """Raises `InvalidValue` for the capacity of a worker that does not live."""
    live = sorted(worker.name for worker in situation.workers)
    for number, variant in enumerate(variants):
        for name in variant.capacity:
            if name not in live:
                use = f"use one of {', '.join(live)}" if live else "leave it out: no worker is live"
                raise InvalidValue(f"variants[{number}].capacity names {shown(name)}, which is no live worker; {use}.")


def _check_numbers(field: str, numbers: Mapping[str, Any]) -> None:
    for name, value in numbers.items():
        if not is_number(value, 0, MOST_SLOTS):
            raise InvalidValue(
                f"{field} has {shown(value)} for {shown(name)}; use a whole number from 0 to {MOST_SLOTS}."
            )
