"""set_paused: stop or resume starting in a group, beside its limit.

Writes   the group
Events   paused or resumed, where changed. Audit "pause" or "resume"
"""

from __future__ import annotations

from qo.event import PAUSED, RESUMED
from qo.store.sqlite.hand_over import hand_over
from qo.store.sqlite.step import Step


def set_paused(step: Step, name: str, paused: bool, *, by: str | None) -> None:
    group = step.groups.get(name)
    if group.paused != paused:
        group.paused = paused
        step.groups.store(group)
        step.event(PAUSED if paused else RESUMED, name)
        step.audit(by, "pause" if paused else "resume", name, {})
    hand_over(step)
