"""Small pools of everything a store is told of, so that things collide. Limits are 0 to 3, days are short of quota."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from qo.job import JobError, Progress
from qo.values import Average, Limit, Registration, Source, Standing, Submission, TaskOptions, Ticket

SECOND_MS = 1000
LEASE_MS = 60 * SECOND_MS
DAY_MS = 86_400 * SECOND_MS
START = 20_000 * DAY_MS + DAY_MS // 2

TASKS = ("build", "mail", "scan")
USERS = ("u1", "u2", "u3")
PROJECTS = ("p1", "p2")
PARENTS = ("7", "12", "night")
OWN_GROUPS = ("gpu", "api", "provider:ollama")
GROUPS_OF_JOBS = (*OWN_GROUPS, "mail")  # the last is a gate to jobs of that task, a group like any other to the rest
WORKERS = ("w1", "w2", "w3")
INSTANCES = ("", "", "", "one", "two")  # of workers of one name; mostly the same
CALLERS = ("c1", "c2", "c3", "x0")  # the last may be a job's id, too
PRIORITIES = (20, 50, 90)

SHARED_GROUPS = (
    "global", "build", "mail", "priority:50", "priority:20", "user:u1", "user:u2", "project:p1", "tier:fast",
    "parent:7", *OWN_GROUPS,
)  # fmt: skip
"""groups that a limit or a pause may hit"""


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def seldom(strategy: st.SearchStrategy[Any], default: Any = None) -> st.SearchStrategy[Any]:
    usual = st.just(default)
    return st.integers(0, 4).flatmap(lambda n: strategy if n == 4 else usual)


def some_of(names: tuple[str, ...], most: int = 2) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(names), max_size=most, unique=True).map(tuple)


by = st.sampled_from([None, "ops"])
priorities = st.sampled_from(PRIORITIES)
slots = st.sampled_from([1, 2, 1, 2, 3, 0])
messages = st.sampled_from([None, "because", "so it is"])
errors = st.sampled_from([None, JobError(message="It broke."), JobError(message="Late.", debug_id="d1")])
averages = st.sampled_from([(), (Average(name="task:build", first=600.0, weight=0.3),)])
progress = st.sampled_from([None, Progress(1.0, 3.0, "first"), Progress(2.0)])
groups = st.sampled_from(SHARED_GROUPS)
sources = st.sampled_from(list(Source))

standings = st.one_of(
    st.sampled_from(
        [
            Standing(tier="plain", user_limit=1, daily_quota=1, iterations_batch=2, iterations_max=6),
            Standing(tier="fast", boost=2, user_limit=2, project_limit=1, daily_quota=2, iterations_batch=1),
            Standing(tier="fast", boost=5, project_limit=2, daily_quota=3),
        ]
    ),
    st.builds(
        Standing,
        tier=st.sampled_from(["plain", "fast", "free"]),
        boost=st.sampled_from([0, 1, 2, 63]),
        user_limit=maybe(slots),
        project_limit=maybe(slots),
        daily_quota=maybe(st.integers(1, 3)),
        iterations_batch=maybe(st.integers(1, 2)),
        iterations_max=maybe(st.integers(2, 3)),
    ),
)

limits = st.builds(Limit, group=groups, slots=slots, source=sources)
submit_limits = st.lists(
    st.builds(
        Limit,
        group=st.sampled_from([*OWN_GROUPS, "build"]),
        slots=st.integers(1, 2),
        source=st.sampled_from([Source.SUBMIT, Source.SUBMIT, Source.TASK]),
    ),
    max_size=1,
).map(tuple)


# Made once: a strategy that is made anew for each draw takes longer to be checked than to be drawn from.
first_letters = st.sampled_from("xay")
one_to_four = st.integers(1, 4)
users_with_a_tier = st.sampled_from(USERS[:2])
job_fields: dict[str, st.SearchStrategy[Any]] = {
    "task": st.sampled_from(TASKS),
    "payload": st.sampled_from([b"null", b'{"n":1}']),
    "priority": st.sampled_from([None, None, *PRIORITIES]),
    "user": maybe(st.sampled_from(USERS)),
    "project": seldom(st.sampled_from(PROJECTS)),
    "groups": some_of(GROUPS_OF_JOBS),
    "limits": seldom(submit_limits, ()),
    "unique": seldom(st.sampled_from(["once", "twice"])),
    "cap": seldom(st.integers(0, 6)),
    "max_attempts": st.sampled_from([None, None, 1, 2, 3]),
    "timeout_ms": seldom(st.just(1500)),
    "contact": seldom(st.just("u1@example.com")),
    "by": by,
}
AHEAD_MS = (-SECOND_MS, 0, 1, 5 * SECOND_MS, LEASE_MS, DAY_MS // 2, DAY_MS)
waits = seldom(
    st.sampled_from([("run_at_ms", span) for span in AHEAD_MS])
    | st.sampled_from([("delay_ms", span) for span in AHEAD_MS if span >= 0])
)
"""Most jobs wait for nothing; some for a time, some for the end of a span."""

STARTS_MS = (1, SECOND_MS, 5 * SECOND_MS, 20 * SECOND_MS, LEASE_MS, DAY_MS)
latest_starts = seldom(
    st.sampled_from([("start_by_ms", span) for span in (-SECOND_MS, *STARTS_MS)])
    | st.sampled_from([("start_within_ms", span) for span in STARTS_MS])
)
"""Most jobs may start at any time, some have to start soon: so soon that few of them do."""
hurries = st.sampled_from([SECOND_MS] * 4 + [None])


@st.composite
def submissions(draw: st.DrawFn, /, number: int, now: int, **fixed: Any) -> Submission:
    # The order of ids is not the order of submission.
    fields: dict[str, Any] = {"id": draw(first_letters) + str(number)}
    fields |= {name: draw(values) for name, values in job_fields.items() if name not in fixed}
    if (wait := draw(waits)) is not None:
        field, span = wait
        fields[field] = now + span if field == "run_at_ms" else span
    if (latest := draw(latest_starts)) is not None:
        field, span = latest
        fields[field] = now + span if field == "start_by_ms" else span
        fields["overdue_message"] = f"Not started by {field} {span}"
    return Submission(**{**fields, **fixed})


tiered_fields: dict[str, st.SearchStrategy[Any]] = {
    "user": users_with_a_tier,
    "standing": maybe(standings),
    "quota_jitter_ms": st.sampled_from([0, 1, 5000, 3_600_000]),
    "cap": seldom(st.integers(2, 6)),
}
phase_fields: dict[str, st.SearchStrategy[Any]] = {
    "parent": st.sampled_from(PARENTS),
    "phase": st.sampled_from([1, 2, 3, 1, 2, None]),
    "user": seldom(users_with_a_tier),
}


@st.composite
def tiered_submissions(draw: st.DrawFn, number: int, now: int) -> Submission:
    """Of few users with a quota, so that days fill up."""
    drawn = {name: draw(values) for name, values in tiered_fields.items()}
    return draw(submissions(number, now, **drawn, unique=None))


@st.composite
def hurried_submissions(draw: st.DrawFn, /, job_id: str, **fixed: Any) -> Submission:
    """Most of them have to start within a second. Some have a user with a quota."""
    within_ms = draw(hurries)
    user, standing = draw(maybe(users_with_a_tier)), draw(maybe(standings))
    return Submission(
        id=job_id,
        user=user,
        standing=standing if user else None,
        start_within_ms=within_ms,
        overdue_message="late" if within_ms else None,
        **fixed,
    )


@st.composite
def phase_submissions(draw: st.DrawFn, number: int, now: int) -> Submission:
    drawn = {name: draw(values) for name, values in phase_fields.items()}
    return draw(submissions(number, now, **drawn, cap=None))


@st.composite
def batches(draw: st.DrawFn, number: int, now: int, kind: Any = submissions) -> list[Submission]:
    return [draw(kind(number + index, now)) for index in range(draw(one_to_four))]


@st.composite
def tickets(draw: st.DrawFn) -> Ticket:
    wanted = draw(some_of(("provider:ollama", "providers", "gpu", "api"), most=3)) or ("provider:ollama", "providers")
    return Ticket(
        holder=draw(st.sampled_from(CALLERS)),
        groups=wanted,
        lease_ms=draw(st.sampled_from([LEASE_MS, LEASE_MS, 20 * SECOND_MS])),
        wait_ms=draw(st.sampled_from([15 * SECOND_MS, 15 * SECOND_MS, 40 * SECOND_MS, 0])),
        priority=draw(st.sampled_from([50, 50, 20])),
        worker=draw(seldom(st.sampled_from(WORKERS))),
    )


task_options = st.builds(
    TaskOptions,
    name=st.sampled_from(TASKS),
    groups=some_of(GROUPS_OF_JOBS, most=1),
    limit=seldom(st.integers(1, 2)),
    max_attempts=seldom(st.integers(1, 2)),
)
turn_after = st.sampled_from([1, 2, 1, 2, 8, 0])
configured_limits = st.lists(
    st.builds(Limit, group=groups, slots=slots, source=st.just(Source.CONFIGURATION)),
    max_size=2,
    unique_by=lambda limit: limit.group,
).map(tuple)
registrations = st.builds(
    Registration,
    name=st.sampled_from(WORKERS),
    instance=st.sampled_from(INSTANCES),
    replaces=seldom(st.sampled_from(INSTANCES)),
    limits=seldom(configured_limits, ()),
    tasks=st.lists(task_options, max_size=3, unique_by=lambda task: task.name).map(tuple),
    capacity=st.integers(1, 3),
    lifetime_ms=st.sampled_from([30 * SECOND_MS, DAY_MS]),
    lease_ms=st.sampled_from([LEASE_MS, LEASE_MS, 5 * LEASE_MS]),
    turn_after=turn_after,
    host=st.sampled_from([None, "here"]),
)
