"""Histories that once told a store and the model apart, kept for ever as plain tests.

A failing state machine prints its steps in this form: paste them, cut them down, and name the rule that was broken.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from qo.job import JobError, State
from qo.values import (
    Advance,
    Bounds,
    Keep,
    Limit,
    Outcome,
    Registration,
    Source,
    Standing,
    Submission,
    TaskOptions,
    Ticket,
    UpkeepRules,
)
from tests.conformance.machine.side_by_side import SideBySide, Step, StoreUnderTest, step
from tests.stores import STORES

NOON = 1_728_043_200_000

every_store = pytest.mark.parametrize("real", STORES, ids=lambda store: store.name)


def check_both_agree(under_test: StoreUnderTest, steps: Sequence[Step], bounds: Bounds | None = None) -> None:
    """Take the steps on the model and the store; a difference after any of them is an error."""
    both = SideBySide(under_test, bounds or Bounds())
    try:
        for one in steps:
            both.do(one.operation, *one.args, **one.kwargs)
    finally:
        both.close()


@every_store
def test_a_limit_that_replaces_another_is_as_new_as_the_newest_job(real: StoreUnderTest) -> None:
    steps = [
        step("set_limits", [Limit(group="user:u2", slots=1, source=Source.TASK)], now=NOON),
        step("submit", [Submission(id="y0", task="scan")], now=NOON),
        step("set_tier", "u2", Standing(tier="fast", user_limit=2), now=NOON),
        step("upkeep", UpkeepRules(keep=Keep(ms=1000, jobs=0, events=0, audit=0)), now=NOON),
    ]
    check_both_agree(real, steps)


@every_store
def test_a_limit_stays_as_long_as_the_job_that_brought_it(real: StoreUnderTest) -> None:
    limit = Limit(group="build", slots=1, source=Source.SUBMIT)
    steps = [
        step("submit", [Submission(id="a0", task="scan", limits=(limit,))], now=NOON),
        step("upkeep", UpkeepRules(keep=Keep(ms=1000, jobs=100, events=1000, audit=1000)), now=NOON),
    ]
    check_both_agree(real, steps)


@every_store
def test_a_job_enters_anew_when_its_task_drops_a_group_that_the_job_names_itself(real: StoreUnderTest) -> None:
    with_group = TaskOptions(name="build", groups=("gpu",))
    steps = [
        step("register", Registration(name="w2", tasks=(with_group,), capacity=1), now=NOON),
        step("set_limits", [Limit(group="gpu", slots=0, source=Source.OPERATOR)], now=NOON),
        step("submit", [Submission(id="y10", task="build", groups=("gpu",))], now=NOON),
        step("set_limits", [Limit(group="gpu", slots=1, source=Source.OPERATOR)], now=NOON),
        step("register", Registration(name="w1", tasks=(TaskOptions(name="build"),), capacity=2), now=NOON),
    ]
    check_both_agree(real, steps)


@every_store
def test_a_job_that_asks_for_confirmation_says_nothing_but_what_it_asks(real: StoreUnderTest) -> None:
    token = str(NOON * 1000)
    steps = [
        step("submit", [Submission(id="y2", task="scan")], now=NOON),
        step("claim", worker="w2", tasks=["scan"], capacity=1, lease_ms=20000, claim_id="claim-1", now=NOON),
        step("advance", [Advance(job_id="y2", token=token, message="because")], now=NOON),
        step("finish", [Outcome(job_id="y2", token=token, state=State.CONFIRMING)], now=NOON),
    ]
    check_both_agree(real, steps)


@every_store
def test_a_job_handed_back_twice_in_one_call_is_handed_back_once(real: StoreUnderTest) -> None:
    token = str(NOON * 1000)
    steps = [
        step("submit", [Submission(id="a4", task="mail")], now=NOON),
        step("claim", worker="w2", tasks=["mail"], capacity=1, lease_ms=60000, claim_id="claim-1", now=NOON),
        step(
            "finish",
            [
                Outcome(job_id="a4", token=token, state=State.QUEUED),
                Outcome(job_id="a4", token=token, state=State.CONFIRMING),
                Outcome(job_id="a4", token=token, state=State.SUCCEEDED),
            ],
            now=NOON,
        ),
    ]
    check_both_agree(real, steps)


@every_store
def test_a_running_job_is_not_counted_in_a_group_that_its_task_names_only_since(real: StoreUnderTest) -> None:
    with_group = TaskOptions(name="scan", groups=("provider:ollama",))
    steps = [
        step("submit", [Submission(id="y3", task="scan")], now=NOON),
        step("claim", worker="w3", tasks=["scan"], capacity=1, lease_ms=60000, claim_id="claim-1", now=NOON),
        step("register", Registration(name="w2", tasks=(with_group,), capacity=3), now=NOON),
        step("set_limits", [Limit(group="provider:ollama", slots=3, source=Source.TIER)], now=NOON),
    ]
    check_both_agree(real, steps)


@every_store
def test_a_job_parked_where_the_same_step_makes_room_again_is_claimable(real: StoreUnderTest) -> None:
    """The first one's standing closes the project, the second is parked in it, the third's standing opens it."""
    closes, opens = Standing(tier="free", project_limit=0), Standing(tier="plain")
    submissions = [
        Submission(id="y3", task="scan", user="u1", standing=closes),
        Submission(id="y4", task="build", user="u1", project="p1"),
        Submission(id="x5", task="build", user="u2", project="p1", standing=opens),
    ]
    check_both_agree(real, [step("submit", submissions, now=NOON)])


@every_store
def test_a_far_time_is_told_to_the_millisecond(real: StoreUnderTest) -> None:
    check_both_agree(real, [step("submit", [Submission(id="a", task="t", run_at_ms=253_370_764_799_999)], now=NOON)])


@every_store
def test_groups_that_were_closed_open_again_a_portion_at_a_time(real: StoreUnderTest) -> None:
    closed = dict.fromkeys(("gpu", "api", "disk"), 1000)
    steps = [
        step("submit", [Submission(id="a0", task="scan")], now=NOON),
        step("claim", worker="w1", tasks=["scan"], capacity=1, lease_ms=60_000, claim_id="c", now=NOON),
        step("finish", [Outcome(job_id="a0", token=f"{NOON}000", state=State.QUEUED, closed=closed)], now=NOON),
        step("catch_up", now=NOON + 1000),
        step("catch_up", now=NOON + 1000),
    ]
    check_both_agree(real, steps, Bounds(examine=2, portion=2))


@every_store
def test_slots_are_handed_over_after_every_caller_also_after_one_that_holds_its_own(real: StoreUnderTest) -> None:
    again = Ticket(holder="first", groups=("api",), lease_ms=60_000, wait_ms=15_000)
    other = Ticket(holder="second", groups=("api",), lease_ms=60_000, wait_ms=15_000)
    steps = [
        step("register", Registration(name="w1", tasks=(TaskOptions(name="build"),), capacity=2), now=NOON),
        step(
            "submit",
            [Submission(id="goes", task="build"), Submission(id="blocked", task="build", groups=("gpu",))],
            now=NOON,
        ),
        step("set_limits", [Limit(group="gpu", slots=0, source=Source.OPERATOR)], now=NOON),
        # Two are looked at each time: both jobs, then the first and who waits behind it.
        step("acquire", [again, other, again], now=NOON),
    ]
    check_both_agree(real, steps, Bounds(examine=2, portion=2))


@every_store
def test_a_job_that_upkeep_fails_may_be_forgotten_in_the_same_step(real: StoreUnderTest) -> None:
    rules = UpkeepRules(
        unconfirmed_after_ms=1000,
        unconfirmed_error=JobError(message="It was not confirmed."),
        keep=Keep(ms=1000, jobs=0, events=0, audit=0),
    )
    steps = [
        step("submit", [Submission(id="a0", task="scan")], now=NOON),
        step("claim", worker="w1", tasks=["scan"], capacity=1, lease_ms=60_000, claim_id="c", now=NOON),
        step("finish", [Outcome(job_id="a0", token=f"{NOON}000", state=State.CONFIRMING)], now=NOON),
        step("upkeep", rules, now=NOON + 1000),
    ]
    check_both_agree(real, steps)


@every_store
def test_a_job_that_joins_an_emptied_lane_in_the_same_step_is_looked_at(real: StoreUnderTest) -> None:
    """The lane's only job is overdue: the submit fails it first, and the new job stands in a new lane."""
    late = Submission(id="late", task="scan", groups=("gpu",), start_within_ms=1000, overdue_message="late")
    steps = [
        step("set_limits", [Limit(group="gpu", slots=0, source=Source.OPERATOR)], now=NOON),
        step("submit", [late], now=NOON),
        step("submit", [Submission(id="new", task="scan", groups=("gpu",))], now=NOON + 1000),
    ]
    check_both_agree(real, steps)
