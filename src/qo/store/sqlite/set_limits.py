"""set_limits, remove_limit: the one limit a group has, and where it comes from.

Writes   the group; slots of running jobs that are recorded from now on
Answers  limits that a stronger source keeps out
Events   limit, where changed. Audit "limit" for operators, where changed
"""

from __future__ import annotations

from collections.abc import Iterable

from qo.event import LIMIT
from qo.store.sqlite.hand_over import hand_over
from qo.store.sqlite.step import Step
from qo.store.values import Limit, LimitIgnored, Source


def set_limits(step: Step, limits: Iterable[Limit], *, by: str | None) -> tuple[LimitIgnored, ...]:
    ignored = apply_limits(step, limits, by=by)
    hand_over(step)
    return ignored


def remove_limit(step: Step, group: str, *, by: str | None) -> None:
    removed = drop_limit(step, group)
    if removed is not None:
        step.audit(by, "limit", group, {"limit": None, "source": removed})
    hand_over(step)


def apply_limits(step: Step, limits: Iterable[Limit], *, by: str | None = None) -> tuple[LimitIgnored, ...]:
    return tuple(ignored for limit in limits if (ignored := _apply(step, limit, by)) is not None)


def grant_limit(step: Step, group: str, slots: int | None, source: Source) -> tuple[LimitIgnored, ...]:
    """Set what a source gives now; None takes back what it gave before."""
    if slots is None:
        drop_limit(step, group, only=source)
        return ()
    return apply_limits(step, [Limit(group=group, slots=slots, source=source)])


def _apply(step: Step, limit: Limit, by: str | None) -> LimitIgnored | None:
    group = step.groups.get(limit.group)
    if group.limit is not None and group.source is not None:
        if limit.source > group.source or limit.source == Source.SUBMIT:
            if limit.slots == group.limit:
                return None
            in_force = Limit(group=group.name, slots=group.limit, source=Source(group.source))
            return LimitIgnored(wanted=limit, in_force=in_force)
        if (group.limit, group.source) == (limit.slots, limit.source):
            return None
    had_none = group.limit is None
    group.limit, group.source = limit.slots, int(limit.source)
    group.last_job = max(group.last_job, step.number("last_job"))
    step.groups.store(group)
    if had_none:
        step.groups.adopt(group.name)
    detail = {"limit": group.limit, "source": group.source}
    step.event(LIMIT, group.name, detail)
    if limit.source == Source.OPERATOR:
        step.audit(by, "limit", group.name, detail)
    return None


def drop_limit(step: Step, name: str, *, only: Source | None = None) -> int | None:
    """Remove a group's limit (if it is of this source) and answer its source; None where nothing was removed."""
    group = step.groups.get(name)
    source = group.source
    if group.limit is None or source is None or (only is not None and source != only):
        return None
    group.limit = group.source = None
    step.groups.store(group)
    step.event(LIMIT, name, {"limit": None, "source": source})
    return source
