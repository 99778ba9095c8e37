"""One simulated world: several processes of the whole runtime, unchanged, one store, and everything that goes wrong.

First there is trouble: workers die, are cut off, paused and stopped, and messages are lost. In the calm phase after it
at least one healthy worker is left, and everything must end.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any, TypeVar

import pytest

from qo.errors import Fail, QoError, StoreUnavailable
from qo.job import ENDED
from qo.loops.system import System
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.store.sqlite import SQLiteStore
from qo.store.sqlite import store as sqlite_store
from qo.store.sqlite.file import changes
from qo.values import Finished
from qo.worker.context import Context
from qo.worker.worker import Worker
from tests.simulation.checks import Evidence, Run, broken_rules, over_limit, unended
from tests.simulation.loop import NothingHappens, Process, SimulatedLoop, TaskInBackground
from tests.simulation.network import Conditions, Network
from tests.simulation.plan import TASKS, Fault, JobPlan, Plan, Submit, draw_plan

EPOCH_MS = 1_900_000_000_000
CALM_SECONDS = 300.0
"""How long the calm phase may take. Everything should have ended long before."""
NOT_THE_SEEDS = re.compile(
    r"""debug_id(='|":")\w*|"[0-9A-Z]{10}"\]|host='[^']*'|pid=\d+| at 0x[0-9a-f]+"""  # the second is an attempt's
)
"""Texts that differ from one run of a seed to the next: they come from this machine and decide nothing."""

T = TypeVar("T")
log = logging.getLogger("simulation")


class Broken(AssertionError):
    """A world in which a rule was broken, with the way to see it again."""

    def __init__(self, seed: int, sentences: list[str]) -> None:
        super().__init__("\n".join([*sentences, f"Replay it with: python -m tests.simulation {seed}"]))
        self.sentences = sentences


class Machine:
    """A process that may run a worker, and its way to the store."""

    def __init__(self, world: World, name: str) -> None:
        self.process = Process(name)
        self.network = Network(world.store, self.process, world.conditions, note=world.note, served=world.note_answer)
        chance = Random(f"{world.plan.seed}/{name}")
        numbers = iter(range(1, 1_000_000))
        system = System(
            clock=world.clock,
            monotonic=world.loop.time,
            draw=chance.random,
            new_id=lambda: f"{name}.{next(numbers)}",
            start_background=TaskInBackground,
            call_in_thread=_call_inline,
        )
        self.queue = Queue(self.network, world.settings, system=system)
        self.worker: Worker | None = None
        self.main: asyncio.Task[None] | None = None


class World:
    def __init__(self, plan: Plan, loop: SimulatedLoop, store: SQLiteStore) -> None:
        self.plan = plan
        self.loop = loop
        self.store = store
        self.settings = load_settings(plan.settings, environ={})
        self.evidence = Evidence()
        self.trace: list[str] = []
        self.broken: list[str] = []
        self.conditions = Conditions(
            Random(f"{plan.seed}/network"),
            longest_delay=plan.longest_delay,
            lost_share=plan.lost_share,
            longest_timeout=1.0,
        )
        self.machines: list[Machine] = []
        self.workers: dict[int, Machine] = {}
        """The newest machine of each worker of the plan, by its number."""
        self._numbers = iter(range(1, 1_000_000))
        self.is_over = False

    def clock(self) -> int:
        return EPOCH_MS + round(self.loop.time() * 1000)

    def note(self, process: str, line: str) -> None:
        if not self.is_over:
            self.trace.append(NOT_THE_SEEDS.sub("…", f"{self.loop.time():.6f} {process} {line}"))

    def note_answer(self, name: str, answer: Any) -> None:
        if name == "finish":
            for finished in answer:
                self._note_finished(finished)

    def _note_finished(self, finished: Finished) -> None:
        if finished.state in ENDED and not finished.lost:
            assert finished.state is not None
            self.evidence.finished[finished.job_id] = finished.state

    # --- machines ---------------------------------------------------------------------------------------------

    def new_machine(self, name: str) -> Machine:
        machine = Machine(self, f"{name}/{next(self._numbers)}")
        self.machines.append(machine)
        return machine

    def start_worker(self, number: int) -> None:
        """Under the same name each time, as an operator would."""
        machine = self.workers[number] = self.new_machine(f"worker-{number}")
        machine.worker = Worker(machine.queue, f"worker-{number}", concurrency=self.plan.workers[number])
        for task in TASKS:
            machine.worker.task(task, max_concurrent=self.plan.max_concurrent[task])(self.handler_on(machine))
        machine.main = machine.process.start(self.loop, machine.worker.run())

    def handler_on(self, machine: Machine) -> Callable[[JobPlan, Context], Awaitable[str]]:
        async def handle(plan: JobPlan, ctx: Context) -> str:
            name = machine.process.name
            run = Run(process=name, job_id=ctx.job.id, token=ctx.token, began_at=self.loop.time())
            self.evidence.runs.append(run)
            self.note(name, f"begins {run.job_id} {run.token} attempt {ctx.attempt}")
            try:
                if plan.reports:
                    await ctx.progress(1, 2)
                await asyncio.sleep(plan.seconds)
                if plan.reports:
                    await ctx.save({"attempt": ctx.attempt})
                if ctx.attempt <= plan.failures:
                    raise OSError(f"attempt {ctx.attempt} fails")
                if plan.gives_up:
                    raise Fail("It gives up.")
                run.returned = True
                return ctx.token
            finally:
                if not self.is_over:
                    run.ended_at = self.loop.time()
                    self.note(name, f"ends {run.job_id} {run.token}")

        return handle

    # --- clients ----------------------------------------------------------------------------------------------

    async def submit(self, machine: Machine, submit: Submit) -> None:
        """A client submits until the answer has arrived, and cancels some of its jobs."""
        await asyncio.sleep(submit.at)
        await self.until_answered(
            lambda: machine.queue.submit(
                submit.task,
                submit.plan,
                id=submit.id,
                groups=submit.groups,
                priority=submit.priority,
                delay=submit.delay,
            )
        )
        self.evidence.accepted.add(submit.id)
        if submit.cancel_after is not None:
            await asyncio.sleep(submit.cancel_after)
            with suppress(QoError):  # it may have ended meanwhile
                await self.until_answered(lambda: machine.queue.cancel(submit.id))

    async def until_answered(self, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await call()
            except StoreUnavailable:
                await asyncio.sleep(0.2)

    # --- faults -----------------------------------------------------------------------------------------------

    async def befall(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at)
        machine = self.workers[fault.worker]
        if machine.process.is_dead or machine.main is None or machine.main.done():
            return
        name = machine.process.name
        self.note(name, f"fault {fault.kind}")
        match fault.kind:
            case "die":
                if not machine.process.runs:
                    machine.network.disturbed_at = self.loop.time()  # it was paused, and hears of nothing any more
                machine.process.die()
                self.evidence.died_at[name] = self.loop.time()
            case "cut":
                machine.network.cut()
                await asyncio.sleep(fault.seconds)
                machine.network.mend()
            case "pause":
                machine.process.pause()
                await asyncio.sleep(fault.seconds)
                if not machine.process.is_dead:
                    machine.network.disturbed_at = self.loop.time()
                    machine.process.go_on(self.loop)
            case "stop":
                assert machine.worker is not None
                machine.process.context.run(machine.worker.stop)
                await asyncio.wait([machine.main], timeout=60)
        self.note(name, f"fault {fault.kind} is over")
        if fault.kind in ("die", "stop") and fault.comes_back:
            await asyncio.sleep(fault.seconds)
            if self.workers[fault.worker] is machine:
                self.start_worker(fault.worker)

    # --- its course -------------------------------------------------------------------------------------------

    async def live(self) -> None:
        for number in range(len(self.plan.workers)):
            self.start_worker(number)
        client = self.new_machine("client")
        clients = [client.process.start(self.loop, self.submit(client, each)) for each in self.plan.submits]
        faults = [self.loop.create_task(self.befall(fault)) for fault in self.plan.faults]
        watching = self.loop.create_task(self._watch_capacity())
        await asyncio.sleep(self.plan.trouble_seconds)
        await asyncio.gather(*faults)
        self.conditions.lost_share = 0.0
        self.note("world", "is calm")
        if all(machine.process.is_dead or machine.main.done() for machine in self.workers.values() if machine.main):
            self.start_worker(0)
        await asyncio.gather(*clients)
        await self._until_everything_has_ended()
        await self._stop_workers()
        watching.cancel()
        self.evidence.ended_at = self.loop.time()
        for machine in self.machines:
            self.evidence.disturbed_at[machine.process.name] = machine.network.disturbed_at
        self.broken += await broken_rules(self.store, self.plan, self.evidence, epoch_ms=EPOCH_MS)
        self.is_over = True

    async def _watch_capacity(self) -> None:
        """Looks after every commit: a commit wakes everything that waits for changes."""
        changed = asyncio.Event()
        self.store.changes.waiters[changed] = self.loop
        while True:
            await changed.wait()
            changed.clear()
            self.broken += await over_limit(self.store)

    async def _until_everything_has_ended(self) -> None:
        give_up_at = self.loop.time() + CALM_SECONDS
        while await unended(self.store) and self.loop.time() < give_up_at:  # noqa: ASYNC110 - the store has no such event
            await asyncio.sleep(0.5)

    async def _stop_workers(self) -> None:
        mains = []
        for machine in self.machines:
            if machine.worker is not None and machine.main is not None and not machine.process.is_dead:
                machine.process.context.run(machine.worker.stop)
                mains.append(machine.main)
        if mains:
            _, unended = await asyncio.wait(mains, timeout=60)
            self.broken += [f"stopping: {main.get_name()} does not end" for main in unended]
        # A lease whose answer was lost when its worker left ends with its time.
        await asyncio.sleep(2 * self.plan.lease_seconds)
        while (await self.store.catch_up()).more:
            pass

    def note_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self.is_over:
            self.broken.append(f"an error in the background: {context.get('message')} {context.get('exception')!r}")


async def _call_inline(call: Callable[..., T], /, *args: Any) -> T:
    return call(*args)


def simulate(seed: int, *, change: Callable[[World], None] = lambda world: None) -> list[str]:
    """Live through the world of a seed and return its whole trace. Raises `Broken` when it breaks a rule.

    `change` is called with the world before it begins; tests plant faults in it.
    """
    plan = draw_plan(seed)
    loop = SimulatedLoop()
    with pytest.MonkeyPatch.context() as patch:
        # Looking ten times a second for what a change tells anyway was most of the work.
        patch.setattr(changes, "LOOK_AT_CLOCK_SECONDS", 3.0)
        patch.setattr(sqlite_store, "BETWEEN_LOOKS_SECONDS", 0.2)
        world = _live(plan, loop, change)
    if world.broken:
        raise Broken(seed, list(dict.fromkeys(world.broken)))
    return world.trace


def _live(plan: Plan, loop: SimulatedLoop, change: Callable[[World], None]) -> World:
    try:
        asyncio.set_event_loop(loop)
        store = loop.run_until_complete(SQLiteStore.open(":memory:"))
        world = World(plan, loop, store)
        store.clock = world.clock
        loop.set_exception_handler(world.note_error)
        change(world)
        try:
            loop.run_until_complete(world.live())
        except NothingHappens:
            world.broken.append("the simulation stands still: nothing is ready and no timer is set")
        world.is_over = True
        _tear_down(world)
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    return world


def _tear_down(world: World) -> None:
    """End every task, also those of dead processes, so that nothing is left to the garbage collector."""
    for machine in world.machines:
        machine.network.cut()
        machine.process.go_on(world.loop)

    async def end_all() -> None:
        me = asyncio.current_task()
        while tasks := sorted(asyncio.all_tasks() - {me}, key=lambda task: task.get_name()):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=60)
        for machine in world.machines:
            with suppress(QoError):
                await machine.queue.close()
        await world.store.close()

    world.loop.run_until_complete(end_all())
