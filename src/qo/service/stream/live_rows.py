"""Jobs as rows of the operators' stream: as little of each as a page needs that knows the row from before."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from qo.job import Job, State
from qo.policy.reasons.reason import Reasons
from qo.service.shapes import row_of

NOT_LIVE = frozenset(
    {"history", "position", "position_message", "token", "trace", "upgrade", "upgrade_url", "usage"}
) | {
    "groups",
    "submitted_at",
    "unique",
}
"""What a row leaves out: pages count positions by the keys of their rows, and show the others only of one job."""
OF_AN_ESTIMATE = ("lower_bound", "estimate_seconds", "upper_bound")
CHANGES_IN_LINE = ("id", "state", "key", "key_before", "priority", "tier")
"""What can change of a job that stays in line, beside its estimate and its reasons."""
COUNTS = ("attempts", "iterations")
HELD = frozenset({State.STARTING, State.RUNNING})
MOST_REMEMBERED = 2000


class LiveRows:
    """Remembers the rows of running jobs, whose stages and progress change often."""

    def __init__(self) -> None:
        self._sent: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def row(self, job: Job, *, waits_for: Reasons, key_before: int | None, sequence: int | None) -> dict[str, Any]:
        """The job's row, as `Frame.changed` describes it. `key_before` is the order key that it had in line."""
        row = _whole(job, waits_for, {"key_before": key_before, "sequence": sequence})
        before = self._sent.pop(job.id, None)
        if job.state in HELD:
            self._sent[job.id] = row
            if len(self._sent) > MOST_REMEMBERED:
                self._sent.popitem(last=False)
        if before is not None and before["state"] == row["state"]:
            return _changed(before, row)
        if job.key is not None and key_before is not None and key_before <= job.key:
            return {name: row[name] for name in CHANGES_IN_LINE if name in row}
        return row


def _whole(job: Job, waits_for: Reasons, in_line: dict[str, int | None]) -> dict[str, Any]:
    row = row_of(job, waits_for or None) | in_line
    row["estimate"] = _estimate(row["estimate"])
    if row["status"] == row["state"]:
        del row["status"]
    for name in COUNTS:
        row[name] = row[name] or None
    return {
        name: value for name, value in row.items() if value is not None and value is not False and name not in NOT_LIVE
    }


def _estimate(estimate: dict[str, Any] | None) -> dict[str, Any] | None:
    if estimate is None or estimate["upper_bound"] is None:
        return estimate and {"message": estimate["message"]}
    return {name: estimate[name] for name in OF_AN_ESTIMATE}


def _changed(before: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    names = before.keys() | row.keys()
    changed = {name: row.get(name) for name in sorted(names) if before.get(name) != row.get(name)}
    return {"id": row["id"], "state": row["state"]} | changed
