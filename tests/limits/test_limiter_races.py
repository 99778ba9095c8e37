"""Moments at which a slot could get lost or be given twice, each staged so that it surely happens."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import qo
from qo.limits.block import Block
from qo.limits.in_process import line as limiter_line
from qo.limits.in_process import slots as limiter_in_process
from qo.limits.in_process.slots import SlotsInProcess
from tests.worker.running import soon


@pytest.fixture
def lock() -> threading.Lock:
    """The limiter's lock, for a test to hold."""
    return threading.Lock()


@pytest.fixture
def limiter(lock: threading.Lock, monkeypatch: pytest.MonkeyPatch) -> qo.Limiter:
    monkeypatch.setattr("qo.limits.limiter.SlotsInProcess", lambda: SlotsInProcess(new_lock=lambda: lock))
    return qo.Limiter({"ollama": 1}, total=1)


def entered(limiter: qo.Limiter) -> Block:
    block = limiter.acquire("ollama", timeout=0)
    block.__enter__()
    return block


def leave(block: Block) -> None:
    block.__exit__(None, None, None)


def leave_in_another_thread(block: Block) -> None:
    """This one, and with it its event loop, stands still until that has returned."""
    thread = threading.Thread(target=leave, args=(block,))
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


async def waiting(limiter: qo.Limiter, **options: Any) -> asyncio.Task[Any]:
    task = asyncio.create_task(limiter.acquire("ollama", **options).__aenter__())
    await asyncio.sleep(0)
    assert not task.done()
    return task


def state(limiter: qo.Limiter) -> tuple[int, int]:
    """How many hold a slot and how many wait; held and waiting in ollama and in the total are the same here."""
    metrics = limiter.get_metrics()
    assert metrics["in_flight"]["ollama"] == metrics["in_flight"]["total"]
    return metrics["in_flight"]["total"], sum(metrics["waiting"].values())


@pytest.mark.parametrize("give_back", [leave, leave_in_another_thread])
async def test_one_cancelled_at_the_moment_of_the_hand_over_hands_the_slot_on(
    limiter: qo.Limiter, give_back: Any
) -> None:
    block = entered(limiter)
    first, second = await waiting(limiter), await waiting(limiter)
    give_back(block)
    handed_over = state(limiter)
    first.cancel()  # it has the slot, and has not run since

    assert handed_over == (1, 1)
    await soon(second)
    assert first.cancelled()
    assert state(limiter) == (1, 0)


@pytest.mark.parametrize("give_back", [leave, leave_in_another_thread])
async def test_one_cancelled_just_before_the_hand_over_is_passed_over_or_hands_the_slot_on(
    limiter: qo.Limiter, give_back: Any
) -> None:
    block = entered(limiter)
    first, second = await waiting(limiter), await waiting(limiter)
    first.cancel()  # it will be told when it runs next, and is still in line
    in_line = state(limiter)
    give_back(block)

    assert in_line == (1, 2)
    await soon(second)
    assert first.cancelled()
    assert state(limiter) == (1, 0)


@pytest.mark.parametrize("give_back", [leave, leave_in_another_thread])
async def test_the_last_one_cancelled_at_the_moment_of_the_hand_over_leaves_the_slot_free(
    limiter: qo.Limiter, give_back: Any
) -> None:
    block = entered(limiter)
    only = await waiting(limiter)
    give_back(block)
    only.cancel()
    await asyncio.wait([only])

    assert state(limiter) == (0, 0)


async def test_a_task_whose_time_is_up_at_the_moment_of_the_hand_over_keeps_the_slot(limiter: qo.Limiter) -> None:
    block = entered(limiter)
    task = await waiting(limiter, timeout=0.01)
    time.sleep(0.02)  # noqa: ASYNC251 - the loop must not run: its timer is due, then the slot comes
    leave_in_another_thread(block)

    assert (await soon(task)).slots == {"provider:ollama": 0, "providers": 0}
    assert state(limiter) == (1, 0)


def test_a_thread_whose_time_is_up_at_the_moment_of_the_hand_over_keeps_the_slot(
    limiter: qo.Limiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = entered(limiter)
    monkeypatch.setattr(limiter_line.ThreadWaiter, "wait", lambda *_: leave(block))  # and returns untold

    with limiter.acquire("ollama", timeout=0.01):
        assert state(limiter) == (1, 0)
    assert state(limiter) == (0, 0)


def test_a_thread_whose_time_is_up_keeps_a_slot_that_was_given_back_and_not_handed_over_yet(
    limiter: qo.Limiter, lock: threading.Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = entered(limiter)

    def wait(*_: Any) -> None:
        with lock:
            leave_in_another_thread(block)

    monkeypatch.setattr(limiter_line.ThreadWaiter, "wait", wait)

    with limiter.acquire("ollama", timeout=0.01):
        assert state(limiter) == (1, 0)
    assert state(limiter) == (0, 0)


def test_a_thread_interrupted_at_the_moment_of_the_hand_over_hands_the_slot_on(
    limiter: qo.Limiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = entered(limiter)

    def wait(*_: Any) -> None:
        leave(block)
        assert state(limiter) == (1, 0)
        raise KeyboardInterrupt

    monkeypatch.setattr(limiter_line.ThreadWaiter, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        limiter.acquire("ollama").__enter__()

    assert state(limiter) == (0, 0)


def test_a_thread_interrupted_while_it_waits_leaves_the_line(
    limiter: qo.Limiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(*_: Any) -> None:
        assert state(limiter) == (1, 1)
        raise KeyboardInterrupt

    monkeypatch.setattr(limiter_line.ThreadWaiter, "wait", wait)
    block = entered(limiter)
    with pytest.raises(KeyboardInterrupt):
        limiter.acquire("ollama").__enter__()
    leave(block)

    assert state(limiter) == (0, 0)


async def test_a_slot_given_back_while_another_thread_has_the_lock_is_handed_over_by_that_thread(
    limiter: qo.Limiter, lock: threading.Lock
) -> None:
    block = entered(limiter)
    task = await waiting(limiter)
    with lock:  # as a caller that is about to enter
        leave_in_another_thread(block)  # returns although the lock is taken
    await asyncio.sleep(0)
    assert not task.done(), "the slot was handed over without the lock"
    with pytest.raises(qo.Timeout):  # the caller that had the lock: it comes second, and hands the slot to the first
        limiter.acquire("ollama", timeout=0).__enter__()

    await soon(task)
    assert state(limiter) == (1, 0)


def test_a_slot_given_back_while_another_thread_has_the_lock_is_free_for_the_next_who_comes(
    limiter: qo.Limiter, lock: threading.Lock
) -> None:
    block = entered(limiter)
    with lock:
        leave_in_another_thread(block)

    with limiter.acquire("ollama", timeout=0):
        assert state(limiter) == (1, 0)


def test_a_slot_given_back_between_the_look_and_the_wait_is_not_missed(
    limiter: qo.Limiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = entered(limiter)
    gave_back = threading.Event()

    def new_waiter(*of: Any) -> limiter_line.Waiter:
        # The group was found full; the waiter is not in line yet, and the lock is held.
        leave_in_another_thread(block)
        gave_back.set()
        return original(*of)

    original = limiter_line.new_thread_waiter
    monkeypatch.setattr(limiter_in_process, "new_thread_waiter", new_waiter)
    with limiter.acquire("ollama", timeout=20):
        assert gave_back.is_set()
        assert state(limiter) == (1, 0)
        assert limiter.get_metrics()["longest_wait_seconds"] < 10  # it was told, and did not wait for its timeout


@pytest.mark.parametrize("in_line", [False, True])
def test_a_block_that_garbage_collection_ends_in_a_thread_that_has_the_lock_blocks_nobody(
    monkeypatch: pytest.MonkeyPatch, in_line: bool
) -> None:
    collected: list[bool] = []
    has_ended: list[bool] = []

    def collecting_clock() -> float:
        # Asked for the time with the lock held.
        if not collected:
            collected.append(True)
            gc.collect()
            assert has_ended, "the generator was not collected here"
        return 0.0

    slots = SlotsInProcess(clock=collecting_clock)
    monkeypatch.setattr("qo.limits.limiter.SlotsInProcess", lambda: slots)
    limiter = qo.Limiter({"ollama": 1}, total=1)

    def generator(cycle: list[Any]) -> Iterator[None]:
        try:
            with limiter.acquire("ollama"):
                yield
        finally:
            has_ended.append(True)

    gc.disable()
    try:
        cycle: list[Any] = []
        cycle.append(generator(cycle))
        next(cycle[0])
        del cycle
        if in_line:
            with limiter.acquire("ollama", timeout=20):  # joins the line, at which moment the slot comes free
                assert state(limiter) == (1, 0)
        else:
            limiter.get_metrics()
        assert state(limiter) == (0, 0)
    finally:
        gc.enable()
    assert collected


def a_closed_loop_with_one_waiting(limiter: qo.Limiter) -> tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]:
    loop = asyncio.new_event_loop()
    task = loop.create_task(limiter.acquire("ollama").__aenter__())
    loop.run_until_complete(asyncio.sleep(0))
    return loop, task


def collect(caplog: pytest.LogCaptureFixture) -> None:
    gc.collect()
    told = [record.message.split("\n")[0] for record in caplog.records if record.name == "asyncio"]
    assert told == ["Task was destroyed but it is pending!"]  # so it was collected, and now


def test_one_whose_event_loop_was_closed_is_passed_over(limiter: qo.Limiter, caplog: pytest.LogCaptureFixture) -> None:
    block = entered(limiter)
    loop, task = a_closed_loop_with_one_waiting(limiter)
    inside = threading.Event()

    def enter() -> None:
        with limiter.acquire("ollama"):
            inside.set()

    thread = threading.Thread(target=enter)
    thread.start()
    while state(limiter) != (1, 2):
        time.sleep(0.001)
    loop.close()
    leave(block)
    thread.join(20)

    assert inside.is_set()
    assert state(limiter) == (0, 0)
    del task
    collect(caplog)
    assert state(limiter) == (0, 0)  # what it never had is not given back by its end


def test_of_several_let_in_at_once_those_whose_event_loop_was_closed_are_passed_over(
    limiter: qo.Limiter, caplog: pytest.LogCaptureFixture
) -> None:
    block = entered(limiter)
    loop, task = a_closed_loop_with_one_waiting(limiter)
    other_loop, other_task = a_closed_loop_with_one_waiting(limiter)
    loop.close()
    limiter.set_limit("ollama", 3)
    limiter.set_total(2)

    assert state(limiter) == (2, 0)
    assert other_loop.run_until_complete(asyncio.wait_for(other_task, 20))
    other_loop.close()
    leave(block)
    del task
    collect(caplog)
    assert state(limiter) == (1, 0)


def test_one_whose_event_loop_was_closed_before_it_heard_of_its_slot_hands_it_on_when_it_is_collected(
    limiter: qo.Limiter, caplog: pytest.LogCaptureFixture
) -> None:
    block = entered(limiter)
    loop, task = a_closed_loop_with_one_waiting(limiter)
    leave(block)
    handed_over = state(limiter)
    loop.close()
    del task
    collect(caplog)

    assert handed_over == (1, 0)
    assert state(limiter) == (0, 0)


def test_one_collected_while_it_waits_leaves_the_line(limiter: qo.Limiter, caplog: pytest.LogCaptureFixture) -> None:
    block = entered(limiter)
    coroutine = limiter.acquire("ollama").__aenter__()
    loop = asyncio.new_event_loop()

    async def start() -> None:
        coroutine.send(None)

    loop.run_until_complete(start())
    in_line = state(limiter)
    coroutine.close()
    loop.close()

    assert in_line == (1, 1)
    assert state(limiter) == (1, 0)
    leave(block)


def test_a_loop_that_stood_still_gets_its_slot_when_it_runs_again(limiter: qo.Limiter) -> None:
    block = entered(limiter)
    loop, task = a_closed_loop_with_one_waiting(limiter)
    leave(block)  # from the thread in which the loop ran, while it does not run

    assert loop.run_until_complete(asyncio.wait_for(task, 20)).slots == {"provider:ollama": 0, "providers": 0}
    loop.close()


async def test_one_release_wakes_one(limiter: qo.Limiter, monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[limiter_line.TaskWaiter] = []
    wake = limiter_line.TaskWaiter.wake

    def noted_and_woken(waiter: limiter_line.TaskWaiter) -> bool:
        woken.append(waiter)
        return wake(waiter)

    monkeypatch.setattr(limiter_line.TaskWaiter, "wake", noted_and_woken)
    block = entered(limiter)
    tasks = [await waiting(limiter) for _ in range(50)]
    leave(block)

    assert len(woken) == 1
    await soon(tasks[0])
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_in_the_loop_of_the_release_is_told_without_the_pipe_of_that_loop(
    limiter: qo.Limiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_soon_threadsafe", sent.append)
    block = entered(limiter)
    task = await waiting(limiter)
    leave(block)

    await soon(task)
    assert sent == []


async def test_a_release_looks_at_one_however_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[limiter_line.Line] = []
    first_full_group = limiter_line.Line.first_full_group

    def noted_and_looked_at(line: limiter_line.Line, key: int) -> limiter_line.Group | None:
        looks.append(line)
        return first_full_group(line, key)

    monkeypatch.setattr(limiter_line.Line, "first_full_group", noted_and_looked_at)
    limiter = qo.Limiter(groups={"gpu": 1})
    block = limiter.acquire(groups=["gpu"])
    block.__enter__()
    for customer in range(1000):
        task = asyncio.create_task(limiter.acquire(groups=["gpu", f"customer-{customer}"]).__aenter__())
        await asyncio.sleep(0)
        if customer == 0:
            first = task
    leave(block)

    await soon(first)
    assert len(looks) == 1
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
