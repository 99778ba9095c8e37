"""The replay of the line: the same jobs at the same times as a search that looks at everybody, every time."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qo.policy.estimates.replay import (
    NEVER,
    Duration,
    GivenBack,
    Kind,
    duration_from,
    remaining_seconds,
    replay,
    shares,
    spread_out,
)
from qo.policy.estimates.turns import Needs, Passed

MINUTE = (60.0,)


def brute_force(
    line: Sequence[int],
    kinds: Sequence[Kind],
    *,
    rooms: Sequence[int],
    given_back: Sequence[GivenBack],
    durations: Sequence[Sequence[float]],
) -> list[float]:
    """Whenever something is given back: look at everybody from the first on, until nobody can start."""
    room = list(rooms)
    coming = [(each.after_seconds, each.resources) for each in given_back]
    starts = [NEVER] * len(line)
    started = [0] * len(durations)
    now = 0.0
    while True:
        for index, number in enumerate(line):
            kind = kinds[number]
            pool = next((pool for pool in kind.pools if room[pool] > 0), None)
            if starts[index] == NEVER and pool is not None and all(room[group] > 0 for group in kind.groups):
                starts[index] = now
                for resource in (*kind.groups, pool):
                    room[resource] -= 1
                seconds = durations[kind.seconds]
                coming.append((now + seconds[started[kind.seconds] % len(seconds)], (*kind.groups, pool)))
                started[kind.seconds] += 1
        if not coming:
            return starts
        now = min(after for after, _ in coming)
        for resource in (resource for after, resources in coming if after == now for resource in resources):
            room[resource] += 1
        coming = [each for each in coming if each[0] != now]


@st.composite
def situations(draw: st.DrawFn) -> dict[str, Any]:
    groups, pools = draw(st.integers(0, 5)), draw(st.integers(1, 3))
    rooms = [draw(st.integers(-1, 3)) for _ in range(groups)] + [draw(st.integers(0, 3)) for _ in range(pools)]
    # Few different times, so that many things end together.
    some_seconds = st.sampled_from([0.0, 1.0, 1.5, 2.0, 4.0])
    durations = draw(st.lists(st.lists(some_seconds, min_size=1, max_size=3), min_size=1, max_size=3))
    kind = st.builds(
        Kind,
        groups=st.sets(st.integers(0, groups - 1), max_size=4).map(tuple) if groups else st.just(()),
        pools=st.lists(st.integers(groups, groups + pools - 1), unique=True, max_size=3).map(tuple),
        seconds=st.integers(0, len(durations) - 1),
    )
    kinds = draw(st.lists(kind, min_size=1, max_size=8))
    return {
        "line": draw(st.lists(st.integers(0, len(kinds) - 1), max_size=40)),
        "kinds": kinds,
        "rooms": rooms,
        "given_back": draw(
            st.lists(
                st.builds(
                    GivenBack,
                    after_seconds=some_seconds,
                    resources=st.lists(st.integers(0, groups + pools - 1), max_size=3).map(tuple),
                ),
                max_size=6,
            )
        ),
        "durations": durations,
    }


@given(situations())
def test_every_job_starts_when_a_full_search_starts_it(situation: dict[str, Any] | dict[str, object]) -> None:
    assert replay(**situation).starts == brute_force(**situation)


def test_jobs_start_in_line_order_as_capacity_gets_free() -> None:
    starts = replay(
        [0] * 5,
        [Kind(groups=(), pools=(0,))],
        rooms=[0],
        given_back=[GivenBack(10, (0,)), GivenBack(25, (0,))],
        durations=[MINUTE],
    ).starts

    assert starts == [10, 25, 70, 85, 130]


def test_a_blocked_job_does_not_hold_up_those_behind_it() -> None:
    gpu, pool = 0, 1
    starts = replay(
        [0, 0, 1],
        [Kind(groups=(gpu,), pools=(pool,)), Kind(groups=(), pools=(pool,))],
        rooms=[1, 5],
        given_back=[],
        durations=[MINUTE],
    ).starts

    assert starts == [0, 60, 0]


def test_a_job_that_nothing_lets_start_never_does() -> None:
    closed, pool = 0, 1
    kinds = [Kind(groups=(closed,), pools=(pool,)), Kind(groups=(), pools=()), Kind(groups=(), pools=(pool,))]

    starts = replay([0, 1, 2], kinds, rooms=[0, 1], given_back=[], durations=[MINUTE]).starts

    assert starts == [NEVER, NEVER, 0]


def test_a_limit_below_its_use_lets_no_job_start_until_there_is_room() -> None:
    group, pool = 0, 1
    starts = replay(
        [0],
        [Kind(groups=(group,), pools=(pool,))],
        rooms=[-1, 5],
        given_back=[GivenBack(seconds, (group, pool)) for seconds in (5, 8)],
        durations=[MINUTE],
    ).starts

    assert starts == [8]


def busy_groups(turn_after: int, **passed: Any) -> list[float]:
    """A job that needs two groups of one slot, and twenty behind it that need one of them, which come free by turns."""
    a, b, capacity = 0, 1, 2
    kinds = [
        Kind((a, b), (capacity,), needs=Needs(far=(a, b))),
        Kind((a,), (capacity,), needs=Needs(far=(a,))),
        Kind((b,), (capacity,), needs=Needs(far=(b,))),
    ]
    return replay(
        [0, *([1, 2] * 10)],
        kinds,
        rooms=[0, 0, 100],
        given_back=[GivenBack(5.0, (a,)), GivenBack(10.0, (b,))],
        durations=[(10.0,)],
        passed=Passed(turn_after=turn_after, **passed),
    ).starts


def test_a_job_that_needs_busy_groups_takes_a_turn() -> None:
    assert busy_groups(turn_after=0)[0] == max(busy_groups(turn_after=0))
    # Looked at when either comes free, it has been passed twice after 10 s. At 15 and 20 s both are kept for it.
    assert busy_groups(turn_after=2)[0] == 20.0


def test_a_job_that_has_a_turn_already_is_passed_no_more() -> None:
    assert busy_groups(turn_after=8, turns=frozenset({0}))[0] == 10.0
    assert busy_groups(turn_after=8, times={0: 7})[0] == 15.0


def test_a_turn_that_waits_for_a_paused_group_keeps_nothing() -> None:
    group, capacity, paused = 0, 1, 2
    kinds = [
        Kind((group, paused), (capacity,), needs=Needs(far=(group,), shut=(paused,))),
        Kind((group,), (capacity,), needs=Needs(far=(group,))),
    ]

    starts = replay(
        [0, 1],
        kinds,
        rooms=[1, 5, 0],
        given_back=[],
        durations=[(1.0,)],
        passed=Passed(turn_after=1, turns=frozenset({0})),
    ).starts

    assert starts == [NEVER, 0.0]


def test_work_is_bounded_and_what_was_not_reached_is_extrapolated() -> None:
    starts = replay(
        [0] * 10, [Kind(groups=(), pools=(0,))], rooms=[1], given_back=[], durations=[MINUTE], looks_at_most=5
    ).starts

    assert starts[:5] == [0, 60, 120, 180, 240]
    assert starts[5:] == [pytest.approx(48 * place) for place in range(6, 11)]


def test_a_run_ends_when_its_duration_has_passed_and_no_end_is_extrapolated() -> None:
    line = {"line": [0] * 3, "kinds": [Kind(groups=(), pools=(0,))], "rooms": [1], "given_back": []}

    whole = replay(**line, durations=[(60.0, 30.0)])  # type: ignore[arg-type]
    cut_off = replay(**line, durations=[(60.0, 30.0)], looks_at_most=1)  # type: ignore[arg-type]

    assert (whole.starts, whole.ends) == ([0, 60, 90], [60, 90, 150])
    assert cut_off.ends == [60, NEVER, NEVER]


@given(situation=situations(), drawn=st.integers(0))
def test_a_replay_that_stops_at_one_job_finds_its_start(situation: dict[str, Any], drawn: int) -> None:
    if situation["line"]:
        rank = drawn % len(situation["line"])

        assert replay(**situation, until_started=rank).starts[rank] == replay(**situation).starts[rank]


def many_waiting(jobs: int) -> dict[str, Any]:
    """Users with two slots each, three tasks with eight, two sets of workers, and a limit on everything."""
    draw = random.Random(1)
    users, tasks = 2000, 3
    first_user, first_pool = 1 + tasks, 1 + tasks + users
    kinds: dict[Kind, int] = {}
    line = []
    for _ in range(jobs):
        task, user = draw.randrange(tasks), int(users * draw.random() ** 2)
        pools = (first_pool, first_pool + 1) if task else (first_pool,)
        kind = Kind(groups=(0, 1 + task, first_user + user), pools=pools, seconds=task)
        line.append(kinds.setdefault(kind, len(kinds)))
    return {
        "line": line,
        "kinds": list(kinds),
        "rooms": [20, *[8] * tasks, *[2] * users, 10, 15],
        "given_back": [],
        "durations": [spread_out(Duration(mean)) for mean in (5, 30, 120)],
    }


def test_ten_thousand_waiting_jobs_are_replayed_in_a_moment() -> None:
    situation = many_waiting(10_000)
    times = []
    for _ in range(3):
        began = time.thread_time()  # what others do on this machine is not the question
        starts = replay(**situation).starts
        times.append(time.thread_time() - began)

    assert max(starts) < NEVER
    assert min(times) < 0.5, "about 0.07 s on the machine this was written on"


def test_many_kinds_blocked_in_two_places_by_turns_do_not_make_it_slow() -> None:
    first_user, pool = 2, 2 + 3000
    kinds = [Kind(groups=(number % 2, first_user + number), pools=(pool,)) for number in range(3000)]
    situation: dict[str, Any] = {
        "line": list(range(3000)) * 3,
        "kinds": kinds,
        "rooms": [3, 4, *[1] * 3000, 5],
        "given_back": [],
        "durations": [spread_out(Duration(60))],
    }
    began = time.thread_time()

    replay(**situation)

    assert time.thread_time() - began < 1


# --- how long runs take ---------------------------------------------------------------------------------------


@given(mean=st.floats(0.01, 10_000), variation=st.floats(0, 3))
def test_durations_that_are_taken_in_turn_have_the_mean(mean: float, variation: float) -> None:
    drawn = spread_out(Duration(mean, variation))

    assert sum(drawn) / len(drawn) == pytest.approx(mean)
    assert all(seconds >= 0 for seconds in drawn)


@given(st.integers(1, 200))
def test_shares_are_even_and_each_comes_once(count: int) -> None:
    assert sorted(shares(count)) == pytest.approx([(number + 0.5) / count for number in range(count)])


def test_a_run_of_a_steady_task_is_over_when_its_time_is_up() -> None:
    steady = Duration(100, 0.05)

    assert remaining_seconds(steady, ran_seconds=0, share=0.5) == pytest.approx(100, rel=0.05)
    assert remaining_seconds(steady, ran_seconds=60, share=0.5) == pytest.approx(40, rel=0.1)
    assert remaining_seconds(steady, ran_seconds=1000, share=0.5) < 1


def test_a_memoryless_run_takes_as_long_as_ever_however_long_it_ran() -> None:
    left = [remaining_seconds(Duration(100, 1), ran_seconds=ran, share=0.5) for ran in (0, 100, 1000)]

    assert left == pytest.approx([100 * math.log(2)] * 3, rel=1e-6)


@example(mean=5e-324, variation=2.0, ran=0.0, share=0.0)  # an average of 0 ms after some thousand runs
@given(
    mean=st.floats(0, 1e6),
    variation=st.floats(0, 100),
    ran=st.floats(-10, 1e9),
    share=st.floats(0, 1, exclude_max=True),
)
def test_the_time_left_is_never_negative_and_always_a_number(
    mean: float, variation: float, ran: float, share: float
) -> None:
    left = remaining_seconds(Duration(mean, variation), ran_seconds=ran, share=share)

    assert 0 <= left < math.inf


@pytest.mark.parametrize("mean", [5e-324, 1e-300, 1e-12])
def test_runs_of_no_time_worth_speaking_of_take_none(mean: float) -> None:
    assert spread_out(Duration(mean, 1)) == (0.0,)


def moving_average(values: Sequence[float], *, first: float = 600.0, weight: float = 0.3) -> dict[str, Any]:
    mean, square = first, first * first
    for value in values:
        mean += weight * (value - mean)
        square += weight * (value * value - square)
    return {"mean": mean, "mean_square": square, "count": len(values), "first": first, "weight": weight}


def test_the_first_guess_is_taken_out_of_an_average() -> None:
    found = duration_from(**moving_average([2.0] * 5))

    assert found.mean_seconds == pytest.approx(2)
    assert found.variation == pytest.approx(0, abs=1e-4)


def test_an_average_of_nothing_is_its_first_guess() -> None:
    assert duration_from(**moving_average([])) == Duration(600, 1)


@given(st.lists(st.floats(0, 1e5), max_size=50), st.floats(0.01, 1))
def test_a_duration_is_never_negative(values: list[float], weight: float) -> None:
    found = duration_from(**moving_average(values, weight=weight))

    assert found.mean_seconds >= 0
    assert found.variation >= 0
