"""Round trips of a worker and its store: outcomes go, leases come. Between them, the wait for work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from qo.errors import InvalidValue, StoreAway, StoreUnavailable
from qo.loops.portions import Portion, result_size
from qo.loops.timing import unless
from qo.loops.trouble import Trouble
from qo.store.away import until_there
from qo.store.contract import Store
from qo.values import Advance, Claimed, Offer, Outcome
from qo.worker.execution import Interruption, storable
from qo.worker.places import Places

T = TypeVar("T")
CLAIM_AT_MOST = 50
FINISH_AT_MOST = 200
WAIT_SECONDS = 30.0
TRY_AGAIN_SECONDS = 1.0
LEAVE_SECONDS = 1.0
"""How long a worker waits for each last answer of a store that is away."""


class StoppedBeforeStart(Exception):
    """The worker was stopped before it could begin."""


class Exchange:
    """The calls of a running worker to its store, about the jobs in its `Places`.

    The worker awaits one round trip at a time. When there is much to send or to claim, the next one has begun already.
    """

    def __init__(self, store: Store, places: Places) -> None:
        self._store = store
        self._places = places
        places.when_owed = self._owed
        # Half of the capacity at a time, so that the store can be busy with one half while handlers run in the other.
        self._portion = min(CLAIM_AT_MOST, (places.capacity + 1) // 2)
        self._finishing: Portion[Outcome] = Portion(FINISH_AT_MOST, counts=places.looks, size=result_size)
        self._not_reached = Trouble("the store cannot be reached")
        self._offer: Offer | None = None
        """The offer made to the store, until the store has answered it."""
        self._unanswered: list[str] = []
        """Claim ids whose answer was lost, and the offer's. The store may have granted leases under them, so the next
        claims reuse them."""
        self._got_all = False
        """The last claim brought as many jobs as it asked for."""
        self._is_awaited = False
        """A round trip is under way."""
        self._ahead: asyncio.Future[bool] | None = None
        """A round trip that has begun behind the awaited one."""

    # --- round trips ------------------------------------------------------------------------------------------

    async def next(self) -> bool:
        """Make one round trip; return whether it brought jobs, or the store has more."""
        self._places.changed.clear()  # a change from here on is looked at after this round trip
        round_trip, self._ahead = self._ahead or self._begin(), None
        self._is_awaited = True
        self._begin_ahead()
        try:
            return await asyncio.shield(round_trip)
        except asyncio.CancelledError:
            await round_trip  # jobs that were given to this worker must not be forgotten
            raise
        finally:
            self._is_awaited = False

    def is_wanted(self) -> bool:
        """Return whether there is something to send, a claim to repeat, or a round trip begun that nothing awaits."""
        repeats = bool(self._unanswered) and self._places.unclaimed > 0
        return bool(self._places.outcomes or self._ahead or self._has_news() or repeats)

    async def end(self) -> None:
        """Await the round trip that has begun ahead, and take the offer back. The worker must claim nothing more."""
        if self._ahead is not None:
            await self.next()
        if self._offer is not None:
            await self._take_back(self._offer)

    def _owed(self) -> None:
        if self._is_awaited:
            self._begin_ahead()

    def _begin_ahead(self) -> None:
        """Begin the next round trip while one is under way, if there is much to send or to claim. Not in a worker that
        stops, which has no free capacity."""
        places = self._places
        much = len(places.outcomes) >= self._portion or (self._got_all and places.unclaimed >= self._portion)
        if much and self._ahead is None and places.free:
            self._ahead = self._begin()

    def _begin(self) -> asyncio.Future[bool]:
        places = self._places
        outcomes, places.outcomes = self._finishing.cut(places.outcomes)
        tasks, jobs = places.claimable(min(places.unclaimed, self._portion) if places.tasks else 0)
        suspects = places.unclaimed_suspects if jobs else 0
        processes = jobs if places.needs_processes(tasks) else 0
        places.claiming += jobs
        places.claiming_suspects += suspects
        places.claiming_processes += processes
        return asyncio.ensure_future(self._give_and_take(outcomes, tasks, jobs, suspects, processes))

    async def _give_and_take(
        self, outcomes: list[Outcome], tasks: list[str], jobs: int, suspects: int, processes: int
    ) -> bool:
        """Send outcomes, report what runs, claim as many jobs. The calls go together: on SQLite they share a commit."""
        places = self._places
        asks = bool(outcomes or jobs or self._has_news())
        finished, _, claimed = answers = await asyncio.gather(
            self._finish(outcomes), self._report_what_runs(), self._claim(tasks, jobs, suspects), return_exceptions=True
        )
        if isinstance(finished, StoreUnavailable):
            places.outcomes = outcomes + places.outcomes  # finishing twice with one token is answered as done
        places.claiming -= jobs
        places.claiming_suspects -= suspects
        places.claiming_processes -= processes
        self._got_all = isinstance(claimed, Claimed) and len(claimed.leases) == jobs
        if isinstance(claimed, Claimed):
            places.take(claimed.leases)
        for error in answers:
            if isinstance(error, StoreUnavailable):
                self._not_reached.tell(error)
                await asyncio.sleep(TRY_AGAIN_SECONDS)
                return False
            if isinstance(error, BaseException):
                raise error
        if asks:  # with nothing to ask for, nothing is known of the store
            self._not_reached.over()
        return isinstance(claimed, Claimed) and (bool(claimed.leases) or claimed.more)

    async def _finish(self, outcomes: list[Outcome]) -> None:
        if not outcomes:
            return
        try:
            answers = await self._store.finish(outcomes)
        except InvalidValue:
            # The store refuses the result of a handler. That job has failed, and the others must not suffer.
            outcomes = [storable(outcome) for outcome in outcomes]
            answers = await self._store.finish(outcomes)
        for outcome, answer in zip(outcomes, answers, strict=True):
            self._places.settle(outcome, answer)

    def _has_news(self) -> bool:
        return any(execution.has_news() for execution in self._places.unreported)

    async def _report_what_runs(self) -> None:
        """A job that has ended by the next round trip, as most short ones have, never costs a write for this."""
        places = self._places
        begun = {execution.lease.token: execution for execution in places.unreported if execution.has_news()}
        places.unreported = [
            each
            for each in places.unreported
            if not (each.reported or each.has_ended or each.lease.token in begun)  # a handler's own report may fail
        ]
        if not begun:
            return
        try:
            answers = await self._store.advance(
                [Advance(job_id=execution.lease.job_id, token=token) for token, execution in begun.items()]
            )
        except BaseException:
            places.unreported += begun.values()
            raise
        for held in answers:
            begun[held.token].reported = True
            if held.lost or held.cancel_wanted:
                begun[held.token].interrupt(Interruption.LOST if held.lost else Interruption.CANCELLED)

    async def _claim(self, tasks: list[str], jobs: int, suspects: int) -> Claimed | None:
        if not jobs or not self._places.free:  # the worker may have been stopped since this was begun
            return None
        claim_id = self._next_claim_id()
        try:
            claimed = await self._store.claim(
                worker=self._places.worker,
                tasks=tasks,
                capacity=jobs,
                lease_ms=self._places.lease_ms,
                claim_id=claim_id,
                suspects=suspects,
            )
        except BaseException:
            self._unanswered.append(claim_id)
            raise
        if self._offer is not None and self._offer.claim_id == claim_id:
            self._offer = None
        return claimed

    def _next_claim_id(self) -> str:
        return self._unanswered.pop(0) if self._unanswered else self._places.new_id()

    # --- the wait for work ------------------------------------------------------------------------------------

    async def wait(self) -> None:
        """Sleep until something changes in this worker, or the store has something to claim."""
        places = self._places
        if places.changed.is_set() or self.is_wanted():
            return
        work: asyncio.Future[None] | None = None
        if places.free and self._awaited_tasks():
            work = asyncio.ensure_future(self._wait_for_work())
        try:
            await places.changed.wait()
        finally:
            # Not when it was the work that came: a job waits for every turn of the event loop that is spent here.
            if work is not None and not work.done():
                work.cancel()
                await asyncio.wait([work])
        if work is not None and not work.cancelled():
            work.result()  # raises what went wrong

    def _awaited_tasks(self) -> list[str]:
        tasks, jobs = self._places.claimable(1)
        return tasks if jobs else []

    async def _wait_for_work(self) -> None:
        """Jobs that the store hands over meanwhile start at once."""
        places = self._places
        try:
            while places.free and (tasks := self._awaited_tasks()) and not places.changed.is_set():
                found = await self._store.wait_for_work(
                    worker=places.worker,
                    tasks=tasks,
                    timeout_seconds=WAIT_SECONDS,
                    offer=self._make_offer(),
                    suspects=places.unclaimed_suspects,
                )
                if not found.leases or places.stopping:  # a worker that stops takes its offer back
                    return
                self._end_offer()
                places.take(found.leases)
                await asyncio.sleep(0)  # so that the handler is called before anything else is sent
        except StoreUnavailable:
            await asyncio.sleep(TRY_AGAIN_SECONDS)  # the round trip that follows logs it
        finally:
            places.changed.set()  # not by a callback of the task, which would come after the next round trip has begun

    def _make_offer(self) -> Offer | None:
        """Only while nothing runs: a handler that keeps the event loop busy would keep a job waiting that another
        worker could take."""
        if self._places.taken:
            return None
        self._offer = Offer(lease_ms=self._places.lease_ms, claim_id=self._next_claim_id())
        self._unanswered.append(self._offer.claim_id)
        return self._offer

    def _end_offer(self) -> None:
        """The store has answered the offer."""
        assert self._offer is not None
        self._unanswered.remove(self._offer.claim_id)
        self._offer = None

    async def _take_back(self, offer: Offer) -> None:
        """The store may have filled the offer meanwhile; that job goes back to its place in line."""
        asking = self._store.wait_for_work(
            worker=self._places.worker, tasks=list(self._places.tasks), timeout_seconds=0, offer=offer
        )
        try:
            found = await self.before_leaving(asking)
        except StoreUnavailable as error:
            self._not_reached.tell(error)
            return
        self._end_offer()
        for lease in found.leases:
            self._places.hand_back(lease)

    # --- the first and the last calls of a worker -------------------------------------------------------------

    async def before_starting(self, ask: Callable[[], Awaitable[T]], *, waits: bool) -> T:
        """Return the store's answer. If it `waits`, a store that is away is asked again, and `StoppedBeforeStart` is
        raised when the worker is stopped meanwhile."""
        if not waits:
            return await ask()
        asking = until_there(ask, tell=self._not_reached.tell)
        answer = await unless(asking, stopped=lambda: self._places.stopping, changed=self._places.changed)
        if answer is None:
            raise StoppedBeforeStart
        return answer

    async def before_leaving(self, call: Awaitable[T]) -> T:
        """Await a call, and not for long if the store is known to be away: the caller of `stop` waits for this.
        Raises StoreUnavailable."""
        try:
            async with asyncio.timeout(LEAVE_SECONDS if self._not_reached.is_told else None):
                return await call
        except TimeoutError:
            raise StoreAway("the store is away") from None
