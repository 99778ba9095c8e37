"""Why each job in line waits, in a few words, and what most of them wait for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from qo.job import State
from qo.policy.groups import groups_of
from qo.policy.reasons.line import MOST_OF_THE_LINE, LineReasons
from qo.policy.reasons.reason import ReasonKind
from qo.values import GroupStatus, InLine, Suspicion, WorkerInfo
from tests.policy.blocked_jobs import FIVE_PAST, NOW, job


def in_line(
    number: int, task: str = "build", *, user: str | None = None, own: tuple[str, ...] = (), **more: Any
) -> InLine:
    groups = groups_of(task=task, priority=more.pop("priority", 50), user=user, own=own)
    return InLine(id=f"j{number}", task=task, key=number, groups=groups, **more)


def worker(*tasks: str, capacity: int = 4, running: int = 0, name: str = "w1") -> WorkerInfo:
    return WorkerInfo(
        name=name,
        tasks=tasks,
        capacity=capacity,
        running=running,
        registered_at=NOW,
        heard_at=NOW,
        expires_at=NOW + timedelta(seconds=30),
    )


def full(name: str, limit: int = 2) -> GroupStatus:
    return GroupStatus(group=name, limit=limit, active=limit)


def reasons_in(line: list[InLine], *groups: GroupStatus, workers: tuple[WorkerInfo, ...] | None = None) -> LineReasons:
    return LineReasons(line, groups=groups, workers=(worker("build"),) if workers is None else workers, now=NOW)


def texts_of(reasons: LineReasons, each: InLine) -> list[str]:
    asked = job(id=each.id, task=each.task, groups=each.groups, position=1)
    return [reason.text for reason in reasons.of(asked)]


def second_of_two(*groups: GroupStatus, workers: tuple[WorkerInfo, ...] | None = None, **fields: Any) -> list[str]:
    """The reasons of a job whose like stands before it."""
    line = [in_line(number, **fields) for number in (1, 2)]
    return texts_of(reasons_in(line, *groups, workers=workers), line[1])


@pytest.mark.parametrize(
    ("group", "text"),
    [
        (full("global", 4), "global 4 of 4"),
        (GroupStatus(group="global", limit=4, active=6), "global 6 of 4"),
        (full("user:u1"), "user:u1 has 2 of 2 running"),
        (full("provider:ollama", 1), "provider:ollama 1 of 1"),
        (GroupStatus(group="priority:50", paused=True), "paused: priority:50"),
        (GroupStatus(group="build", limit=0), "build has a limit of 0"),
        (GroupStatus(group="global", limit=4, closed_until=FIVE_PAST), "global is full elsewhere until 12:05 UTC"),
        (
            GroupStatus(group="global", limit=4, active=3, kept="a caller"),
            "the free slot of global is kept for a job before it",
        ),
    ],
)
def test_a_group_without_room_is_named_in_a_few_words(group: GroupStatus, text: str) -> None:
    assert second_of_two(group, user="u1", own=("provider:ollama",)) == [text]


def test_a_task_without_a_worker_comes_before_all_else() -> None:
    found = second_of_two(full("global"), task="export")

    assert found == ["no worker runs task export", "global 2 of 2"]


def test_a_pause_comes_before_a_full_group_and_the_limit_of_all_comes_last() -> None:
    groups = (full("global"), full("user:u1"), GroupStatus(group="build", paused=True))

    assert second_of_two(*groups, user="u1") == ["paused: build", "user:u1 has 2 of 2 running", "global 2 of 2"]


def test_only_the_strongest_reasons_are_listed() -> None:
    groups = (full("a"), full("b"), full("c"), full("d"))

    assert second_of_two(*groups, own=("a", "b", "c", "d")) == ["a 2 of 2", "b 2 of 2", "c 2 of 2"]


def test_the_first_of_those_that_wait_for_a_group_is_told_that_it_starts_with_the_next_slot() -> None:
    line = [in_line(1, user="u1"), in_line(2), in_line(3)]
    reasons = reasons_in(line, full("global"), full("user:u1"))

    assert [texts_of(reasons, each) for each in line] == [
        ["user:u1 has 2 of 2 running", "global 2 of 2"],
        ["starts when a slot of global is free"],
        ["global 2 of 2"],
    ]


def test_a_job_that_can_start_takes_its_slots_before_those_behind_it() -> None:
    line = [in_line(1), in_line(2), in_line(3)]
    reasons = reasons_in(line, GroupStatus(group="global", limit=4, active=3))

    assert [texts_of(reasons, each) for each in line] == [
        ["starts as soon as a worker takes it"],
        ["starts when a slot of global is free"],
        ["global 4 of 4"],
    ]


def test_jobs_wait_for_workers_of_their_task_that_are_busy() -> None:
    line = [in_line(1), in_line(2), in_line(3, "test")]
    reasons = reasons_in(line, workers=(worker("build", "test", capacity=3, running=1),))

    assert [texts_of(reasons, each) for each in line] == [
        ["starts as soon as a worker takes it"],
        ["starts as soon as a worker takes it"],
        ["all workers of test are busy"],
    ]


def test_the_job_that_a_slot_is_kept_for_and_those_before_it_do_not_wait_for_it() -> None:
    line = [in_line(1), in_line(2), in_line(3)]
    keeper = GroupStatus(group="global", limit=1, active=0, kept="j2")
    before = reasons_in(line, keeper)
    behind = reasons_in(line[1:], keeper)

    assert texts_of(before, line[0]) == ["starts as soon as a worker takes it"]
    assert texts_of(behind, line[1]) == ["starts as soon as a worker takes it"]
    assert texts_of(behind, line[2]) == ["starts when a slot of global is free"]


def test_a_kept_slot_is_no_reason_for_a_job_of_the_same_groups_that_stands_before_it() -> None:
    line = [in_line(number) for number in (1, 2, 3, 4)]
    reasons = reasons_in(line, GroupStatus(group="global", limit=2, active=0, kept="j2"))

    assert [texts_of(reasons, each) for each in line] == [
        ["starts as soon as a worker takes it"],
        ["starts as soon as a worker takes it"],
        ["starts when a slot of global is free"],
        ["global 2 of 2"],
    ]


def test_a_suspect_says_that_it_runs_alone() -> None:
    line = [in_line(1, suspicion=Suspicion.LAST)]

    assert texts_of(reasons_in(line), line[0]) == ["its worker stopped responding: waits to run alone"]


def test_a_job_that_came_later_is_explained_too_and_one_that_is_not_in_line_is_not() -> None:
    reasons = reasons_in([in_line(1)], full("global"))

    assert texts_of(reasons, in_line(9)) == ["global 2 of 2"]
    assert reasons.of(job(id="j1")) == ()


def test_a_job_that_changed_its_groups_since_is_explained_by_those_it_has_now() -> None:
    reasons = reasons_in([in_line(1, priority=50)], GroupStatus(group="priority:50", paused=True))

    assert texts_of(reasons, in_line(1, priority=10)) == ["starts as soon as a worker takes it"]


def test_jobs_that_came_later_do_not_all_take_the_same_slot() -> None:
    reasons = reasons_in([], GroupStatus(group="global", limit=1, active=0))

    assert texts_of(reasons, in_line(1)) == ["starts as soon as a worker takes it"]
    assert texts_of(reasons, in_line(2)) == ["global 1 of 1"]
    assert texts_of(reasons, in_line(1)) == ["starts as soon as a worker takes it"]


def test_the_jobs_that_wait_for_something_else_than_before_are_found() -> None:
    line = [in_line(1, user="u1"), in_line(2), in_line(3, user="u1"), in_line(4)]
    before = reasons_in(line[:3], full("global", 4))
    now = reasons_in(line, full("global", 4), full("user:u1"))

    changes = now.changes_since(before, most=500)

    assert [(each.ids, [reason.text for reason in each.waits_for]) for each in changes] == [
        (["j1", "j3"], ["user:u1 has 2 of 2 running", "global 4 of 4"]),
        (["j2"], ["starts when a slot of global is free"]),
        (["j4"], ["global 4 of 4"]),
    ]
    assert now.changes_since(now, most=500) == []
    assert [each.ids for each in now.changes_since(before, most=1)] == [["j1"]]


def test_the_overview_says_what_most_jobs_wait_for() -> None:
    line = [in_line(number, own=("provider:ollama",)) for number in range(34)]
    line += [in_line(number, "render") for number in range(34, 46)]
    line += [in_line(number, priority=90) for number in range(46, 49)]
    line += [in_line(number) for number in range(49, 51)]
    groups = (full("provider:ollama", 4), GroupStatus(group="priority:90", paused=True))

    overview = reasons_in(line, *groups, workers=(worker("build", capacity=1),)).overview(
        {State.QUEUED: len(line), State.SCHEDULED: 20, State.CONFIRMING: 2, State.RUNNING: 4}
    )

    assert [(each.count, each.text, each.group) for each in overview] == [
        (34, "34 for provider:ollama (4 of 4)", "provider:ollama"),
        (20, "20 scheduled for later", None),
        (12, "12 for a worker of render", "render"),
        (3, "3 paused: priority:90", "priority:90"),
        (2, "2 for a person to confirm", None),
        (1, "1 for a free worker of build", "build"),
        (1, "1 about to start", None),
    ]


def test_the_overview_counts_small_reasons_together() -> None:
    line = [in_line(number, user=f"u{number}") for number in range(MOST_OF_THE_LINE + 5)]
    groups = [full(f"user:u{number}") for number in range(MOST_OF_THE_LINE + 5)]

    overview = reasons_in(line, *groups).overview({})

    assert len(overview) == MOST_OF_THE_LINE + 1
    assert (overview[-1].kind, overview[-1].text) == (ReasonKind.OTHER, "5 for 5 other reasons")
    assert sum(each.count for each in overview) == len(line)


def test_nothing_waits_in_an_empty_line() -> None:
    assert reasons_in([]).overview({}) == ()
