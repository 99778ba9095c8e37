"""Actions of the state machine: jobs are submitted, claimed, kept, reported on and finished."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import strategies as st
from msgspec import structs

from qo.job import HELD, State
from qo.policy.checks import OUTCOMES
from qo.values import Advance, Claimed, Outcome, Renewal
from tests.conformance.machine.scene import UNKNOWN, Scene, action
from tests.conformance.machine.strategies import (
    CALLERS,
    INSTANCES,
    LEASE_MS,
    OWN_GROUPS,
    PARENTS,
    PRIORITIES,
    SECOND_MS,
    TASKS,
    WORKERS,
    averages,
    batches,
    errors,
    hurried_submissions,
    maybe,
    messages,
    one_to_four,
    phase_submissions,
    progress,
    seldom,
    some_of,
    submissions,
    tiered_submissions,
)


class Submitting(Scene):
    """Jobs of every kind come in."""

    def submit(self, data: st.DataObject, kind: Callable[..., st.SearchStrategy[Any]]) -> None:
        batch = data.draw(batches(self.submitted, self.now, kind))
        self.submitted += len(batch)
        self.do("submit", batch)

    @action(3)
    def submit_jobs(self, data: st.DataObject) -> None:
        self.submit(data, submissions)

    @action(2)
    def submit_jobs_alike(self, data: st.DataObject) -> None:
        """They stand in one lane."""
        first = data.draw(submissions(self.submitted, self.now, unique=None, cap=None))
        alike = [first] * data.draw(st.integers(2, 4))
        self.do("submit", [structs.replace(job, id=f"{job.id}-{number}") for number, job in enumerate(alike)])
        self.submitted += 1

    @action()
    def submit_phases(self, data: st.DataObject) -> None:
        self.submit(data, phase_submissions)

    @action(2)
    def submit_the_phases_of_a_parent(self, data: st.DataObject) -> None:
        """In any order, and on one task, so that they get to run."""
        parent, task = data.draw(st.sampled_from(PARENTS)), data.draw(st.sampled_from(TASKS))
        for phase in data.draw(st.permutations([1, 2, 3])):
            fixed = {"parent": parent, "phase": phase, "task": task, "groups": (), "cap": None}
            self.do("submit", [data.draw(submissions(self.submitted, self.now, **fixed))])
            self.submitted += 1

    @action(2)
    def submit_for_users_with_a_tier(self, data: st.DataObject) -> None:
        self.submit(data, tiered_submissions)

    @action(when=lambda self: self.state.jobs)
    def submit_a_known_id(self, data: st.DataObject) -> None:
        known = data.draw(st.sampled_from(list(self.state.jobs)))
        self.do("submit", [data.draw(submissions(0, self.now, id=known))])


suspects_taken = st.sampled_from([None, None, 0, 1, 2])


def has_suspects(scene: Scene) -> bool:
    return any(job.suspicion for job in scene.state.jobs.values())


class Running(Scene):
    """Workers claim, renew, report and finish."""

    def claim(
        self,
        worker: str,
        tasks: Iterable[str],
        capacity: int,
        lease_ms: int,
        claim_id: str,
        suspects: int | None = None,
    ) -> Claimed:
        claimed: Claimed = self.do(
            "claim",
            worker=worker,
            tasks=list(tasks),
            capacity=capacity,
            lease_ms=lease_ms,
            claim_id=claim_id,
            suspects=suspects,
        )
        return claimed

    def new_claim_id(self) -> str:
        self.claims += 1
        return f"claim-{self.claims}"

    @action(10, worker=st.sampled_from(WORKERS), capacity=st.integers(1, 8), suspects=suspects_taken)
    def claim_many(self, worker: str, capacity: int, suspects: int | None) -> None:
        self.claim(worker, TASKS, capacity, LEASE_MS, self.new_claim_id(), suspects)

    @action(6, when=has_suspects, worker=st.sampled_from(WORKERS), suspects=suspects_taken)
    def claim_with_suspects_about(self, worker: str, suspects: int | None) -> None:
        """By a worker that was heard of lately, beside others that were."""
        for row in list(self.state.workers.values()):
            self.do("renew", [], worker=row.name, instance=row.instance)
        self.both.look_for_work(worker=worker, tasks=TASKS, suspects=suspects, now=self.now)
        self.claim(worker, TASKS, 3, LEASE_MS, self.new_claim_id(), suspects)

    @action(worker=st.sampled_from(WORKERS), tasks=some_of(TASKS, most=2), suspects=suspects_taken)
    def look_for_work(self, worker: str, tasks: tuple[str, ...], suspects: int | None) -> None:
        self.both.look_for_work(worker=worker, tasks=tasks, suspects=suspects, now=self.now)

    @action(
        3,
        worker=st.sampled_from(WORKERS),
        tasks=some_of((*TASKS, UNKNOWN), most=3),
        capacity=st.integers(1, 3),
        lease_ms=st.sampled_from([LEASE_MS, 20 * SECOND_MS]),
    )
    def claim_some(self, worker: str, tasks: tuple[str, ...], capacity: int, lease_ms: int) -> None:
        self.claim(worker, tasks, capacity, lease_ms, self.new_claim_id())

    @action(3)
    def claim_among_jobs_that_are_overdue(self, data: st.DataObject) -> None:
        """More of them than small bounds fail at once, and first in line, so that the claim meets some."""
        tasks = data.draw(st.lists(st.sampled_from(TASKS[:2]), min_size=4, max_size=8))
        jobs = enumerate(tasks, start=self.submitted)
        self.do(
            "submit",
            [
                data.draw(hurried_submissions(f"h{number}", task=task, priority=min(PRIORITIES)))
                for number, task in jobs
            ],
        )
        self.submitted += len(tasks)
        self.now += SECOND_MS
        self.claim(data.draw(st.sampled_from(WORKERS)), TASKS, data.draw(one_to_four), LEASE_MS, self.new_claim_id())

    @action(when=lambda self: self.claims)
    def claim_again(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, self.claims))
        self.claim(data.draw(st.sampled_from(WORKERS)), TASKS, 2, LEASE_MS, f"claim-{number}")

    @action(2, when=lambda self: self.seen_tokens, worker=seldom(st.sampled_from(WORKERS)))
    def renew(self, data: st.DataObject, worker: str | None) -> None:
        renewals = []
        for of_jobs in data.draw(st.lists(st.booleans(), max_size=3)):
            holder, token = self.pick_lease(data, of_jobs=of_jobs)
            lease_ms = data.draw(st.sampled_from([LEASE_MS, LEASE_MS, 0]))
            extend_ms = data.draw(st.sampled_from([0, 0, 7 * SECOND_MS]))
            renewals.append(Renewal(holder=holder, token=token, lease_ms=lease_ms, extend_ms=extend_ms))
        waiting = list(data.draw(some_of(CALLERS)))
        instance = data.draw(st.sampled_from(INSTANCES))
        self.do("renew", renewals, worker=worker, instance=instance, tickets=waiting)

    @action(2, when=lambda self: self.seen_tokens)
    def advance(self, data: st.DataObject) -> None:
        advances = []
        for _ in range(data.draw(st.integers(1, 2))):
            job_id, token = self.pick_lease(data, of_jobs=True)
            advances.append(
                Advance(
                    job_id=job_id,
                    token=token,
                    stage=data.draw(st.sampled_from([None, "code", "checks"])),
                    progress=data.draw(progress),
                    checkpoint=data.draw(st.sampled_from([None, b"half"])),
                    iteration=data.draw(maybe(st.integers(0, 3))),
                    message=data.draw(messages),
                )
            )
        self.do("advance", advances)

    def outcome(self, data: st.DataObject, holder: str, token: str, state: State) -> Outcome:
        retry_after = data.draw(st.sampled_from([0, 5 * SECOND_MS, LEASE_MS]))
        return Outcome(
            job_id=holder,
            token=token,
            state=state,
            result=b'{"ok":true}' if state is State.SUCCEEDED else None,
            error=data.draw(errors) if state in (State.FAILED, State.SCHEDULED) else None,
            message=data.draw(messages),
            retry_after_ms=retry_after if state is State.SCHEDULED else None,
            averages=data.draw(averages),
        )

    @action(5, when=lambda self: self.jobs_in(*HELD))
    def finish_with_success(self, data: st.DataObject) -> None:
        held = [(one.holder, str(one.token)) for one in self.state.leases.values() if one.is_job]
        chosen = data.draw(st.lists(st.sampled_from(held), min_size=1, max_size=3, unique=True))
        self.do("finish", [self.outcome(data, *lease, State.SUCCEEDED) for lease in chosen])

    @action(
        8,
        when=lambda self: self.seen_tokens,
        states=st.lists(st.sampled_from(sorted(OUTCOMES)), min_size=1, max_size=3),
    )
    def finish_in_any_way(self, data: st.DataObject, states: list[State]) -> None:
        self.do("finish", [self.outcome(data, *self.pick_lease(data, of_jobs=True), state) for state in states])

    @action(3, when=lambda self: self.jobs_in(*HELD))
    def ask_for_confirmation(self, data: st.DataObject) -> None:
        """Of a job that runs: most of those that are claimed here never report anything."""
        held = [(one.holder, str(one.token)) for one in self.state.leases.values() if one.is_job]
        holder, token = data.draw(st.sampled_from(held))
        self.do("advance", [Advance(job_id=holder, token=token, iteration=data.draw(st.integers(0, 3)))])
        self.do("finish", [self.outcome(data, holder, token, State.CONFIRMING)])

    @action(2, when=lambda self: self.jobs_in(*HELD))
    def hand_back(self, data: st.DataObject) -> None:
        """Because groups whose slots are kept elsewhere were found full."""
        held = [(one.holder, str(one.token)) for one in self.state.leases.values() if one.is_job]
        holder, token = data.draw(st.sampled_from(held))
        closed_ms = data.draw(st.sampled_from([0, SECOND_MS, LEASE_MS]))
        closed = dict.fromkeys(data.draw(some_of(OWN_GROUPS)), closed_ms)
        self.do("finish", [Outcome(job_id=holder, token=token, state=State.QUEUED, closed=closed)])
