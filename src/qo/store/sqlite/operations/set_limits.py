"""set_limits: the one limit a group has, and where it comes from.

Writes   the group; slots of running jobs that are recorded from now on
Answers  limits that a stronger source keeps out
Events   limit, where changed. Audit "limit" for operators and the configuration, where changed
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qo.event import LIMIT
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.groups import Group
from qo.store.sqlite.shared.hand_over import hand_over
from qo.store.sqlite.shared.step import Step
from qo.store.sqlite.shared.undoing import check_undone_limit
from qo.values import Limit, LimitChange, LimitIgnored, Source, Unlimited

AUDITED = (Source.OPERATOR, Source.CONFIGURATION)


def set_limits(
    step: Step,
    limits: Sequence[Limit | Unlimited],
    *,
    exactly: Source | None = None,
    by: str | None = None,
    undoes: int | None = None,
) -> tuple[LimitIgnored, ...]:
    if undoes is not None:
        for limit in limits:
            check_undone_limit(step, step.groups.get(limit.group), undoes)
    _, ignored = apply_limits(step, limits, by=by)
    if exactly is not None:
        _remove_others(step, limits, exactly, by)
    hand_over(step)
    return ignored


def apply_limits(
    step: Step, limits: Iterable[Limit | Unlimited], *, by: str | None = None
) -> tuple[tuple[LimitChange, ...], tuple[LimitIgnored, ...]]:
    """Those that were changed, and those that a stronger source keeps out."""
    answers = [_apply(step, limit, by) for limit in limits]
    changed = tuple(answer for answer in answers if isinstance(answer, LimitChange))
    return changed, tuple(answer for answer in answers if isinstance(answer, LimitIgnored))


def grant_limit(step: Step, group: str, slots: int | None, source: Source) -> tuple[LimitIgnored, ...]:
    """Set what a source gives now; None takes back what it gave before."""
    if slots is None:
        drop_limit(step, group, only=source)
        return ()
    return apply_limits(step, [Limit(group=group, slots=slots, source=source)])[1]


def _apply(step: Step, limit: Limit | Unlimited, by: str | None) -> LimitChange | LimitIgnored | None:
    if isinstance(limit, Unlimited):
        _remove(step, limit.group, limit.only, by)
        return None
    group = step.groups.get(limit.group)
    before = _limit_of(group)
    if before is not None:
        if limit.source > before.source or limit.source == Source.SUBMIT:
            return None if limit.slots == before.slots else LimitIgnored(wanted=limit, in_force=before)
        if before == limit:
            return None
    group.limit, group.source = limit.slots, int(limit.source)
    group.last_job = max(group.last_job, step.number("last_job"))
    step.groups.store(group)
    if before is None:
        step.groups.adopt(group.name)
    detail = {"limit": group.limit, "source": group.source}
    step.event(LIMIT, group.name, detail)
    if limit.source in AUDITED:
        step.audit(by, "limit", group.name, {**detail, **_former(before)})
    return LimitChange(limit=limit, before=before)


def _former(limit: Limit | None) -> dict[str, int | None]:
    """What an undo goes back to."""
    if limit is None:
        return {"from": None, "from_source": None}
    return {"from": limit.slots, "from_source": int(limit.source)}


def _remove_others(step: Step, limits: Iterable[Limit | Unlimited], source: Source, by: str | None) -> None:
    """Remove the limits of a source that are not among these."""
    kept = {limit.group for limit in limits}
    for (name,) in sql.rows(step.db, "SELECT name FROM grp WHERE source = ? ORDER BY name", (int(source),)):
        if name not in kept:
            _remove(step, name, source, by)


def _remove(step: Step, group: str, only: Source | None, by: str | None) -> None:
    removed = drop_limit(step, group, only=only)
    if removed is not None:
        step.audit(by, "limit", group, {"limit": None, "source": int(removed.source), **_former(removed)})


def drop_limit(step: Step, name: str, *, only: Source | None = None) -> Limit | None:
    """Remove a group's limit (if it is of this source) and answer what it was; None where nothing was removed."""
    group = step.groups.get(name)
    removed = _limit_of(group)
    if removed is None or (only is not None and removed.source != only):
        return None
    group.limit = group.source = None
    step.groups.store(group)
    step.event(LIMIT, name, {"limit": None, "source": int(removed.source)})
    return removed


def _limit_of(group: Group) -> Limit | None:
    if group.limit is None or group.source is None:
        return None
    return Limit(group=group.name, slots=group.limit, source=Source(group.source))
