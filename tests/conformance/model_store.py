"""The reference model as a store, so that the behaviour suite can run against it as well."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from typing import Any

from model import Model

from qo.event import SIGNALS, Feed
from qo.store import check
from qo.store.base import Store
from qo.store.values import Bounds, Claimed, Offer

LOOK_AGAIN_SECONDS = 0.05


class ModelStore:
    """Every operation of the `Store` protocol; `now` comes from `clock` (milliseconds) unless given."""

    def __init__(self, bounds: Bounds | None = None, clock: Callable[[], int] | None = None) -> None:
        self.model = Model(bounds)
        self.bounds = self.model.bounds
        self.clock = clock or (lambda: time.time_ns() // 1_000_000)
        self._changed = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(Store, name):
            raise AttributeError(name)
        operation = getattr(self.model, name)
        takes_the_time = "now" in inspect.signature(operation).parameters

        async def call(*args: Any, now: int | None = None, **kwargs: Any) -> Any:
            check_input(name, args, kwargs)
            if takes_the_time:
                kwargs["now"] = self.clock() if now is None else now
            newest = self.model.newest_event()
            answer = operation(*args, **kwargs)
            if self.model.newest_event() > newest:
                self._changed.set()
                self._changed = asyncio.Event()
            return answer

        return call

    async def wait_for_events(
        self, after: int, *, timeout_seconds: float, kinds: Collection[str] | None = None
    ) -> bool:
        deadline = time.monotonic() + timeout_seconds
        while not self.model.events(after, kinds=kinds, limit=1).events:
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._changed.wait()
            except TimeoutError:
                return False
        return True

    async def signals(self, worker: str, after: int) -> AsyncGenerator[Feed]:
        while True:
            feed = self.model.events(after, kinds=SIGNALS)
            yield feed
            after = feed.cursor
            await self.wait_for_events(after, kinds=SIGNALS, timeout_seconds=LOOK_AGAIN_SECONDS)

    async def wait_for_work(
        self,
        *,
        worker: str,
        tasks: Sequence[str],
        timeout_seconds: float,
        offer: Offer | None = None,
        filled: Callable[[Claimed], None] | None = None,
    ) -> Claimed:
        deadline = time.monotonic() + timeout_seconds
        while not self.model.might_claim(tasks, now=self.clock()):
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return Claimed()
            # Time alone makes jobs due, and no step tells of that.
            await self.wait_for_events(self.model.newest_event(), timeout_seconds=min(remaining, LOOK_AGAIN_SECONDS))
        return Claimed(more=True)

    def snapshot(self) -> dict[str, Any]:
        return self.model.snapshot()

    async def close(self) -> None:
        pass


def check_input(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """What every store does at its door; the model itself trusts its input."""
    match name:
        case "submit":
            for submission in args[0]:
                check.check_submission(submission)
        case "claim":
            check.check_claim(**kwargs)
        case "renew":
            named = {"worker": kwargs.get("worker"), "instance": kwargs.get("instance", "")}
            check.check_renewals(args[0], **named, tickets=kwargs.get("tickets", ()))
        case "advance":
            for advance in args[0]:
                check.check_advance(advance)
        case "finish":
            for outcome in args[0]:
                check.check_outcome(outcome)
        case "set_priority":
            check.check_priority(args[0])
            target = {field: kwargs.get(field) for field in ("job_id", "parent", "by")}
            check.check_target(**target)
        case "cancel":
            target = {field: kwargs.get(field) for field in ("job_id", "parent", "message", "by")}
            check.check_cancel(**target)
        case "move":
            fields = {field: kwargs.get(field) for field in ("before", "after", "by")}
            check.check_move(args[0], **fields)
        case "retry" | "confirm":
            check.check_job(args[0], by=kwargs.get("by"))
        case "set_tier":
            check.check_tier(*args, by=kwargs.get("by"))
        case "set_limits":
            check.check_limits(args[0], exactly=kwargs.get("exactly"))
            check.check_by(kwargs.get("by"))
        case "remove_limit":
            check.check_removal(args[0], only=kwargs.get("only"), by=kwargs.get("by"))
        case "set_paused":
            check.check_group(args[0])
            check.check_by(kwargs.get("by"))
        case "revoke":
            check.check_revoke(*args, by=kwargs.get("by"))
        case "acquire":
            for ticket in args[0]:
                check.check_ticket(ticket)
        case "release":
            check.check_release(args[0])
        case "register":
            check.check_registration(args[0])
        case "catch_up" | "age" | "forget":
            check.check_upkeep(**kwargs)
        case "fail_unconfirmed":
            check.check_upkeep(after_ms=kwargs["after_ms"])
            check.check_job_error(kwargs["error"])
        case "take_reminders":
            check.check_reminder_ages(kwargs["ages_ms"])
        case "jobs" | "audit":
            check.check_page(kwargs.get("limit", 100))
        case "line":
            check.check_page(kwargs["limit"])
        case "events":
            check.check_cursor(args[0])
            check.check_page(kwargs.get("limit", 1000))
        case "observe":
            check.check_observations(args[0])
        case "record_estimate_errors":
            check.check_estimate_errors(*args, keep=kwargs.get("keep", 500))
        case "put_record":
            check.check_record(*args, version=kwargs["version"])
