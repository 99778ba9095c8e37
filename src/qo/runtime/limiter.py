"""Slots without a queue: no more than 4 calls of one provider and 12 of all at once, across threads and tasks."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Awaitable, Iterable, Mapping
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

import msgspec

from qo.errors import InvalidValue, SettingsError
from qo.policy.groups import GLOBAL, KINDS, PROVIDERS
from qo.policy.ordering import NORMAL, parse_priority
from qo.runtime.limiter_in_process import SlotsInProcess
from qo.runtime.limiter_line import TaskWaiter, new_task_waiter
from qo.runtime.limiter_metrics import (
    PROVIDER_PREFIX,
    TOTAL,
    Figures,
    LimiterMetrics,
    Sample,
    metrics_of,
    samples_of,
)
from qo.settings import load_settings
from qo.store.check_value import (
    MAX_COUNT,
    check_group_count,
    check_name,
    check_number,
    check_own_groups,
    shown,
)

if TYPE_CHECKING:
    from qo.runtime.limiter_collector import LimiterCollector
    from qo.runtime.queue import Queue

log = logging.getLogger("qo.limiter")

ENVIRONMENT_PREFIX = "LLM_MAX_CONCURRENCY_"
NOT_PROVIDERS = frozenset({GLOBAL, PROVIDERS, TOTAL})
"""names of the total, so a provider of that name would be mistaken for it"""
REMEMBERED_AT_MOST = 1000
"""sets of groups whose names have been checked"""
NOTHING: Mapping[str, int] = MappingProxyType({})


class Lease(Protocol):
    """What a block holds, yielded by `with` and `async with`."""

    @property
    def token(self) -> str:
        """Greater than the token of everybody who held these slots before: hand it on to what must refuse the past."""

    @property
    def slots(self) -> Mapping[str, int]:
        """By limited group, the number of the slot held: below the limit, the lowest that was free."""

    @property
    def lost(self) -> bool:
        """Whether somebody else may hold these slots by now. In process that cannot happen."""


AnyLease = TypeVar("AnyLease", bound=Lease)


class Slots(Protocol[AnyLease]):
    """Where a limiter's slots are kept, if not in process. Groups come by their full names, checked, each once."""

    def enter(self, groups: tuple[str, ...], timeout: float | None, priority: int) -> AnyLease:
        """A slot in every group at once, when it is the caller's turn; the thread is blocked until then.

        A timeout of 0 does not stand in line. Raises `Timeout`.
        """

    async def enter_async(self, groups: tuple[str, ...], timeout: float | None, priority: int) -> AnyLease:
        """The same for a task. One that is cancelled while it waits holds nothing, and has no place in line."""

    def leave(self, lease: AnyLease, error: BaseException | None) -> object:
        """End of a `with` block, and how: called once for each lease. What it raises, the block raises."""

    def leave_async(self, lease: AnyLease, error: BaseException | None) -> Awaitable[None]:
        """End of an `async with` block, likewise."""

    def set_limit(self, name: str, slots: int | None) -> None:
        """From now on; None removes the limit. Whoever can go because of it is let in before this returns."""

    def figures(self) -> Figures:
        """All of one instant."""

    def close(self) -> None: ...


class Limiter:
    """At most so many at once: of each provider, of all providers together, and of any group of your own.

        limiter = qo.Limiter({"ollama": 4, "gemini": 8}, total=12)

        with limiter.acquire("ollama"):                 # in threads
            ...
        async with limiter.acquire("gemini") as lease:  # in tasks, on the same limiter
            ...

    One limiter serves all threads and event loops of a process. A caller gets a slot in all of its groups or in none,
    and holds nothing while it waits. Who waits is served in order of priority, then first come first; who is
    blocked by one group does not block those behind it that need others. A caller that needs several busy groups
    may therefore wait long while callers of only one of them come and go.

    A limit of 0 lets nobody in until it is raised. Without a limit, a provider takes only a slot of the total.
    Like a lock, a slot is not shared with blocks inside its block: acquiring the same provider twice takes two slots.
    """

    def __init__(
        self,
        limits: Mapping[str, int] = NOTHING,
        total: int | None = None,
        *,
        groups: Mapping[str, int] = NOTHING,
        queue: Queue | None = None,
    ) -> None:
        """`limits` are those of providers, `groups` those of your own groups. Raises `InvalidValue`.

        With a `queue`, of `qo.connect` or `qo.sync.connect`, the slots are those that its jobs use, and all processes
        on its store share them. An operator's limits, those of the configuration and of tiers win over these, which
        the store is told when somebody enters. Close such a limiter before its queue.
        """
        self._slots: Slots[Any] | SlotsInProcess = SlotsInProcess() if queue is None else _slots_on(queue)
        self._admission: type[Admission] = AdmissionInProcess if queue is None else Admission
        self._limits: dict[str, int | None] = {}
        self._checked: dict[object, tuple[str, ...]] = {}
        for name, slots in _mapping("limits", limits).items():
            self._limits[_provider_group(name)] = _limit(f"limit of provider {shown(name)}", slots)
        for name, slots in _mapping("groups", groups).items():
            self._limits[_own_group(name)] = _limit(f"limit of group {shown(name)}", slots)
        if total is not None:
            self._limits[PROVIDERS] = _limit("total", total)
        for group, limit in self._limits.items():
            self._slots.set_limit(group, limit)
        self._warn_of_small_total(self._limits)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, *, queue: Queue | None = None) -> Limiter:
        """Limits from `LLM_MAX_CONCURRENCY_<PROVIDER>`, the total from `LLM_MAX_CONCURRENCY_GLOBAL`.

        What is unset or empty is 4 for OLLAMA, 8 for GEMINI, 10 for OPENAI, 8 for DEEPSEEK, 12 for GLOBAL
        (`[limiter.env_defaults]` in `.qo.toml`). Raises `SettingsError`, which names the variable.
        """
        environ = os.environ if environ is None else environ
        if not isinstance(environ, Mapping):
            raise InvalidValue(f"environ is {shown(environ)}; give a mapping such as os.environ.")
        limits = dict(load_settings(environ=environ).limiter.env_defaults)
        for variable, text in environ.items():
            if variable.startswith(ENVIRONMENT_PREFIX) and text.strip():
                limits[_name_in(variable)] = _number_in(variable, text)
        total = limits.pop(GLOBAL, None)
        return cls(limits, total, queue=queue)

    def acquire(
        self,
        provider: str | None = None,
        *,
        groups: Iterable[str] | None = None,
        timeout: float | None = None,
        priority: int | str | None = None,
    ) -> Admission:
        """What to enter by `with` or `async with`, once: it waits for the slots, and gives them back at the end.

        Name a provider, which takes a slot of it and one of the total, or `groups` of your own, all of which are
        taken. `timeout` seconds wait no longer (0: not at all) and then raise `Timeout`. `priority` is a number from
        0, which goes first, to 99, or a name; `normal` without.

        An exception or a cancellation gives the slots back, or leaves the line. `with` blocks its thread while it
        waits, so a coroutine uses `async with`. Raises `InvalidValue`; nothing is taken before the block is entered.
        """
        if groups is None:
            wanted = self._checked.get(provider) if type(provider) is str else None
            if wanted is None:
                wanted = self._check_provider(provider)
        else:
            wanted = self._check_groups(provider, groups)
        if timeout is not None:
            timeout = _seconds(timeout)
        return self._admission(self._slots, wanted, timeout, NORMAL if priority is None else parse_priority(priority))

    def set_limit(self, provider: str, slots: int | None) -> None:
        """Change a provider's limit while it is in use; None removes it.

        Raised, it lets in at once who waits. Lowered, it lets holders finish and nobody new in until there is room.
        """
        group = _provider_group(provider)
        self._set_limit(group, None if slots is None else _limit(f"limit of provider {shown(provider)}", slots))

    def set_group_limit(self, group: str, slots: int | None) -> None:
        """The same for a group of your own."""
        own = _own_group(group)
        self._set_limit(own, None if slots is None else _limit(f"limit of group {shown(group)}", slots))

    def set_total(self, slots: int | None) -> None:
        """The same for the total over all providers."""
        self._set_limit(PROVIDERS, None if slots is None else _limit("total", slots))

    def get_metrics(self) -> LimiterMetrics:
        """How it stands now, and how it went since the limiter was made:

            {"in_flight": {"ollama": 3, "gemini": 2, "total": 5}, "blocked_requests": 12,
             "avg_block_time_seconds": 0.45, "longest_wait_seconds": 2.1,
             "blocked_by": {"ollama": 9, "total": 3}, "waiting": {"ollama": 1, "total": 0},
             "limits": {"ollama": 4, "gemini": 8, "global": 12}}

        Groups of your own stand beside the providers. A request is blocked if it had to wait, and is counted once,
        by the group that was full when it came. `waiting` tells where those are held up who wait now; it and
        `blocked_by` list the groups that have made somebody wait. The average is over waits that have ended,
        however they ended; the longest wait may be one that goes on. A name that is not listed counts 0.
        """
        return metrics_of(self._slots.figures())

    def samples(self) -> list[Sample]:
        """The same numbers as samples for Prometheus: name, kind, help, labels, value."""
        return list(samples_of(self._slots.figures()))

    def collector(self) -> LimiterCollector:
        """The same numbers for the library `prometheus_client`, which `qo-queue[server]` brings:

            prometheus_client.REGISTRY.register(limiter.collector())

        A registry takes one: for several limiters, see `collector_of`. Raises `SettingsError` without that library.
        """
        from qo.runtime.limiter_collector import LimiterCollector  # not needed by who does not ask for it

        return LimiterCollector([], {(): self.samples})

    @staticmethod
    def collector_of(limiters: Mapping[str, Limiter]) -> LimiterCollector:
        """The same for several limiters, whose numbers have the names given here as the label `limiter`."""
        from qo.runtime.limiter_collector import LimiterCollector

        if not isinstance(limiters, Mapping) or not all(
            isinstance(name, str) and isinstance(limiter, Limiter) for name, limiter in limiters.items()
        ):
            raise InvalidValue(f"limiters is {shown(limiters)}; give limiters by name, such as {{'chat': limiter}}.")
        return LimiterCollector(["limiter"], {(name,): limiter.samples for name, limiter in limiters.items()})

    def close(self) -> None:
        """Of a limiter on a queue: end the thread that keeps its leases. Callers that wait are refused and leave the
        line; what is still held runs out."""
        self._slots.close()

    def _set_limit(self, group: str, slots: int | None) -> None:
        self._slots.set_limit(group, slots)
        self._limits[group] = slots
        self._warn_of_small_total(self._limits if group == PROVIDERS else [group])

    def _warn_of_small_total(self, groups: Iterable[str]) -> None:
        total = self._limits.get(PROVIDERS)
        if total is None:
            return
        for group in groups:
            limit = self._limits[group]
            if group.startswith(PROVIDER_PREFIX) and limit is not None and total < limit:
                log.warning(
                    "The total of %d is smaller than the limit of %d for provider %r, which can never be reached; "
                    "raise the total or lower the limit.",
                    total,
                    limit,
                    group.removeprefix(PROVIDER_PREFIX),
                )

    def _check_provider(self, provider: str | None) -> tuple[str, ...]:
        if provider is None:
            raise InvalidValue("acquire was given nothing; name a provider, or groups=[...] of your own.")
        return self._remember(provider, (_provider_group(provider), PROVIDERS))

    def _check_groups(self, provider: str | None, groups: Iterable[str]) -> tuple[str, ...]:
        if provider is not None:
            raise InvalidValue(
                f"acquire was given provider {shown(provider)} and groups; give one of them. "
                "A provider among groups is named 'provider:<name>'."
            )
        if isinstance(groups, str | bytes) or not isinstance(groups, Iterable):
            raise InvalidValue(f"groups is {shown(groups)}; give a list of names.")
        named = tuple(groups)
        if not named:
            raise InvalidValue("groups is empty; name at least one group, or a provider instead.")
        if all(type(name) is str for name in named) and named in self._checked:
            return self._checked[named]
        wanted = dict.fromkeys(_own_group(name) for name in named)
        if any(group.startswith(PROVIDER_PREFIX) for group in wanted):
            wanted[PROVIDERS] = None  # it is the total over all calls of providers, however they are named
        check_group_count("groups", tuple(wanted))
        return self._remember(named, tuple(wanted))

    def _remember(self, named: object, wanted: tuple[str, ...]) -> tuple[str, ...]:
        if len(self._checked) >= REMEMBERED_AT_MOST:
            self._checked.clear()
        self._checked[named] = wanted
        return wanted


class Admission(msgspec.Struct, eq=False):
    """The way into one block and out of it, by `with` or by `async with`. Made by `Limiter.acquire`."""

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
    ) -> Awaitable[None]:
        left: Awaitable[None] = self._slots.leave_async(self._lease, error)
        return left


class AdmissionInProcess(Admission, eq=False):
    """With slots in process, where nothing is far away and each call counts.

    So the wait is in this coroutine: one of the slots' own beneath it is made and passed through for every block.
    """

    async def __aenter__(self) -> Lease:
        groups = self._groups or _refuse_second_use()
        self._groups = None
        slots: SlotsInProcess = self._slots
        timeout = self._timeout
        lease = slots.enter_or_join(groups, timeout, self._priority, new_task_waiter)
        if not lease._numbers:
            waiter: TaskWaiter = lease  # type: ignore[assignment]  # asking of a Struct what it is takes long
            try:
                if timeout is not None:
                    waiter.tell_after(timeout)
                await waiter.told
            except BaseException:
                slots.give_up(waiter)
                raise
            if not waiter._numbers:
                slots.take_last_chance(waiter, timeout)
        self._lease = lease
        return lease


def _slots_on(queue: Queue) -> Slots[Any]:
    from qo.runtime.limiter_on_store import SlotsOnStore  # not needed by who limits one process
    from qo.runtime.queue import check_queue

    asynchronous = getattr(queue, "asynchronous", queue)
    check_queue(asynchronous)
    return SlotsOnStore(asynchronous)


def _refuse_second_use() -> NoReturn:
    raise InvalidValue("This acquire has been entered before; call limiter.acquire(...) again for every block.")


def _provider_group(name: str) -> str:
    bare = name.removeprefix(PROVIDER_PREFIX) if isinstance(name, str) else name
    check_name("provider", bare)
    kind, colon, _ = bare.partition(":")
    if bare in NOT_PROVIDERS or (colon and kind in KINDS):
        prefixes = ", ".join(f"{kind}:" for kind in KINDS)
        raise InvalidValue(
            f"provider is {shown(name)}, which is reserved; use a name that is not {GLOBAL}, {PROVIDERS} or {TOTAL} "
            f"and begins with none of {prefixes}."
        )
    return PROVIDER_PREFIX + bare


def _own_group(name: str) -> str:
    check_own_groups([name])
    if name == TOTAL:
        raise InvalidValue(f"group is {shown(name)}, which is reserved for the total over all providers; use another.")
    return _provider_group(name) if name.startswith(PROVIDER_PREFIX) else name


def _mapping(field: str, given: object) -> Mapping[str, int]:
    if not isinstance(given, Mapping):
        raise InvalidValue(f"{field} is {shown(given)}; give limits by name, such as {{'ollama': 4}}.")
    return given


def _limit(field: str, slots: int) -> int:
    check_number(field, slots, 0)
    return slots


def _seconds(timeout: float) -> float | None:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise InvalidValue(f"timeout is {shown(timeout)}; use seconds of 0 or more (None waits without end).")
    return timeout if timeout < threading.TIMEOUT_MAX else None


def _name_in(variable: str) -> str:
    name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
    if name == GLOBAL:
        return name
    try:
        _provider_group(name)
    except InvalidValue as wrong:
        raise SettingsError(
            f"{variable} names no provider; the total is {ENVIRONMENT_PREFIX}{GLOBAL.upper()}, and any other "
            f"{ENVIRONMENT_PREFIX}<NAME> is a provider whose name is not reserved."
        ) from wrong
    return name


def _number_in(variable: str, text: str) -> int:
    digits = text.strip()
    if digits.isascii() and digits.isdigit() and len(digits) <= len(str(MAX_COUNT)) and int(digits) <= MAX_COUNT:
        return int(digits)
    raise SettingsError(f"{variable} is {shown(text)}; expected a whole number from 0 to {MAX_COUNT}.")
