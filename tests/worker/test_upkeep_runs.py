"""What workers do in passing: aging, unconfirmed jobs, reminders, retention, due jobs; and cron."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

import qo
from qo.job import State, moment
from qo.notify.signing import verify
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.values import Bounds, Lease, Outcome, Retention, UpkeepDone, UpkeepRules
from qo.worker.cron import define_entry, submit_tick
from qo.worker.store_time import StoreTime
from qo.worker.upkeep import Upkeep
from tests.notify.local_servers import Receiver, serving
from tests.notify.notifying import SECRET
from tests.worker.clocked import ClockedStore
from tests.worker.running import running, soon, until

NOW = 1_900_000_000_000
HOUR_MS = 3_600_000
MINUTE_MS = 60_000


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with serving(Receiver()) as serving_receiver:
        yield serving_receiver


class Sent:
    """A notifier that keeps what it is given; the real ones have tests of their own."""

    def __init__(self) -> None:
        self.notices: list[Any] = []

    async def send(self, notice: Any, *, contact: str | None = None) -> None:
        self.notices.append(notice)


class TakenReminders:
    """Counts the reminders that workers take from a store, and how often they find none due."""

    def __init__(self, store: ClockedStore) -> None:
        self._upkeep = store.upkeep
        self._taken = self._in_vain = 0
        store.upkeep = self._count

    async def _count(self, rules: UpkeepRules) -> UpkeepDone:
        done: UpkeepDone = await self._upkeep(rules)
        self._taken += len(done.reminders)
        self._in_vain += not done.reminders
        return done

    async def are_looked_for_in_vain(self, *, times: int) -> None:
        enough = self._in_vain + times

        async def often_enough() -> bool:
            return self._in_vain >= enough

        await until(often_enough)

    async def have_reached(self, receiver: Receiver) -> None:
        async def all_have() -> bool:
            return len(receiver.bodies) >= self._taken

        await until(all_have)


@pytest.fixture
def clock(queue: qo.Queue) -> ClockedStore:
    return ClockedStore(queue.store, now=NOW)


@pytest.fixture
def clocked(queue: qo.Queue, clock: ClockedStore) -> qo.Queue:
    return Queue(clock, queue.settings)


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def upkeep(clocked: qo.Queue, sent: Sent) -> Upkeep:
    return Upkeep(clocked, notifier=sent, cursor=0)  # type: ignore[arg-type]


async def confirming(queue: qo.Queue) -> str:
    job = await queue.submit("build", user="ada", tier="partner")
    claimed = await queue.store.claim(worker="w", tasks=["build"], capacity=1, lease_ms=300_000, claim_id=job.id)
    (lease,) = claimed.leases
    await queue.store.finish(
        [Outcome(job_id=job.id, token=lease.token, state=State.CONFIRMING, message="Continue for 3 more iterations")]
    )
    return job.id


async def test_reminders_go_out_at_12_and_23_hours_once_each_whatever_the_number_of_workers(
    clocked: qo.Queue, clock: ClockedStore, upkeep: Upkeep, sent: Sent
) -> None:
    job_id = await confirming(clocked)
    other_worker = Upkeep(clocked, notifier=sent, cursor=0)  # type: ignore[arg-type]
    numbers = []
    for minutes in range(0, 24 * 60, 30):
        clock.now = NOW + minutes * MINUTE_MS
        before = len(sent.notices)
        await asyncio.gather(upkeep.tend(), other_worker.tend())
        numbers += [(minutes / 60, notice.detail["number"]) for notice in sent.notices[before:]]

    assert numbers == [(12, 1), (23, 2)]
    assert [notice.job_id for notice in sent.notices] == [job_id, job_id]
    assert sent.notices[0].message == ("build has waited 12 hours for a confirmation. Continue for 3 more iterations")


async def test_reminders_of_running_workers_reach_a_real_receiver_signed_and_once_each(
    clock: ClockedStore, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qo.worker.upkeep.EVERY_SECONDS", 0.01)
    notify = {"webhook_url": receiver.url, "webhook_secret": SECRET}
    queue = Queue(clock, load_settings({"notify": notify}, environ={}))
    workers = [qo.Worker(queue, f"worker-{number}") for number in range(2)]
    for worker in workers:
        worker.task("other")(lambda: None)
    reminders = TakenReminders(clock)
    job_id = await confirming(queue)
    received = []
    async with running(*workers):
        for age_ms in (12 * HOUR_MS - 1, 12 * HOUR_MS, 23 * HOUR_MS - 1, 23 * HOUR_MS):
            clock.now = NOW + age_ms
            await reminders.are_looked_for_in_vain(times=6)  # so both workers have looked at this time
            await reminders.have_reached(receiver)
            received.append(len(receiver.bodies))

    assert received == [0, 1, 1, 2]
    now = datetime.now(UTC)
    calls = list(zip(receiver.headers, receiver.bodies, strict=True))
    assert [verify(SECRET, headers, body, now=now) for headers, body in calls] == [True, True]
    assert [verify("another secret", headers, body, now=now) for headers, body in calls] == [False, False]
    told = [json.loads(body) for body in receiver.bodies]
    assert [(each["kind"], each["job_id"], each["user"]) for each in told] == [
        ("confirmation_reminder", job_id, "ada")
    ] * 2
    assert [(each["message"], each["detail"]) for each in told] == [
        ("build has waited 12 hours for a confirmation. Continue for 3 more iterations", {"number": 1}),
        ("build has waited 23 hours for a confirmation. Continue for 3 more iterations", {"number": 2}),
    ]
    assert told[0]["id"] != told[1]["id"]


async def test_unconfirmed_for_24_hours_fails_and_can_be_retried(
    clocked: qo.Queue, clock: ClockedStore, upkeep: Upkeep
) -> None:
    job_id = await confirming(clocked)
    clock.now = NOW + 24 * HOUR_MS - 1
    await upkeep.tend()
    before = (await clocked.get(job_id)).state
    clock.now += 1
    await upkeep.tend()
    after = await clocked.get(job_id)

    assert (before, after.state) == (State.CONFIRMING, State.FAILED)
    assert after.error is not None
    assert after.error.message == "Nobody confirmed within 24 hours, so it was stopped. Retry it to be asked again."
    assert (await clocked.retry(job_id)).state is State.QUEUED


async def test_a_job_that_waits_an_hour_moves_up(clocked: qo.Queue, clock: ClockedStore, upkeep: Upkeep) -> None:
    low = await clocked.submit("build", priority="low")
    clock.now += HOUR_MS
    normal = await clocked.submit("build")
    await upkeep.tend()

    assert [job.id for job in await clocked.jobs(status="queued")] == [low.id, normal.id]
    assert (await clocked.get(low.id)).priority == 70


async def test_what_has_ended_is_forgotten_after_a_week_or_on_redis_after_a_day(
    clocked: qo.Queue, clock: ClockedStore, upkeep: Upkeep
) -> None:
    job = await clocked.submit("build")
    await clocked.cancel(job.id)
    clock.now += round(clocked.store.retention.days * 24) * HOUR_MS - 1
    await upkeep.tend()
    kept = len(await clocked.jobs())
    clock.now += 1
    await upkeep.tend()

    assert (kept, await clocked.jobs()) == (1, [])


# --- more than one portion in a round -------------------------------------------------------------------------

MORE_THAN_A_PORTION = Bounds().portion + 1


async def claim_all(queue: qo.Queue, number: int) -> list[Lease]:
    leases: list[Lease] = []
    while len(leases) < number:
        claimed = await queue.store.claim(
            worker="w", tasks=["build"], capacity=number - len(leases), lease_ms=300_000, claim_id=f"c{len(leases)}"
        )
        assert claimed.leases
        leases += claimed.leases
    return leases


async def states(queue: qo.Queue) -> Counter[State]:
    return Counter(job.state for job in await queue.jobs(limit=10 * MORE_THAN_A_PORTION))


async def test_one_round_deals_with_all_jobs_that_are_due(
    clocked: qo.Queue, clock: ClockedStore, upkeep: Upkeep
) -> None:
    due = datetime.fromtimestamp(NOW / 1000 + 60, UTC)
    await clocked.submit_many([qo.New("build", run_at=due)] * MORE_THAN_A_PORTION)
    clock.now += MINUTE_MS

    await upkeep.catch_up()

    assert await states(clocked) == {State.QUEUED: MORE_THAN_A_PORTION}


async def test_one_round_ends_all_leases_that_are_over(clocked: qo.Queue, clock: ClockedStore, upkeep: Upkeep) -> None:
    await clocked.submit_many([qo.New("build")] * MORE_THAN_A_PORTION)
    await claim_all(clocked, MORE_THAN_A_PORTION)
    for _ in range(2):  # so that there is no gap, after which leases would be given longer
        clock.now += 149_000
        await upkeep.catch_up()
    before = await states(clocked)
    clock.now += 2_000

    await upkeep.catch_up()

    assert before == {State.STARTING: MORE_THAN_A_PORTION}
    assert await states(clocked) == {State.QUEUED: MORE_THAN_A_PORTION}


async def test_one_round_moves_up_all_that_have_waited(clocked: qo.Queue, clock: ClockedStore, upkeep: Upkeep) -> None:
    await clocked.submit_many([qo.New("build", priority="low")] * MORE_THAN_A_PORTION)
    clock.now += HOUR_MS

    await upkeep.tend()

    jobs = await clocked.jobs(limit=10 * MORE_THAN_A_PORTION)
    assert Counter(job.priority for job in jobs) == {70: MORE_THAN_A_PORTION}


async def test_one_round_fails_all_that_nobody_confirmed_and_then_forgets_all(
    clocked: qo.Queue, clock: ClockedStore, upkeep: Upkeep, sent: Sent
) -> None:
    await clocked.submit_many([qo.New("build")] * MORE_THAN_A_PORTION)
    for lease in await claim_all(clocked, MORE_THAN_A_PORTION):
        await clocked.store.finish([Outcome(job_id=lease.job_id, token=lease.token, state=State.CONFIRMING)])
    clock.now += 12 * HOUR_MS
    await upkeep.tend()
    reminded = len(sent.notices)
    clock.now += 12 * HOUR_MS
    await upkeep.tend()
    unconfirmed = await states(clocked)
    clock.now += 7 * 24 * HOUR_MS
    await upkeep.tend()

    assert reminded == MORE_THAN_A_PORTION
    assert unconfirmed == {State.FAILED: MORE_THAN_A_PORTION}
    assert await clocked.jobs() == []


async def test_of_who_did_what_the_newest_entries_are_kept(clocked: qo.Queue, sent: Sent) -> None:
    few = msgspec.structs.replace(clocked.settings.queue, audit_entries=2)
    clocked.settings = msgspec.structs.replace(clocked.settings, queue=few)
    for slots, by in enumerate(("ann", "ben", "cid")):
        await clocked.set_limit("gpu", slots, by=by)
    await Upkeep(clocked, notifier=sent, cursor=0).tend()  # type: ignore[arg-type]

    assert [entry.by for entry in await clocked.audit()] == ["cid", "ben"]


async def test_a_store_has_its_own_retention(clocked: qo.Queue) -> None:
    week = Retention(days=7, audit_entries=1_000_000)
    day = Retention(days=1, audit_entries=100_000)

    assert clocked.store.retention == (day if "Redis" in clocked.store.location else week)


async def test_a_delayed_job_starts_when_it_is_due(queue: qo.Queue, worker: qo.Worker) -> None:
    worker.task("build")(lambda: None)
    job = await queue.submit("build", delay=0.05)
    async with running(worker):
        ended = await queue.wait(job.id, timeout=10)

    assert ended.started_at is not None
    assert ended.run_at is not None
    assert ended.started_at >= ended.run_at


async def test_phases_run_one_after_the_other(queue: qo.Queue, worker: qo.Worker) -> None:
    order = []

    @worker.task
    async def step(data: int) -> None:
        order.append(data)

    for phase in (3, 1, 2):
        await queue.submit("step", phase, parent="app", phase=phase)
    async with running(worker):
        for job in (await queue.parent("app")).jobs:
            await queue.wait(job.id, timeout=10)

    assert order == [1, 2, 3]


async def test_a_failed_phase_holds_up_the_later_ones_until_it_is_retried(queue: qo.Queue, worker: qo.Worker) -> None:
    broken = True

    @worker.task
    async def step() -> None:
        if broken:
            raise qo.Fail("broken")

    first = await queue.submit("step", parent="app", phase=1)
    second = await queue.submit("step", parent="app", phase=2)
    await soon(worker.run_until_idle())
    why = (await queue.why(second.id)).sentence
    broken = False
    await queue.retry(first.id)
    await soon(worker.run_until_idle())

    assert why == "It waits for phase 1 of parent app, which has failed; retry that one and this one goes on."
    assert (await queue.get(second.id)).state is State.SUCCEEDED


# --- cron -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "after", "tick"),
    [
        ("0 3 * * *", "2026-03-01T03:00", "2026-03-02T03:00"),
        ("*/15 * * * *", "2026-03-01T03:01", "2026-03-01T03:15"),
        ("0 0 29 2 *", "2026-03-01T00:00", "2028-02-29T00:00"),
    ],
)
def test_the_next_tick_is_in_utc(expression: str, after: str, tick: str) -> None:
    entry = define_entry(expression, "cleanup", None, name=None, now=moment(NOW))

    assert entry.tick_after(datetime.fromisoformat(after).replace(tzinfo=UTC)).isoformat() == f"{tick}:00+00:00"


@pytest.mark.parametrize("expression", ["", "every day", "61 * * * *", "0 3 * *", "0 0 31 2 *"])
async def test_an_expression_that_never_fires_is_refused(worker: qo.Worker, expression: str) -> None:
    with pytest.raises(qo.InvalidValue, match="use five fields"):
        worker.cron(expression, "cleanup")


async def test_a_tick_is_one_job_whatever_the_number_of_workers(queue: qo.Queue) -> None:
    entry = define_entry("0 3 * * *", "cleanup", {"all": True}, name=None, now=moment(NOW))
    tick = entry.tick_after(datetime.now(UTC))
    await asyncio.gather(*(submit_tick(entry, tick, queue) for _ in range(8)))
    await submit_tick(entry, tick + timedelta(days=1), queue)

    jobs = await queue.jobs()
    assert [job.id for job in jobs] == [
        f"cron:cleanup@{tick:%Y-%m-%d}T03:00Z",
        f"cron:cleanup@{tick + timedelta(days=1):%Y-%m-%d}T03:00Z",
    ]


async def test_cron_entries_fire_while_workers_run(queue: qo.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three workers with the same entry and a schedule that ticks every few milliseconds."""
    from qo.worker import cron

    start = datetime.now(UTC) - timedelta(minutes=5)  # ticks that are over for the store
    ticks = [start + timedelta(minutes=number) for number in range(1, 4)]
    reached = asyncio.Event()
    monkeypatch.setattr(StoreTime, "now", lambda self: start)

    async def at_once(tick: datetime, store_time: StoreTime) -> None:
        if tick > ticks[-1]:
            reached.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(cron, "sleep_until", at_once)
    workers = [qo.Worker(queue, f"worker-{number}") for number in range(3)]
    runs: list[str] = []
    for worker in workers:

        @worker.task("cleanup")
        async def cleanup(data: Any, ctx: qo.Context) -> None:
            runs.append(ctx.job.id)

        worker.cron("* * * * *", "cleanup", {"n": 1})
    async with running(*workers):
        await soon(reached.wait())
        jobs = await queue.jobs()
        for job in jobs:
            await queue.wait(job.id, timeout=10)

    assert 2 <= len(jobs) <= 3
    assert sorted(runs) == sorted({job.id for job in jobs})


async def test_two_entries_of_one_task_need_names(worker: qo.Worker) -> None:
    worker.cron("0 3 * * *", "cleanup")

    with pytest.raises(qo.InvalidValue, match="give this one a name="):
        worker.cron("0 4 * * *", "cleanup")
    worker.cron("0 4 * * *", "cleanup", name="cleanup at four")
