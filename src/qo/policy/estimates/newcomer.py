"""A job that is not submitted yet, put into the line where it would stand."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

import msgspec

from qo.job import Estimate
from qo.policy.estimates.situation import Situation, with_limits
from qo.policy.groups import groups_of
from qo.policy.ordering import drawn_place, order_key
from qo.values import InLine, Source, Standing, Submission


class NewEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """When a job that is not submitted yet would probably start, and the position that it would get.

    `position` is None for a job that would not join the line now; the estimate's message says why.
    """

    position: int | None
    """The place that it would get. None if it would not join the line now."""
    estimate: Estimate
    """When it would probably start, or why that is not known."""


class Newcomer(msgspec.Struct, frozen=True, kw_only=True):
    """What decides where a job would stand and what it would compete for."""

    task: str
    tier: str | None
    key: int
    groups: tuple[str, ...]
    limits: tuple[tuple[str, int | None], ...]
    """The limits that its tier would set."""


def newcomer_from(submission: Submission, standing: Standing | None, situation: Situation) -> Newcomer:
    """The job that this submission would make. `standing` is the one that it brings, or that its user has."""
    assert submission.priority is not None
    tier, boost = (None, 0) if standing is None else (standing.tier, standing.boost)
    return Newcomer(
        task=submission.task,
        tier=tier,
        key=order_key(submission.priority, drawn_place(situation.next_sequence, boost)),
        groups=groups_of(
            task=submission.task,
            priority=submission.priority,
            user=submission.user,
            project=submission.project,
            tier=tier,
            task_groups=situation.task_groups.get(submission.task, ()),
            own=submission.groups,
        ),
        limits=() if standing is None else tuple(_limits_of(standing, submission, situation).items()),
    )


def rank_of(newcomer: Newcomer, situation: Situation) -> int:
    """How many of the jobs in line would stand ahead of it."""
    return bisect_left(situation.line, newcomer.key, key=lambda job: job.key)


def joined_by(newcomer: Newcomer, situation: Situation) -> Situation:
    """The situation after the newcomer has joined the line."""
    rank = rank_of(newcomer, situation)
    job = InLine(id="", task=newcomer.task, key=newcomer.key, tier=newcomer.tier, groups=newcomer.groups)
    line = [*situation.line[:rank], job, *situation.line[rank:]]
    return with_limits(msgspec.structs.replace(situation, line=line), dict(newcomer.limits))


def _limits_of(standing: Standing, submission: Submission, situation: Situation) -> Mapping[str, int | None]:
    """Those limits of a tier that are not kept out by an operator or by the configuration."""
    wanted = {
        f"user:{submission.user}": standing.user_limit,
        **({} if submission.project is None else {f"project:{submission.project}": standing.project_limit}),
    }
    limits: dict[str, int | None] = {}
    for name, slots in wanted.items():
        group = situation.group(name)
        if slots is None:
            # A tier that limits nothing takes away what an earlier tier had set, and nothing else.
            if group.source is Source.TIER:
                limits[name] = None
        elif slots != group.limit and (group.source is None or group.source >= Source.TIER):
            limits[name] = slots
    return limits
