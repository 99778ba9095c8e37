"""note_promises: note what users were told about jobs in line.

Writes   the promise of jobs that have none yet and never started
"""

from __future__ import annotations

from collections.abc import Mapping

from qo.policy.job_history import promise_line
from qo.store.sqlite.shared.step import Step


def note_promises(step: Step, ranges: Mapping[str, tuple[int, int]]) -> None:
    step.db.executemany(
        "UPDATE job SET promise = ? WHERE id = ? AND state = 'queued' AND started_at IS NULL AND promise IS NULL",
        [(promise_line(step.now, *span), job_id) for job_id, span in ranges.items()],
    )
