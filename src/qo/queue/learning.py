"""Learning: how wrong earlier estimates were, and the range of each task that follows from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from qo.policy.estimates.forecast import Forecast
from qo.policy.estimates.ranges import Multipliers, learn, multiplier, next_aim
from qo.policy.estimates.replay import NEVER
from qo.settings.sections import EstimateSettings
from qo.store.contract import Store

LENT_BY_EACH_TASK = 100


class Promise(msgspec.Struct, frozen=True, gc=False):
    """The first estimate of a job, and the range that was made of it."""

    task: str
    made_at: float
    seconds: float
    margin_seconds: float
    multipliers: Multipliers


class Learning:
    """One for each estimator."""

    def __init__(self, store: Store, settings: EstimateSettings) -> None:
        self._store = store
        self._settings = settings
        self.promises: dict[str, Promise] = {}
        """The first estimate of each job in line, by its id."""
        self._errors: dict[str, tuple[float, ...]] = {}
        """By task, how wrong earlier estimates were, as read from the store."""
        self._ranges: dict[str, Multipliers] = {}
        self._aims: dict[str, float] = {}
        """By task, the share of starts that its range aims at. Each start of a job with an estimate corrects it."""
        self._range_of_others = learn((), (), settings.learnt_coverage, settings)
        """The range of a task that the last replay did not see."""

    def range_of(self, task: str) -> Multipliers:
        return self._ranges.get(task, self._range_of_others)

    def remember(self, forecast: Forecast) -> None:
        """Keep the first estimate of each job. A job that left the line without having started is forgotten."""
        promises = {job_id: promise for job_id, promise in self.promises.items() if job_id in forecast.ranks}
        if forecast.has_data:
            for job_id, rank in forecast.ranks.items():
                if job_id not in promises and forecast.starts[rank] != NEVER:
                    promises[job_id] = Promise(
                        forecast.tasks[rank],
                        forecast.made_at,
                        forecast.starts[rank],
                        forecast.margin_seconds,
                        self._ranges[forecast.tasks[rank]],
                    )
        self.promises = promises

    async def learn_from(self, starts: Mapping[str, float]) -> None:
        """Record how wrong the first estimates of these started jobs were."""
        wrong: dict[str, list[float]] = defaultdict(list)
        for job_id, started_at in starts.items():
            promise = self.promises.pop(job_id, None)
            if promise is not None:
                right = multiplier(
                    promised_seconds=promise.seconds,
                    actual_seconds=started_at - promise.made_at,
                    margin_seconds=promise.margin_seconds,
                )
                wrong[promise.task].append(right)
                self._aims[promise.task] = next_aim(
                    self._aim_of(promise.task),
                    was_inside=promise.multipliers.low <= right <= promise.multipliers.high,
                    settings=self._settings,
                )
        if wrong:
            await self._store.observe(errors=wrong)
        for task in wrong:
            self._errors.pop(task, None)

    async def read_errors(self, tasks: set[str]) -> None:
        """Read the errors of the tasks in line. Those of other tasks are forgotten and read again when needed."""
        self._errors = {task: errors for task, errors in self._errors.items() if task in tasks}
        unread = [task for task in tasks if task not in self._errors]
        if unread:
            self._errors.update((await self._store.observed(tasks=unread)).errors)
        self._ranges = {task: range_ for task, range_ in self._ranges.items() if task in tasks and task not in unread}

    def learn_ranges(self) -> None:
        """Work out the ranges of tasks whose errors were read since the last call."""
        if len(self._ranges) == len(self._errors):
            return
        of_all = [error for errors in self._errors.values() for error in errors[-LENT_BY_EACH_TASK:]]
        self._range_of_others = learn((), of_all, self._settings.learnt_coverage, self._settings)
        for task in self._errors.keys() - self._ranges.keys():
            self._ranges[task] = learn(self._errors[task], of_all, self._aim_of(task), self._settings)

    def _aim_of(self, task: str) -> float:
        return self._aims.get(task, self._settings.learnt_coverage)
