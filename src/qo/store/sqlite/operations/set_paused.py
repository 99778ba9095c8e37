"""set_paused: stop or resume starting in a group, beside its limit.

Writes   the group
Events   paused or resumed, where changed. Audit "pause" or "resume"
"""

from __future__ import annotations

from qo.event import PAUSED, RESUMED
from qo.store.sqlite.shared.hand_over import hand_over
from qo.store.sqlite.shared.step import Step
from qo.store.sqlite.shared.undoing import undone


def set_paused(step: Step, group: str, paused: bool, *, by: str | None = None, undoes: int | None = None) -> None:
    if undoes is not None:
        undone(step, group, undoes)
    row = step.groups.get(group)
    if row.paused != paused:
        row.paused = paused
        step.groups.store(row)
        step.event(PAUSED if paused else RESUMED, group)
        step.audit(by, "pause" if paused else "resume", group, {})
    hand_over(step)
