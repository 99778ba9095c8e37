"""What a worker and its store tell each other, one round trip after the other: outcomes go, leases come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from qo.errors import InvalidValue, StoreUnavailable
from qo.ids import new_id
from qo.runtime.execution import Execution, Interruption, storable
from qo.runtime.portions import Portion, result_size
from qo.runtime.trouble import Trouble
from qo.store.base import Store
from qo.store.values import Advance, Claimed, Finished, Offer, Outcome

CLAIM_AT_MOST = 50
FINISH_AT_MOST = 200
TRY_AGAIN_SECONDS = 1.0


class Exchange:
    """Round trips of a running worker. One is waited for at a time; when there is much to do, another has begun.

    `outcomes` are what the store has to be told; their leases are kept alive until it has been.
    """

    def __init__(
        self,
        store: Store,
        *,
        worker: str,
        tasks: Collection[str],
        places: int,
        lease_ms: int,
        changed: asyncio.Event,
        untaken: Callable[[], int],
        take: Callable[[Claimed], None],
        settled: Callable[[Outcome, Finished], None],
    ) -> None:
        """`tasks` may still grow. `changed` is cleared when what was changed is about to be told. `untaken` is how many
        of the places are not taken by a job; `take` gets what was claimed, `settled` each outcome and what the store
        made of it."""
        self._store = store
        self.worker = worker
        self._tasks = tasks
        self._lease_ms = lease_ms
        self._changed = changed
        self._untaken = untaken
        self._take = take
        self._settled = settled
        # Half of the places at a time, so that the store can be busy with one half while handlers run in the other.
        self._portion = min(CLAIM_AT_MOST, (places + 1) // 2)
        self.outcomes: list[Outcome] = []
        self._looks: dict[str, int] = {}
        """By token, of leases with many groups: what ending them counts for."""
        self._finishing: Portion[Outcome] = Portion(
            FINISH_AT_MOST, counts=lambda outcome: self._looks.get(outcome.token, 1), size=result_size
        )
        self.offer: Offer | None = None
        """made to the store, and not known to be void"""
        self.not_reached = Trouble("the store cannot be reached")
        self._unreported: list[Execution] = []
        self._unanswered: list[str] = []
        """ids of claims under which something may have been given that is not known here: the next ones repeat them"""
        self._claiming = 0
        self._plenty = False
        """the last claim got all it asked for"""
        self._is_awaited = False
        """a round trip is under way"""
        self._ahead: asyncio.Future[bool] | None = None
        """and this one behind it"""

    # --- what there is to tell, and to take -------------------------------------------------------------------

    def give(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if self._is_awaited:
            self._begin_ahead()

    def tell_of(self, execution: Execution) -> None:
        """The store is to know that it runs, once it does."""
        self._unreported.append(execution)
        if execution.lease.looks > 1:
            self._looks[execution.lease.token] = execution.lease.looks

    def is_wanted(self) -> bool:
        """Something is to be told, a claim is to be repeated, or a round trip has begun that nobody has waited for."""
        repeats = bool(self._unanswered) and self._free_places() > 0
        return bool(self.outcomes or self._ahead or self._has_news() or repeats)

    def make_offer(self) -> Offer:
        self.offer = Offer(lease_ms=self._lease_ms, claim_id=self._next_claim_id())
        self._unanswered.append(self.offer.claim_id)
        return self.offer

    def end_offer(self) -> None:
        """It is known what was given for it."""
        assert self.offer is not None
        self._unanswered.remove(self.offer.claim_id)
        self.offer = None

    # --- round trips ------------------------------------------------------------------------------------------

    async def next(self) -> bool:
        """One round trip with the store; whether it brought something, or might have brought more."""
        exchange, self._ahead = self._ahead or self._begin(), None
        self._is_awaited = True
        self._begin_ahead()
        try:
            return await asyncio.shield(exchange)
        except asyncio.CancelledError:
            await exchange  # jobs that were given to this worker must not be forgotten
            raise
        finally:
            self._is_awaited = False

    async def end(self) -> None:
        """Of the one that has begun ahead, if any."""
        if self._ahead is not None:
            await self.next()

    def _begin_ahead(self) -> None:
        """The next one begins while one is under way, when there is much to tell or to take. Not for a worker that
        stops, which has no places any more."""
        much = len(self.outcomes) >= self._portion or (self._plenty and self._free_places() >= self._portion)
        if much and self._ahead is None and self._untaken():
            self._ahead = self._begin()

    def _begin(self) -> asyncio.Future[bool]:
        outcomes, self.outcomes = self._finishing.cut(self.outcomes)
        self._changed.clear()
        places = min(self._free_places(), self._portion) if self._tasks else 0
        self._claiming += places
        return asyncio.ensure_future(self._give_and_take(outcomes, places))

    async def _give_and_take(self, outcomes: list[Outcome], places: int) -> bool:
        """Give back what has ended, tell what runs, take what there is room for."""
        asks = bool(outcomes or places or self._has_news())
        finished, _, claimed = answers = await asyncio.gather(
            self._finish(outcomes), self._tell_what_runs(), self._claim(places), return_exceptions=True
        )
        if isinstance(finished, StoreUnavailable):
            self.outcomes = outcomes + self.outcomes  # finishing twice with one token is answered as done
        self._claiming -= places
        self._plenty = isinstance(claimed, Claimed) and len(claimed.leases) == places
        if isinstance(claimed, Claimed):
            self._take(claimed)
        for error in answers:
            if isinstance(error, StoreUnavailable):
                self.not_reached.tell(error)
                await asyncio.sleep(TRY_AGAIN_SECONDS)
                return False
            if isinstance(error, BaseException):
                raise error
        if asks:  # with nothing to ask for, nothing is known of the store
            self.not_reached.over()
        return isinstance(claimed, Claimed) and (bool(claimed.leases) or claimed.more)

    def _free_places(self) -> int:
        """Those that a claim under way may fill are not."""
        return max(0, self._untaken() - self._claiming)

    # --- its parts --------------------------------------------------------------------------------------------

    async def _finish(self, outcomes: list[Outcome]) -> None:
        if not outcomes:
            return
        try:
            answers = await self._store.finish(outcomes)
        except InvalidValue:
            # What a handler made cannot be stored. The others must not suffer, and its own job has failed.
            outcomes = [storable(outcome) for outcome in outcomes]
            answers = await self._store.finish(outcomes)
        for outcome, answer in zip(outcomes, answers, strict=True):
            self._looks.pop(answer.token, None)
            self._settled(outcome, answer)

    def _has_news(self) -> bool:
        return any(execution.has_news() for execution in self._unreported)

    async def _tell_what_runs(self) -> None:
        """A job that has ended by the next round trip, as most short ones have, never costs a write for this."""
        begun = {execution.lease.token: execution for execution in self._unreported if execution.has_news()}
        self._unreported = [
            each
            for each in self._unreported
            if not (each.reported or each.has_ended or each.lease.token in begun)  # a handler's own report may fail
        ]
        if not begun:
            return
        try:
            answers = await self._store.advance(
                [Advance(job_id=execution.lease.job_id, token=token) for token, execution in begun.items()]
            )
        except BaseException:
            self._unreported += begun.values()
            raise
        for held in answers:
            begun[held.token].reported = True
            if held.lost or held.cancel_wanted:
                begun[held.token].interrupt(Interruption.LOST if held.lost else Interruption.CANCELLED)

    async def _claim(self, places: int) -> Claimed | None:
        if not places or not self._untaken():  # a worker may have been stopped since this was begun
            return None
        claim_id = self._next_claim_id()
        try:
            claimed = await self._store.claim(
                worker=self.worker,
                tasks=list(self._tasks),
                places=places,
                lease_ms=self._lease_ms,
                claim_id=claim_id,
            )
        except BaseException:
            self._unanswered.append(claim_id)
            raise
        if self.offer is not None and self.offer.claim_id == claim_id:
            self.offer = None
        return claimed

    def _next_claim_id(self) -> str:
        return self._unanswered.pop(0) if self._unanswered else new_id()
