"""Why the jobs in line wait, in a few words each, and what most of them wait for.

`why.py` explains one job from exact facts. Here the whole line is explained from one reading of it, for lists and for
the overview of operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice

import msgspec

from qo.job import Job, State
from qo.policy.reasons.reason import ChangedReasons, ReasonKind, Reasons, SharedReason
from qo.policy.reasons.rooms import Rooms
from qo.policy.words import counted
from qo.values import GroupStatus, InLine, WorkerInfo

MOST_OF_THE_LINE = 20
"""How many reasons the overview names. The jobs of all others are counted together."""
_NOT_IN_LINE = {
    State.SCHEDULED: (ReasonKind.SCHEDULED, "scheduled for later"),
    State.WAITING: (ReasonKind.WAITING, "for the phase before"),
    State.CONFIRMING: (ReasonKind.CONFIRMING, "for a person to confirm"),
}


class LineReasons:
    """The reasons of the jobs in line at one moment.

    The line is walked from its front as a claim would: a job that nothing holds up takes its slots and a worker's
    capacity, so that the job behind it is said to wait for them.
    """

    def __init__(
        self,
        line: Sequence[InLine],
        *,
        groups: Sequence[GroupStatus],
        workers: Sequence[WorkerInfo],
        now: datetime,
    ) -> None:
        self._rooms = Rooms(groups, workers, now)
        self._rooms.find_keepers(line)
        self._known: dict[str, tuple[tuple[str, tuple[str, ...]], Reasons]] = {}
        """By the job's id, what it competed for and why it waits."""
        first_for: set[str] = set()
        for rank, job in enumerate(line):
            reasons = self._rooms.reasons_of(job.id, job.task, job.groups, suspicion=job.suspicion, rank=rank)
            main = reasons[0]
            if len(reasons) == 1 and main.kind is ReasonKind.FULL and main.group not in first_for:
                assert main.group is not None
                first_for.add(main.group)
                reasons = (msgspec.structs.replace(main, text=f"starts when a slot of {main.group} is free"),)
            self._known[job.id] = (job.task, job.groups), reasons
        self._overview = _overview((reasons for _, reasons in self._known.values()), self._rooms)

    def overview(self, counts: Mapping[State, int]) -> tuple[SharedReason, ...]:
        """What jobs wait for, the reason of most of them first. A job in line counts once, for its strongest reason.
        `counts` has the number of jobs in each state: those that are not in line yet wait too."""
        elsewhere = [
            SharedReason(kind=kind, text=f"{count} {words}", count=count)
            for state, (kind, words) in _NOT_IN_LINE.items()
            if (count := counts.get(state, 0))
        ]
        found = (*self._overview, *elsewhere)
        return tuple(sorted(found, key=lambda reason: (reason.kind is ReasonKind.OTHER, -reason.count)))

    def of(self, job: Job) -> Reasons:
        """Why a job waits. None for a job that is not in line."""
        if job.position is None:
            return ()
        needs = job.task, job.groups
        known = self._known.get(job.id)
        if known is None or known[0] != needs:
            # It came, or changed its groups, after the line was read; or it stands behind the part that was read.
            known = needs, self._rooms.reasons_of(job.id, *needs, rank=len(self._known))
            self._known[job.id] = known
        return known[1]

    def of_first(self, most: int) -> list[ChangedReasons]:
        """The reasons of the first `most` jobs in line, those that wait for the same together."""
        return self._together(most, before={})

    def changes_since(self, before: LineReasons, *, most: int) -> list[ChangedReasons]:
        """The same of those that wait for something else than before."""
        return self._together(most, before=before._known)

    def _together(self, most: int, before: Mapping[str, object]) -> list[ChangedReasons]:
        changed: dict[Reasons, list[str]] = {}
        for job_id, known in islice(self._known.items(), most):
            if before.get(job_id) != known:
                changed.setdefault(known[1], []).append(job_id)
        return [ChangedReasons(waits_for=reasons, ids=ids) for reasons, ids in changed.items()]


def _overview(line: Iterable[Reasons], rooms: Rooms) -> tuple[SharedReason, ...]:
    counts = Counter((main.kind, main.group) for main, *_ in line)
    found = sorted(counts.items(), key=lambda each: (-each[1], each[0][0], each[0][1] or ""))
    named = [
        SharedReason(kind=kind, text=f"{count} {rooms.in_short(kind, group)}", group=group, count=count)
        for (kind, group), count in found[:MOST_OF_THE_LINE]
    ]
    if rest := found[MOST_OF_THE_LINE:]:
        others = sum(count for _, count in rest)
        text = f"{others} for {counted(len(rest), 'other reason')}"
        named.append(SharedReason(kind=ReasonKind.OTHER, text=text, count=others))
    return tuple(named)
