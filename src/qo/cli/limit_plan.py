"""The changes that `qo apply` will make to a store's limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from qo.values import GroupStatus, Limit, LimitChange, LimitIgnored, Source


class LimitPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`kept_out` are limits of the settings that have no effect, because an operator has set another value."""

    wanted: tuple[Limit, ...]
    added: tuple[Limit, ...]
    changed: tuple[LimitChange, ...]
    removed: tuple[Limit, ...]
    kept_out: tuple[LimitIgnored, ...]

    @property
    def changes_nothing(self) -> bool:
        return not (self.added or self.changed or self.removed)

    def as_json(self) -> dict[str, Any]:
        return {
            "added": [{"group": limit.group, "limit": limit.slots} for limit in self.added],
            "changed": [
                {
                    "group": change.limit.group,
                    "limit": change.limit.slots,
                    "from": None if change.before is None else change.before.slots,
                    "from_source": None if change.before is None else change.before.source.name.lower(),
                }
                for change in self.changed
            ],
            "removed": [{"group": limit.group, "from": limit.slots} for limit in self.removed],
            "kept_out": [
                {"group": kept.wanted.group, "limit": kept.wanted.slots, "in_force": kept.in_force.slots}
                for kept in self.kept_out
            ],
        }


def plan_limits(wanted: Sequence[Limit], groups: Sequence[GroupStatus]) -> LimitPlan:
    """Compare the configuration's limits with the groups of a store."""
    in_force = {
        each.group: Limit(group=each.group, slots=each.limit, source=each.source)
        for each in groups
        if each.limit is not None and each.source is not None
    }
    added, changed, kept_out = [], [], []
    for limit in sorted(wanted, key=lambda limit: limit.group):
        before = in_force.get(limit.group)
        if before is None:
            added.append(limit)
        elif before.source < limit.source:
            if before.slots != limit.slots:
                kept_out.append(LimitIgnored(wanted=limit, in_force=before))
        elif before != limit:
            changed.append(LimitChange(limit=limit, before=before))
    named = {limit.group for limit in wanted}
    removed = [
        limit for limit in in_force.values() if limit.source is Source.CONFIGURATION and limit.group not in named
    ]
    return LimitPlan(
        wanted=tuple(wanted),
        added=tuple(added),
        changed=tuple(changed),
        removed=tuple(removed),
        kept_out=tuple(kept_out),
    )
