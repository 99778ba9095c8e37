"""How much one step may do."""

from __future__ import annotations

import msgspec

GROUPS_A_LOOK = 8
"""A job or a caller with more groups counts as several looks, because each group costs a step."""


def looks(groups: int) -> int:
    """How many looks a job or a caller of so many groups counts as, towards the bounds of a step: one for each eight
    groups, rounded up."""
    return -(-groups // GROUPS_A_LOOK)


class Bounds(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How much one step may do, so that none holds the store for more than a few milliseconds."""

    examine: int = 256
    """How many jobs and callers a claim, or a hand-over to callers, looks at. A job or caller of many groups counts as
    several (`values.looks`)."""
    claim_bytes: int = 4 * 1024 * 1024
    """How many bytes of payloads and checkpoints a claim, or all offers that one step fills, give out. The job that
    reaches it is the last."""
    portion: int = 256
    """How many leases, callers, due jobs, aged jobs or forgotten jobs one step deals with. A lease or a job of many
    groups counts as several."""
    turns: int = 16
    """How many jobs and callers have a turn at the same time."""
    turn_groups: int = 64
    """How many different groups those with a turn need in all, `global` not counted."""
    page: int = 2000
    """How many rows a page of `jobs` or `line` looks at, whether or not it answers them."""
