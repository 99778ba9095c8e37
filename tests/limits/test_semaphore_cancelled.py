"""An acquire that is cancelled, or cut off from the store, leaves no slot and no place in line behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import qo
from qo.errors import StoreUnavailable
from qo.job import moment
from qo.limits.semaphore import Semaphore, user_semaphore
from tests.limits.semaphore_fixtures import (  # noqa: F401 - asked for by name
    clock_fixture,
    clocked_fixture,
    overrides_fixture,
    staged_fixture,
)
from tests.limits.semaphore_staging import (
    JOBS_LEASE,
    LEASE,
    NEWEST,
    NOW,
    SECOND,
    Beside,
    Staged,
    expiry_of,
    is_untouched,
    queue_on,
    waiting,
)
from tests.worker.clocked import ClockedStore
from tests.worker.running import soon, until

CALLS = ("set_limits", "acquire", NEWEST, "renew")
"""what an acquire asks of the store, itself and through the reader of events"""


class CancelledAt:
    """An acquire that is cancelled at its n-th call: `before` it has reached the store, or `after`, when only the
    answer is on its way."""

    def __init__(self, queue: qo.Queue, user: str, *, at: int, when: str, timeout: float) -> None:
        self.staged = Staged(queue.store)
        self.happened = False
        self._left = at
        for name in CALLS:
            getattr(self.staged, when)[name] = self._cancel
        self.task = asyncio.create_task(user_semaphore(queue_on(self.staged), user, "solo").acquire("h", timeout))

    async def _cancel(self, *_: Any) -> None:
        self._left -= 1
        if self._left == 0:
            self.happened = self.task.cancel()


async def nothing(*_: Any) -> None:
    pass


async def cancel_at_every_call(
    queue: qo.Queue, when: str, *, timeout: float, begin: Beside = nothing, meanwhile: Beside = nothing, look: Beside
) -> int:
    """Acquire again and again, each time cancelled at the next one of its calls; how many those were.

    `begin` prepares a group, `meanwhile` goes on beside the acquire, `look` tells whether what it left is right.
    """
    for at in range(1, 100):
        semaphore = user_semaphore(queue, f"ada-{at}", "solo")
        await begin(semaphore)
        acquire = CancelledAt(queue, f"ada-{at}", at=at, when=when, timeout=timeout)
        await meanwhile(semaphore, acquire)
        await soon(asyncio.wait([acquire.task]))
        if not acquire.happened:
            assert await acquire.task
            return at - 1
        assert acquire.task.cancelled()
        await look(semaphore)
    raise AssertionError("acquire has no end")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_cancelled_at_whatever_call_while_a_slot_is_free_it_leaves_nothing_behind(
    queue: qo.Queue, when: str
) -> None:
    async def look(semaphore: Semaphore) -> None:
        assert await is_untouched(semaphore)

    # set_limits, acquire, renew
    assert await cancel_at_every_call(queue, when, timeout=0, look=look) == 3


@pytest.mark.parametrize("when", ["before", "after"])
async def test_cancelled_at_whatever_call_while_it_waits_or_was_granted_it_leaves_nothing_behind(
    queue: qo.Queue, when: str
) -> None:
    async def begin(semaphore: Semaphore) -> None:
        await semaphore.acquire("first")

    async def release_when_it_listens(semaphore: Semaphore, acquire: CancelledAt) -> None:
        async def listens_or_is_over() -> bool:
            return acquire.task.done() or (
                acquire.staged.answers["acquire"] == 2 and acquire.staged.answers[NEWEST] == 2
            )

        await until(listens_or_is_over)
        await semaphore.release("first")

    async def look(semaphore: Semaphore) -> None:
        assert await is_untouched(semaphore)

    calls = await cancel_at_every_call(
        queue, when, timeout=60, begin=begin, meanwhile=release_when_it_listens, look=look
    )
    # set_limits, acquire, the newest event, also by the reader, acquire; when it is told: acquire, renew
    assert calls == 7


@pytest.mark.parametrize("timeout", [0, 60])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_cancelled_at_whatever_call_it_leaves_alone_what_its_holder_had_before(
    queue: qo.Queue, when: str, timeout: float
) -> None:
    async def begin(semaphore: Semaphore) -> None:
        await semaphore.acquire("h")

    async def look(semaphore: Semaphore) -> None:
        assert await expiry_of(semaphore, "h") is not None

    # set_limits, acquire
    assert await cancel_at_every_call(queue, when, timeout=timeout, begin=begin, look=look) == 2


async def test_one_cancelled_in_line_makes_room_for_the_next(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "solo")
    await semaphore.acquire("first")
    waiters = []
    for amount, holder in enumerate("ab", start=1):
        waiters.append(asyncio.create_task(semaphore.acquire(holder, timeout=60)))
        await waiting(semaphore, amount)
    waiters[0].cancel()
    await asyncio.wait(waiters[:1])
    in_line = (await queue.limit("user:ada")).waiting
    await semaphore.release("first")

    assert await soon(waiters[1])
    assert (in_line, await semaphore.count()) == (1, 1)


async def test_cancelled_by_a_timeout_around_it_leaves_nothing_behind(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "solo")
    await semaphore.acquire("first")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await semaphore.acquire("h", timeout=60)
    await semaphore.release("first")

    assert await is_untouched(semaphore)


@pytest.mark.parametrize("call", ["acquire", "renew"])
async def test_cancelled_while_a_call_is_on_its_way_to_the_store_it_waits_for_that_and_leaves_nothing_behind(
    queue: qo.Queue, staged: Staged, call: str
) -> None:
    semaphore = user_semaphore(queue_on(staged), "ada", "solo")
    sent, arrives = asyncio.Event(), asyncio.Event()

    async def over_a_slow_network(*args: Any) -> Any:
        """What was sent arrives, even if nobody listens for the answer any more."""
        delattr(staged, call)

        async def travel() -> Any:
            await arrives.wait()
            return await getattr(queue.store, call)(*args)

        sent.set()
        return await asyncio.shield(asyncio.create_task(travel()))

    setattr(staged, call, over_a_slow_network)
    acquire = asyncio.create_task(semaphore.acquire("h"))
    await soon(sent.wait())
    acquire.cancel()
    for _ in range(20):  # time enough to undo, if it did not wait
        await semaphore.count()
    still_there = not acquire.done()
    arrives.set()
    await soon(asyncio.wait([acquire]))

    assert (still_there, acquire.cancelled()) == (True, True)
    assert await is_untouched(semaphore)


async def test_when_the_renewal_of_a_fresh_slot_fails_it_is_given_back(queue: qo.Queue, staged: Staged) -> None:
    semaphore = user_semaphore(queue_on(staged), "ada", "solo")

    async def fail(*_: Any) -> None:
        raise StoreUnavailable("The store is away.")

    staged.before["renew"] = fail

    with pytest.raises(StoreUnavailable):
        await semaphore.acquire("h")
    assert await is_untouched(semaphore)


async def test_a_slot_left_behind_by_one_that_was_cut_off_is_made_a_full_lease_when_it_comes_back(
    clocked: qo.Queue, clock: ClockedStore
) -> None:
    staged = Staged(clock)
    semaphore = user_semaphore(queue_on(staged), "ada", "solo")

    async def fail(*_: Any) -> None:
        staged.before["acquire"] = staged.before["renew"] = fail
        raise StoreUnavailable("The store is away.")

    staged.before["renew"] = fail
    with pytest.raises(StoreUnavailable, match="away"):
        await semaphore.acquire("h")
    left_until = await expiry_of(semaphore, "h")
    clock.now += SECOND

    back = user_semaphore(clocked, "ada", "solo")
    assert left_until == moment(NOW + JOBS_LEASE)
    assert await back.acquire("h")
    assert await expiry_of(back, "h") == moment(NOW + SECOND + LEASE)
