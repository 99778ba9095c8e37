"""One block of a limiter, entered by `with` or `async with`, and what it needs of the slots."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from types import CoroutineType, TracebackType
from typing import Any, NoReturn, Protocol, TypeVar

import msgspec

from qo.errors import InvalidValue
from qo.limits.in_process.line import TaskWaiter, new_task_waiter
from qo.limits.in_process.slots import SlotsInProcess
from qo.limits.metrics import Figures


class Lease(Protocol):
    """The slots that a block holds. `with` and `async with` yield it."""

    @property
    def token(self) -> str:
        """Greater than any earlier holder's token. Pass it to the resource you write to, so that it can reject a late
        write (fencing)."""
        ...

    @property
    def slots(self) -> Mapping[str, int]:
        """The number of the held slot by limited group: the lowest that was free, counted from 0."""
        ...

    @property
    def lost(self) -> bool:
        """Whether another caller may hold these slots by now. In process that cannot happen."""
        ...


AnyLease = TypeVar("AnyLease", bound=Lease)


class Slots(Protocol[AnyLease]):
    """Where a limiter's slots are kept, if not in process. Groups come by their full names, checked, each once."""

    def enter(self, groups: tuple[str, ...], timeout: float | None, priority: int) -> AnyLease:
        """A slot in every group at once, when it is the caller's turn; the thread is blocked until then.

        A timeout of 0 does not stand in line. Raises `Timeout`.
        """
        ...

    async def enter_async(self, groups: tuple[str, ...], timeout: float | None, priority: int) -> AnyLease:
        """The same for a task. A task that is cancelled while it waits keeps neither a slot nor a place in line."""
        ...

    def leave(self, lease: AnyLease, error: BaseException | None) -> object:
        """The end of a `with` block, with the error that ended it. Called once for each lease; the block raises what
        this raises."""

    def leave_async(self, lease: AnyLease, error: BaseException | None) -> Awaitable[None]:
        """The same for an `async with` block."""
        ...

    def set_limit(self, name: str, slots: int | None) -> None:
        """From now on; None removes the limit. Callers that may enter because of it get their slots before this
        returns."""

    def figures(self) -> Figures:
        """The counts of one instant."""
        ...

    def close(self) -> None: ...


class Block(msgspec.Struct, eq=False):
    """Made by `Limiter.acquire`, to be entered once."""

    _slots: Any  # Slots, or in process SlotsInProcess
    _groups: tuple[str, ...] | None
    _timeout: float | None
    _priority: int
    _lease: Lease | None = None

    def __enter__(self) -> Lease:
        groups = self._groups or _refuse_second_use()
        self._groups = None
        lease: Lease = self._slots.enter(groups, self._timeout, self._priority)
        self._lease = lease
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._slots.leave(self._lease, error)

    async def __aenter__(self) -> Lease:
        groups = self._groups or _refuse_second_use()
        self._groups = None
        lease: Lease = await self._slots.enter_async(groups, self._timeout, self._priority)
        self._lease = lease
        return lease

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> CoroutineType[Any, Any, None]:
        # In process it is only awaitable, but type checkers would then refuse the block in an `AsyncExitStack`, which
        # awaits it and does nothing else with it.
        left: CoroutineType[Any, Any, None] = self._slots.leave_async(self._lease, error)
        return left


class BlockInProcess(Block, eq=False):
    """A block on slots in process, where every function call counts.

    So the wait is in this coroutine. A coroutine of the slots beneath it would cost as much as the rest.
    """

    async def __aenter__(self) -> Lease:
        groups = self._groups or _refuse_second_use()
        self._groups = None
        slots: SlotsInProcess = self._slots
        timeout = self._timeout
        lease = slots.enter_or_join(groups, timeout, self._priority, new_task_waiter)
        if not lease.numbers:
            waiter: TaskWaiter = lease  # type: ignore[assignment]  # asking of a Struct what it is takes long
            try:
                if timeout is not None:
                    waiter.wake_after(timeout)
                await waiter.woken
            except BaseException:
                slots.give_up(waiter)
                raise
            if not waiter.numbers:
                slots.take_last_chance(waiter, timeout)
        self._lease = lease
        return lease


def _refuse_second_use() -> NoReturn:
    raise InvalidValue("This acquire has been entered before; call limiter.acquire(...) again for every block.")
