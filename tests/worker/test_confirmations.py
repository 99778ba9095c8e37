"""Confirmations as people meet them: what is asked, what is granted, what follows when nobody answers."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import Any

import pytest

import qo
from qo.notify.notice import Notice
from qo.queue.queue import Queue
from qo.worker.upkeep import Upkeep
from tests.worker.clocked import ClockedStore
from tests.worker.running import run_one

HOUR_MS = 3_600_000
WILL_ASK = "It asks for confirmation before iteration 3: the 2 iterations that it was granted are used"


class Sent:
    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.contacts: list[str | None] = []

    async def send(self, notice: Notice, *, contact: str | None = None) -> None:
        self.notices.append(notice)
        self.contacts.append(contact)


@pytest.fixture(autouse=True)
def improve(worker: qo.Worker) -> None:
    @worker.task("improve")
    async def improve(data: Any, ctx: qo.Context) -> None:
        async for _ in ctx.iterations():
            pass


async def what_is_asked(queue: qo.Queue, job_id: str) -> set[str | None]:
    """The question, wherever a person can read it."""
    async with aclosing(queue.watch(job_id)) as events:
        present = await anext(events)
    (listed,) = await queue.jobs(status="confirming")
    (of_parent,) = (await queue.parent("app")).jobs
    sentence = (await queue.why(job_id)).sentence
    quoted = sentence.removeprefix('It waits for a person to confirm "').removesuffix('".')
    read = await queue.get(job_id)
    return {read.message, listed.message, of_parent.message, present.detail["message"], quoted}


async def test_the_question_follows_the_tier_and_is_what_a_confirmation_grants(
    queue: qo.Queue, worker: qo.Worker
) -> None:
    job = await run_one(queue, worker, "improve", user="ada", tier="bootstrapper", parent="app")
    before = await what_is_asked(queue, job.id)

    await queue.set_tier("ada", "cto_scale")
    after = await what_is_asked(queue, job.id)
    confirmed = await queue.confirm(job.id)

    assert before == {"Continue for 2 more iterations"}
    assert after == {"Continue for 5 more iterations"}
    assert (job.iterations_granted, confirmed.iterations_granted) == (2, 7)


async def test_a_reminder_asks_what_a_confirmation_grants_when_it_is_sent(queue: qo.Queue, worker: qo.Worker) -> None:
    await run_one(queue, worker, "improve", user="ada", tier="bootstrapper")
    await queue.set_tier("ada", "cto_scale")
    sent = Sent()

    upkeep = Upkeep(in_hours(queue, 12), notifier=sent, cursor=0)  # type: ignore[arg-type]
    await upkeep.tend()

    assert [notice.message for notice in sent.notices] == [
        "improve has waited 12 hours for a confirmation. Continue for 5 more iterations"
    ]


async def test_reminders_go_to_the_contact_of_the_job_which_no_reader_sees(
    queue: qo.Queue, worker: qo.Worker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    job = await run_one(queue, worker, "improve", user="ada", tier="bootstrapper", contact="ada@example.com")
    sent = Sent()

    await Upkeep(in_hours(queue, 23.5), notifier=sent, cursor=0).tend()  # type: ignore[arg-type]

    assert sent.contacts == ["ada@example.com"] * 2
    read = [job, await queue.jobs(), await queue.why(job.id), await queue.audit(), sent.notices]
    assert "ada@" not in f"{read} {caplog.text}"


async def test_reminders_that_are_due_together_are_sent_once_each_in_order(queue: qo.Queue, worker: qo.Worker) -> None:
    await run_one(queue, worker, "improve", user="ada", tier="bootstrapper")
    sent = Sent()

    upkeep = Upkeep(in_hours(queue, 23.5), notifier=sent, cursor=0)  # type: ignore[arg-type]
    await upkeep.tend()
    await upkeep.tend()

    assert [notice.detail["number"] for notice in sent.notices] == [1, 2]


async def test_a_job_that_nobody_confirmed_says_when_it_is_retried_that_it_asks_again(
    queue: qo.Queue, worker: qo.Worker
) -> None:
    job = await run_one(queue, worker, "improve", user="ada", tier="bootstrapper")
    await Upkeep(in_hours(queue, 24), notifier=Sent(), cursor=0).tend()  # type: ignore[arg-type]
    failed = await queue.get(job.id)

    retried = await queue.retry(job.id)
    await worker.run_until_idle()
    asked_again = await queue.get(job.id)

    assert failed.error is not None
    assert failed.error.message == "Nobody confirmed within 24 hours, so it was stopped. Retry it to be asked again."
    assert (retried.state, retried.message) == (qo.State.QUEUED, WILL_ASK)
    assert (asked_again.state, asked_again.message) == (qo.State.CONFIRMING, "Continue for 2 more iterations")


async def test_a_confirmed_job_does_not_say_that_it_will_ask(queue: qo.Queue, worker: qo.Worker) -> None:
    job = await run_one(queue, worker, "improve", user="ada", tier="bootstrapper")

    assert (await queue.confirm(job.id)).message is None


def in_hours(queue: qo.Queue, hours: float) -> qo.Queue:
    """The same store as it will be then."""
    later = ClockedStore(queue.store, now=time.time_ns() // 1_000_000 + round(hours * HOUR_MS))
    return Queue(later, queue.settings)
