"""Actions of the state machine: workers come and go, time passes, and what is done in passing."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from qo.job import JobError, State
from qo.values import Audited, Average, Keep, Registration, UpkeepRules
from tests.conformance.machine.scene import Scene, action
from tests.conformance.machine.strategies import DAY_MS, LEASE_MS, SECOND_MS, registrations, seldom

SPANS = [1, SECOND_MS, 6 * SECOND_MS, 16 * SECOND_MS, LEASE_MS // 2, LEASE_MS, 3 * LEASE_MS]

UNCONFIRMED = JobError(message="Nobody confirmed.")
reminder_ages = st.sampled_from([(0,), (SECOND_MS, LEASE_MS), (0, 1, DAY_MS)])
keeps = st.builds(
    Keep,
    ms=st.sampled_from([0, SECOND_MS, LEASE_MS, DAY_MS]),
    jobs=st.sampled_from([0, 1, 2, 100]),
    events=st.sampled_from([0, 5, 1000]),
    audit=st.sampled_from([0, 1, 1000]),
)


class Workers(Scene):
    """They say what they handle, or goodbye."""

    @action(registration=registrations)
    def register(self, registration: Registration) -> None:
        self.do("register", registration)


class Upkeep(Scene):
    """Time, leases that end, aging, retention; averages and records too."""

    @action(5, span=st.sampled_from(SPANS))
    def time_passes(self, span: int) -> None:
        self.now += span

    def latest_starts(self) -> list[int]:
        """When jobs that wait would be overdue, as far as that is ahead."""
        found = map(self.both.model.latest_start, self.state.jobs.values())
        return sorted({latest for latest in found if latest is not None and latest > self.now})

    @action(4, when=lambda self: self.latest_starts())
    def a_job_is_overdue(self, data: st.DataObject) -> None:
        """Or will be in a moment. Whatever happens next comes upon it."""
        self.now = data.draw(st.sampled_from(self.latest_starts())) - data.draw(seldom(st.just(1), 0))

    @action()
    def the_clock_jumps(self, data: st.DataObject) -> None:
        to_midnight = DAY_MS - self.now % DAY_MS
        jumps = [2 * LEASE_MS, to_midnight, to_midnight + SECOND_MS, 3 * DAY_MS]
        jumps += [-1, -LEASE_MS, -LEASE_MS - 1, -2 * LEASE_MS, -DAY_MS]
        self.now += data.draw(st.sampled_from(jumps))

    @action(span=st.sampled_from([1, SECOND_MS, LEASE_MS, LEASE_MS + 1, DAY_MS]))
    def the_clock_goes_back(self, span: int) -> None:
        """And the store notes it, which it does not while it does nothing."""
        self.do("catch_up")
        self.now -= span
        self.do("catch_up")

    @action(2)
    def catch_up(self) -> None:
        self.do("catch_up")

    @action(2, when=lambda self: self.state.leases)
    def leases_run_out(self, data: st.DataObject) -> None:
        """Upkeep goes on, nobody renews: without a gap, leases end."""
        for _ in range(data.draw(st.integers(2, 4))):
            self.now += LEASE_MS // 2
            self.do("catch_up")

    @action(2, period_ms=st.sampled_from([1, SECOND_MS, LEASE_MS]))
    def age(self, period_ms: int) -> None:
        self.do("upkeep", UpkeepRules(aging_period_ms=period_ms))

    @action(6, when=lambda self: self.jobs_in(State.CONFIRMING), after_ms=st.sampled_from([1, LEASE_MS]))
    def fail_unconfirmed(self, data: st.DataObject, after_ms: int) -> None:
        self.now += data.draw(st.sampled_from([0, after_ms - 1, after_ms, after_ms]))
        self.do("upkeep", UpkeepRules(unconfirmed_after_ms=after_ms, unconfirmed_error=UNCONFIRMED))

    @action(4, when=lambda self: self.jobs_in(State.CONFIRMING), ages_ms=reminder_ages)
    def take_reminders(self, ages_ms: tuple[int, ...]) -> None:
        self.do("upkeep", UpkeepRules(reminder_ages_ms=ages_ms))

    @action(2, keep=keeps)
    def forget(self, keep: Keep) -> None:
        self.do("upkeep", UpkeepRules(keep=keep))

    @action(2, period_ms=st.sampled_from([1, LEASE_MS]), ages_ms=reminder_ages, keep=keeps)
    def all_of_upkeep(self, period_ms: int, ages_ms: tuple[int, ...], keep: Keep) -> None:
        """The parts share one portion, so an earlier one leaves less to the next."""
        rules = UpkeepRules(
            aging_period_ms=period_ms,
            unconfirmed_after_ms=LEASE_MS,
            unconfirmed_error=UNCONFIRMED,
            reminder_ages_ms=ages_ms,
            keep=keep,
        )
        self.do("upkeep", rules)

    @action(value=st.sampled_from([0.5, 30.0, 900.0]), weight=st.sampled_from([0.0, 0.3, 1.0]))
    def observe(self, value: float, weight: float) -> None:
        self.both.do("observe", [(Average(name="tier:fast", first=900.0, weight=weight), value)])

    @action(2, lower_ms=st.sampled_from([0, 500]), upper_ms=st.sampled_from([500, LEASE_MS]))
    def note_promises(self, lower_ms: int, upper_ms: int) -> None:
        ids = list(self.both.model.state.jobs)[:3]
        self.do("note_promises", dict.fromkeys([*ids, "nobody"], (lower_ms, upper_ms)))

    @action(ratios=st.lists(st.sampled_from([0.5, 1.0, 2.5]), min_size=1, max_size=3), keep=st.integers(1, 4))
    def record_estimate_errors(self, ratios: list[float], keep: int) -> None:
        self.both.do("observe", errors={"build": ratios}, keep_errors=keep)
        self.both.do("observed", tasks=["build"])

    @action(
        name=st.sampled_from(["key:1", "key:2"]),
        value=st.sampled_from([{"a": 1}, "text", None]),
        version=st.integers(0, 2),
        audited=st.sampled_from([None, Audited(action="create_key", subject="1", detail={"user": None}, by="ops")]),
    )
    def put_record(self, name: str, value: Any, version: int, audited: Audited | None) -> None:
        self.do("put_record", name, value, version=version, audited=audited)
        self.both.do("records", name)
        self.both.do("records", prefix="key:")
