"""set_tier: what a user's tier grants, applied at once to all their jobs that wait.

Writes   the user; tier, boost and iterations of waiting jobs; limits of `user:` and `project:` groups
Answers  limits that a stronger source keeps out
Events   tier; limit; those of jobs that move forward. Audit "tier"
"""

from __future__ import annotations

import msgspec

from qo.event import TIER
from qo.store.sqlite.operations.set_limits import grant_limit
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.hand_over import hand_over
from qo.store.sqlite.shared.line import LINE_FIELDS, enter_again
from qo.store.sqlite.shared.quota import move_forward
from qo.store.sqlite.shared.rows import save, select, to_json
from qo.store.sqlite.shared.step import Step
from qo.values import LimitIgnored, Source, Standing

_decode_standing = msgspec.json.Decoder(Standing).decode


def set_tier(step: Step, user: str, standing: Standing, *, by: str | None = None) -> tuple[LimitIgnored, ...]:
    step.event(TIER, user, {"tier": standing.tier})
    former = standing_of(step, user)
    ignored = apply_standing(step, user, standing, pinned=True)
    step.audit(by, "tier", user, {"tier": standing.tier, "from": None if former is None else former.tier})
    hand_over(step)
    return ignored


def standing_of(step: Step, user: str) -> Standing | None:
    # Of users, only the number of their newest job ever waits to be written.
    text = sql.value(step.writes.connection, "SELECT standing FROM user WHERE name = ?", (user,))
    return None if text is None else _decode_standing(text)


def apply_standing(
    step: Step, user: str, standing: Standing, *, pinned: bool, project: str | None = None
) -> tuple[LimitIgnored, ...]:
    """Give a user a standing; `project` is limited by it too, beside those of the user's waiting jobs."""
    step.db.execute(
        "INSERT INTO user VALUES (?1, ?2, ?3, ?4)"
        " ON CONFLICT DO UPDATE SET standing = ?2, pinned = ?3, last_job = max(last_job, ?4)",
        (user, to_json(standing), pinned, step.number("last_job")),
    )
    rows = list(
        select(
            step.db,
            "user = ? AND state IN ('scheduled', 'waiting', 'queued', 'confirming') ORDER BY key, number",
            (user,),
        )
    )
    for row in rows:
        row.tier = standing.tier
        row.boost = standing.boost
        row.iterations_batch = standing.iterations_batch
        row.iterations_max = standing.iterations_max
        save(step.writes, row, "tier", "boost", "iterations_batch", "iterations_max")
    projects = sorted({name for name in (project, *(row.project for row in rows)) if name is not None})
    ignored = limit_by_standing(step, standing, user=user, projects=projects)
    for row in rows:
        if row.key is not None:
            enter_again(step, row, row.key)
            save(step.writes, row, *LINE_FIELDS)
    move_forward(step, user, standing.daily_quota)
    return ignored


def limit_by_standing(
    step: Step, standing: Standing, *, user: str | None, projects: list[str]
) -> tuple[LimitIgnored, ...]:
    """The limits that a standing gives to a user and to projects; what it no longer gives is removed."""
    wanted = [] if user is None else [(f"user:{user}", standing.user_limit)]
    wanted += [(f"project:{project}", standing.project_limit) for project in projects]
    ignored: tuple[LimitIgnored, ...] = ()
    for group, slots in wanted:
        ignored += grant_limit(step, group, slots, Source.TIER)
    return ignored
