"""What may happen: a job that is not submitted yet, other limits and workers, the slots of a group over time.

All of it comes from the reading and the replay that estimates are made from, at most a few seconds old.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from qo.errors import InvalidValue
from qo.job import Basis, Job
from qo.new_job import New
from qo.policy.admission import make_submission, standing_of
from qo.policy.checks import check_group, shown
from qo.policy.estimates.base import not_known
from qo.policy.estimates.forecast import Forecast, forecast_line, start_of
from qo.policy.estimates.newcomer import Newcomer, NewEstimate, joined_by, newcomer_from, rank_of
from qo.policy.estimates.timeline import MOST_ENDED_JOBS, EndedAttempt, Timeline, timeline_of
from qo.policy.estimates.what_if import Variant, Waits, WhatIf, check_variants, check_workers, varied, waits_of
from qo.queue.base import QueueBase
from qo.queue.estimator import Estimator
from qo.queue.once_per_reading import OncePerReading
from qo.store.check_values import check_submission
from qo.values import Standing, Submission, UserUsage

TIMELINES_KEPT = 16
PAGES_OF_ENDED_JOBS = 3


class Forecasting(QueueBase):
    """The part of `Queue` that says what may happen, and changes nothing."""

    _estimator: Estimator

    def _begin_forecasting(self) -> None:
        self._new_starts: OncePerReading[tuple[Forecast, float | None]] = OncePerReading(self._estimator)
        self._what_ifs: OncePerReading[WhatIf] = OncePerReading(self._estimator)
        self._timelines: OncePerReading[Timeline] = OncePerReading(self._estimator, most_kept=TIMELINES_KEPT)

    # --- a job that is not submitted yet ----------------------------------------------------------------------

    async def estimate_new(
        self,
        task: str,
        *,
        priority: int | str | None = None,
        user: str | None = None,
        project: str | None = None,
        tier: str | None = None,
        groups: Sequence[str] = (),
    ) -> NewEstimate:
        """When a job would probably start that was submitted now with these fields, and the position it would get.

        Where it would not join the line now, because the user's quota is used up or the line is at its cap, the
        estimate has no numbers and a message that says so. Raises what `submit` raises for wrong values.
        """
        self.check_loop()
        new = New(task=task, priority=priority, user=user, project=project, tier=tier, groups=groups)
        submission = make_submission(new, self.settings, job_id="new", drawn=0)
        check_submission(submission)
        self._estimator.start()
        forecast = await self._estimator.fresh()
        usage = None if user is None else await self.store_here.usage(user)
        standing = submission.standing or self._standing_in(usage)
        refused = _reason_not_to_join(submission, standing, usage, queued=forecast.situation.queued)
        if refused is not None:
            return NewEstimate(position=None, estimate=not_known(refused))
        newcomer = newcomer_from(submission, standing, forecast.situation)

        async def start_in(forecast: Forecast) -> tuple[Forecast, float | None]:
            return forecast, await self.system.call_in_thread(self._start_of_newcomer, newcomer, forecast)

        # There may be a newer reading by now. Then the start is that of the same job in the newer line.
        forecast, start = await self._new_starts.answer(newcomer, start_in)
        return await self._estimator.estimate_of_newcomer(forecast, newcomer, start)

    def _standing_in(self, usage: UserUsage | None) -> Standing | None:
        """The standing that a submit without a tier has: that of the user, as far as it is known here."""
        if usage is None or usage.tier is None:
            return None
        if usage.tier in self.settings.tiers:
            return standing_of(usage.tier, self.settings.tiers)
        return Standing(tier=usage.tier)

    def _start_of_newcomer(self, newcomer: Newcomer, forecast: Forecast) -> float | None:
        """Runs in a thread. None where the job would stand behind those that are played forward."""
        situation = forecast.situation
        rank = rank_of(newcomer, situation)
        if rank == len(situation.line) < situation.queued:
            return None
        return start_of(rank, joined_by(newcomer, situation), self.settings)

    # --- other limits and workers -----------------------------------------------------------------------------

    async def what_if(self, variants: Sequence[Variant]) -> WhatIf:
        """How long the jobs in line would wait with other limits and other capacities of workers, of which at most 5
        variants can be given. Nothing is changed. Raises `InvalidValue` for a wrong number and an unknown worker."""
        self.check_loop()
        if not isinstance(variants, list | tuple):
            raise InvalidValue(f"variants is {shown(variants)}; give a list of qo.Variant(limits=..., capacity=...).")
        for number, variant in enumerate(variants):
            if not isinstance(variant, Variant):
                raise InvalidValue(
                    f"variants[{number}] is {shown(variant)}; give a qo.Variant(limits=..., capacity=...)."
                )
        check_variants(variants)
        self._estimator.start()
        key = msgspec.json.encode(variants, order="sorted")

        async def waits(forecast: Forecast) -> WhatIf:
            check_workers(variants, forecast.situation)
            return WhatIf(
                jobs=len(forecast.situation.line),
                basis=Basis.MEASURED if forecast.has_data else Basis.FIRST_GUESS,
                before=await self.system.call_in_thread(self._waits_in, forecast),
                # One by one, so that other work can use the thread's time in between.
                variants=[await self.system.call_in_thread(self._waits_with, each, forecast) for each in variants],
            )

        return await self._what_ifs.answer(key, waits)

    def _waits_with(self, variant: Variant, forecast: Forecast) -> Waits:
        return self._waits_in(forecast_line(varied(forecast.situation, variant), self.settings))

    def _waits_in(self, forecast: Forecast) -> Waits:
        return waits_of(self._estimator.likely_seconds(forecast))

    # --- the slots of a group ---------------------------------------------------------------------------------

    async def timeline(self, group: str) -> Timeline:
        """What ran in the slots of a group, what holds them now, and one possible course of what will run in them."""
        self.check_loop()
        check_group(group)
        self._estimator.start()

        async def lanes(forecast: Forecast) -> Timeline:
            (status,) = await self.store_here.groups([group])
            ended = await self._ended_attempts(group)

            def work_out() -> Timeline:
                return timeline_of(status, ended=ended, forecast=forecast)

            return await self.system.call_in_thread(work_out)

        return await self._timelines.answer(group, lanes)

    async def _newest_ended_jobs(self) -> list[Job]:
        """Looks at a few pages only, so that a long line of newer jobs costs no more than a short one."""
        found: list[Job] = []
        after = None
        for _ in range(PAGES_OF_ENDED_JOBS):
            page = await self.store_here.jobs(
                limit=MOST_ENDED_JOBS - len(found), newest_first=True, after=after, ended=True
            )
            found += page.jobs
            after = page.next
            if after is None or len(found) >= MOST_ENDED_JOBS:
                break
        return found

    async def _ended_attempts(self, group: str) -> Sequence[EndedAttempt]:
        """The attempts of those of the newest MOST_ENDED_JOBS ended jobs that are in the group."""
        jobs = await self._newest_ended_jobs()
        return [
            EndedAttempt(
                job=job.id,
                worker=attempt.worker,
                slots=attempt.slots,
                started_at=attempt.started_at,
                ended_at=attempt.ended_at,
                outcome=attempt.outcome,
            )
            for job in jobs
            if job.history is not None
            for attempt in job.history.attempts
            if group in attempt.slots
        ]


def _reason_not_to_join(
    submission: Submission, standing: Standing | None, usage: UserUsage | None, *, queued: int
) -> str | None:
    """Why the job would not join the line now. The quota comes before the cap, as in a submit."""
    quota = None if standing is None else standing.daily_quota
    if usage is not None and quota is not None and usage.used_today >= quota:
        return f"the user's quota of {quota} jobs a day is used up, so it would be scheduled for a later day"
    if submission.cap is not None and queued >= submission.cap:
        return f"the line is full ({queued} jobs in line, cap {submission.cap}), so it would be refused"
    return None
