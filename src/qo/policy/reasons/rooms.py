"""How much is free of each group and of the workers, and what a job is told that finds nothing free."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from qo.policy.groups import GATES
from qo.policy.reasons.reason import Reason, ReasonKind, Reasons
from qo.policy.words import clock_time
from qo.values import GroupStatus, InLine, Suspicion, WorkerInfo

MOST_OF_A_JOB = 3
"""How many reasons of one job are listed, the strongest ones."""


class _Room:
    """A group that may hold jobs up, and how many of its slots are taken so far."""

    def __init__(self, status: GroupStatus, now: datetime) -> None:
        self.name = status.group
        self.taken = status.active
        self.limit = status.limit
        self.kept_for = status.kept
        self.keeper_rank = -1
        """Where the job stands that a slot is kept for; -1 for one that stands before all of them, or in no line."""
        self.shut = _shut(status, now)

    def reason_for(self, job_id: str, rank: int) -> Reason | None:
        if self.shut is not None:
            return self.shut
        if self.limit is None:
            return None
        if self.taken >= self.limit:
            return self._full()
        is_kept = self.kept_for not in (None, job_id) and self.keeper_rank < rank
        return self._kept() if is_kept and self.taken == self.limit - 1 else None

    def in_short(self, kind: ReasonKind) -> str:
        match kind:
            case ReasonKind.FULL:
                return f"{self.name} ({self.taken} of {self.limit})"
            case ReasonKind.KEPT:
                return f"{self.name} (its free slot is kept)"
            case ReasonKind.SHUT:
                return f"{self.name} (limit 0)"
            case _:
                return f"{self.name} (full elsewhere)"

    def take(self, job_id: str) -> None:
        self.taken += 1
        if self.kept_for == job_id:
            self.kept_for = None

    def _full(self) -> Reason:
        words = f"{self.taken} of {self.limit}"
        text = f"{self.name} has {words} running" if self.name.startswith("user:") else f"{self.name} {words}"
        return Reason(kind=ReasonKind.FULL, text=text, group=self.name)

    def _kept(self) -> Reason:
        text = f"the free slot of {self.name} is kept for a job before it"
        return Reason(kind=ReasonKind.KEPT, text=text, group=self.name)


def _shut(status: GroupStatus, now: datetime) -> Reason | None:
    """Why nothing starts in this group, however many slots are free."""
    name = status.group
    if status.paused:
        return Reason(kind=ReasonKind.PAUSED, text=f"paused: {name}", group=name)
    if status.limit == 0:
        return Reason(kind=ReasonKind.SHUT, text=f"{name} has a limit of 0", group=name)
    if status.closed_until is not None:
        until = clock_time(status.closed_until, now=now)
        return Reason(kind=ReasonKind.CLOSED, text=f"{name} is full elsewhere until {until}", group=name)
    return None


_ORDER = [ReasonKind.NO_WORKER, ReasonKind.PAUSED, ReasonKind.SHUT, ReasonKind.CLOSED, ReasonKind.FULL, ReasonKind.KEPT]
_STRENGTH = {kind: number for number, kind in enumerate(_ORDER)}
_SUSPECTED = {
    Suspicion.SUSPECT: Reason(kind=ReasonKind.SUSPECT, text="its worker stopped responding: runs among few"),
    Suspicion.LAST: Reason(kind=ReasonKind.SUSPECT, text="its worker stopped responding: waits to run alone"),
}
_NEXT = Reason(kind=ReasonKind.NEXT, text="starts as soon as a worker takes it")


class Rooms:
    """How much is free of each group and of the workers."""

    def __init__(self, groups: Sequence[GroupStatus], workers: Sequence[WorkerInfo], now: datetime) -> None:
        self._groups = {
            status.group: _Room(status, now)
            for status in groups
            if status.limit is not None or status.paused or status.closed_until is not None
        }
        self._free = {worker.name: worker.capacity - worker.running for worker in workers}
        self._workers_of: dict[str, list[str]] = {}
        for worker in sorted(workers, key=lambda each: len(each.tasks)):  # those that take few other tasks come first
            for task in worker.tasks:
                self._workers_of.setdefault(task, []).append(worker.name)
        self._busy: set[str] = set()
        """The tasks whose workers were found busy. No capacity is given back during a walk."""
        self._of_groups: dict[tuple[str, ...], tuple[_Room, ...]] = {}
        self._blocked: dict[tuple[str, tuple[str, ...]], Reasons] = {}
        """By task and groups, why such a job waits, until a job takes what is free: most of a long line is alike."""
        self._are_alike = all(room.kept_for is None for room in self._groups.values())
        """Whether jobs of one task and the same groups wait for the same. A kept slot is there for one of them."""

    def find_keepers(self, line: Sequence[InLine]) -> None:
        kept = [room for room in self._groups.values() if room.kept_for is not None]
        ranks = {job.id: rank for rank, job in enumerate(line)} if kept else {}
        for room in kept:
            room.keeper_rank = ranks.get(room.kept_for or "", -1)

    def reasons_of(
        self,
        job_id: str,
        task: str,
        groups: tuple[str, ...],
        *,
        suspicion: Suspicion = Suspicion.NONE,
        rank: int,
    ) -> Reasons:
        """Why the job at this place in line waits, the strongest reason first. If nothing holds it up, it takes what it
        needs."""
        if self._are_alike and not suspicion and (known := self._blocked.get((task, groups))) is not None:
            return known
        rooms = self._rooms_of(groups)
        found = [reason for room in rooms if (reason := room.reason_for(job_id, rank)) is not None]
        if task not in self._workers_of:
            found.append(Reason(kind=ReasonKind.NO_WORKER, text=f"no worker runs task {task}", group=task))
        if found:
            found.sort(key=lambda reason: _STRENGTH[reason.kind])
            self._blocked[task, groups] = reasons = tuple(found[:MOST_OF_A_JOB])
            return reasons
        if suspicion:
            return (_SUSPECTED[suspicion],)
        worker = self._free_worker(task)
        if worker is None:
            reasons = (Reason(kind=ReasonKind.BUSY, text=f"all workers of {task} are busy", group=task),)
            self._blocked[task, groups] = reasons
            return reasons
        self._free[worker] -= 1
        self._blocked.clear()
        for room in rooms:
            room.take(job_id)
        return (_NEXT,)

    def in_short(self, kind: ReasonKind, group: str | None) -> str:
        """The words behind the number of jobs that wait for this: "for provider:ollama (4 of 4)"."""
        match kind:
            case ReasonKind.NO_WORKER:
                return f"for a worker of {group}"
            case ReasonKind.BUSY:
                return f"for a free worker of {group}"
            case ReasonKind.PAUSED:
                return f"paused: {group}"
            case ReasonKind.SUSPECT:
                return "to run alone or among few, because their worker stopped responding"
            case ReasonKind.NEXT:
                return "about to start"
            case _:
                assert group is not None
                return f"for {self._groups[group].in_short(kind)}"

    def _free_worker(self, task: str) -> str | None:
        if task in self._busy:
            return None
        worker = next((name for name in self._workers_of[task] if self._free[name] > 0), None)
        if worker is None:
            self._busy.add(task)
        return worker

    def _rooms_of(self, groups: tuple[str, ...]) -> tuple[_Room, ...]:
        """Those that may hold the job up. A user's or a provider's limit says more than that of `global`, which comes
        last."""
        found = self._of_groups.get(groups)
        if found is None:
            ordered = (*groups[GATES:], *reversed(groups[:GATES]))
            found = self._of_groups[groups] = tuple(self._groups[name] for name in ordered if name in self._groups)
        return found
