"""Slots without a queue: no more than 4 calls of one provider and 12 of all at once, across threads and tasks."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from qo.errors import InvalidValue
from qo.job import NORMAL
from qo.limits.block import Block, BlockInProcess, Slots
from qo.limits.in_process.slots import SlotsInProcess
from qo.limits.metrics import PROVIDER_PREFIX, LimiterMetrics, Sample, metrics_of, samples_of
from qo.limits.names import check_limit, check_mapping, check_timeout, limits_in, own_group, provider_group
from qo.policy.checks import check_flag, check_group_count, shown
from qo.policy.groups import GLOBAL, PROVIDERS
from qo.policy.ordering import parse_priority
from qo.settings import load_settings

if TYPE_CHECKING:
    from qo.limits.collector import LimiterCollector
    from qo.queue.queue import Queue

log = logging.getLogger("qo.limiter")

REMEMBERED_AT_MOST = 1000
"""How many names, and sets of names, are remembered as checked."""
NOTHING: Mapping[str, int] = MappingProxyType({})


class BlockingQueue(Protocol):
    """A queue of `qo.sync.connect`."""

    asynchronous: Queue


class Limiter:
    """At most so many at once: of each provider, of all providers together, and of any group of your own.

        limiter = qo.Limiter({"ollama": 4, "gemini": 8}, total=12)

        with limiter.acquire("ollama"):                 # in threads
            ...
        async with limiter.acquire("gemini") as lease:  # in tasks, on the same limiter
            ...

    One limiter serves all threads and event loops of a process. A caller gets a slot in all of its groups or in none,
    and holds nothing while it waits. Waiting callers are served in order of priority, then first come first. A
    caller that is blocked by one group does not block those behind it that need other groups. A caller that needs
    several busy groups is passed by callers of only one of them. Passed 8 times, it has its turn: free slots of its
    groups are kept for it.

    A limit of 0 lets no caller in until it is raised. Without a limit, a provider takes only a slot of the total.
    Like a lock, a slot is not shared with blocks inside its block: acquiring the same provider twice takes two slots.
    """

    def __init__(
        self,
        limits: Mapping[str, int] = NOTHING,
        total: int | None = None,
        *,
        groups: Mapping[str, int] = NOTHING,
        queue: Queue | BlockingQueue | None = None,
        strict: bool = False,
    ) -> None:
        """`limits` are those of providers, `groups` those of your own groups. Raises `InvalidValue`.

        A `strict` limiter refuses providers and groups to which it was given no limit, so that a misspelt name is an
        error and not a call without a limit.

        With a `queue`, of `qo.connect` or `qo.sync.connect`, the slots are those that its jobs use, and all processes
        on its store share them. The limits are set on the store when a caller enters. Limits of an operator, of the
        configuration and of tiers win over them. Close such a limiter before its queue.
        """
        self._slots: Slots[Any] | SlotsInProcess = SlotsInProcess() if queue is None else _slots_on(queue)
        self._block: type[Block] = BlockInProcess if queue is None else Block
        check_flag("strict", strict)
        self._strict = strict
        self._limits: dict[str, int | None] = {}
        self._checked: dict[object, tuple[str, ...]] = {}
        for name, slots in check_mapping("limits", limits).items():
            self._limits[provider_group(name)] = check_limit(f"limit of provider {shown(name)}", slots)
        for name, slots in check_mapping("groups", groups).items():
            self._limits[own_group(name)] = check_limit(f"limit of group {shown(name)}", slots)
        if total is not None:
            self._limits[PROVIDERS] = check_limit("total", total)
        for group, limit in self._limits.items():
            self._slots.set_limit(group, limit)
        self._warn_of_small_total(self._limits)

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        queue: Queue | BlockingQueue | None = None,
        strict: bool = False,
    ) -> Limiter:
        """Limits from `LLM_MAX_CONCURRENCY_<PROVIDER>`, the total from `LLM_MAX_CONCURRENCY_GLOBAL`.

        What is unset or empty is 4 for OLLAMA, 8 for GEMINI, 10 for OPENAI, 8 for DEEPSEEK, 12 for GLOBAL
        (`[limiter.env_defaults]` in `.qo.toml`). Raises `SettingsError`, which names the variable.
        """
        environ = os.environ if environ is None else environ
        if not isinstance(environ, Mapping):
            raise InvalidValue(f"environ is {shown(environ)}; give a mapping such as os.environ.")
        limits = dict(load_settings(environ=environ).limiter.env_defaults)
        limits |= limits_in(environ)
        total = limits.pop(GLOBAL, None)
        return cls(limits, total, queue=queue, strict=strict)

    def acquire(
        self,
        provider: str | None = None,
        *,
        groups: Iterable[str] | None = None,
        timeout: float | None = None,
        priority: int | str | None = None,
    ) -> Block:
        """A block to enter once, by `with` or `async with`: it waits for the slots, and gives them back at the end.

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
            timeout = check_timeout(timeout)
        return self._block(self._slots, wanted, timeout, NORMAL if priority is None else parse_priority(priority))

    def set_limit(self, provider: str, slots: int | None) -> None:
        """Change a provider's limit while it is in use; None removes it.

        A higher limit lets waiting callers in at once. A lower one lets holders finish, and no caller in until there
        is room.
        """
        group = provider_group(provider)
        self._set_limit(group, None if slots is None else check_limit(f"limit of provider {shown(provider)}", slots))

    def set_group_limit(self, group: str, slots: int | None) -> None:
        """The same for a group of your own."""
        own = own_group(group)
        self._set_limit(own, None if slots is None else check_limit(f"limit of group {shown(group)}", slots))

    def set_total(self, slots: int | None) -> None:
        """The same for the total over all providers."""
        self._set_limit(PROVIDERS, None if slots is None else check_limit("total", slots))

    def get_metrics(self) -> LimiterMetrics:
        """How it stands now, and how it went since the limiter was made:

            {"in_flight": {"ollama": 3, "gemini": 2, "total": 5}, "blocked_requests": 12,
             "avg_block_time_seconds": 0.45, "longest_wait_seconds": 2.1,
             "blocked_by": {"ollama": 9, "total": 3}, "waiting": {"ollama": 1, "total": 0},
             "limits": {"ollama": 4, "gemini": 8, "global": 12}}

        Groups of your own stand beside the providers. A request is blocked if it had to wait, and is counted once,
        by the group that was full when it came. `waiting` counts the callers that wait now, by the group that is full;
        it and `blocked_by` list the groups that have made a caller wait. The average is over waits that have ended,
        however they ended; the longest wait may still go on. A name that is not listed counts 0.
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
        from qo.limits.collector import LimiterCollector  # needs prometheus_client

        return LimiterCollector([], {(): self.samples})

    @staticmethod
    def collector_of(limiters: Mapping[str, Limiter]) -> LimiterCollector:
        """The same for several limiters, whose numbers have the names given here as the label `limiter`."""
        from qo.limits.collector import LimiterCollector

        if not isinstance(limiters, Mapping) or not all(
            isinstance(name, str) and isinstance(limiter, Limiter) for name, limiter in limiters.items()
        ):
            raise InvalidValue(f"limiters is {shown(limiters)}; give limiters by name, such as {{'chat': limiter}}.")
        return LimiterCollector(["limiter"], {(name,): limiter.samples for name, limiter in limiters.items()})

    def close(self) -> None:
        """End the thread of a limiter on a queue, which renews its leases. Waiting callers get an error and leave the
        line; slots that are still held are free when their leases run out."""
        self._slots.close()

    def _set_limit(self, group: str, slots: int | None) -> None:
        self._slots.set_limit(group, slots)
        self._limits[group] = slots
        if self._strict:
            self._checked.clear()  # a name that had a limit may have none now
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
        return self._remember(provider, (provider_group(provider), PROVIDERS))

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
        wanted = dict.fromkeys(own_group(name) for name in named)
        if any(group.startswith(PROVIDER_PREFIX) for group in wanted):
            wanted[PROVIDERS] = None  # the total counts every call of a provider, however it is named
        check_group_count("groups", tuple(wanted))
        return self._remember(named, tuple(wanted))

    def _remember(self, named: object, wanted: tuple[str, ...]) -> tuple[str, ...]:
        if self._strict:
            self._check_limited(wanted)
        if len(self._checked) >= REMEMBERED_AT_MOST:
            self._checked.clear()
        self._checked[named] = wanted
        return wanted

    def _check_limited(self, wanted: tuple[str, ...]) -> None:
        limited = [group for group, limit in self._limits.items() if limit is not None and group != PROVIDERS]
        for group in wanted:
            if group not in limited and group != PROVIDERS:
                kind = "provider" if group.startswith(PROVIDER_PREFIX) else "group"
                named = ", ".join(sorted(each.removeprefix(PROVIDER_PREFIX) for each in limited))
                raise InvalidValue(
                    f"{kind} is {shown(group.removeprefix(PROVIDER_PREFIX))}, for which this strict limiter has no "
                    f"limit; it has limits for {named or 'nothing'}. Correct the name, or give it a limit."
                )


def _slots_on(queue: Queue | BlockingQueue) -> Slots[Any]:
    from qo.limits.on_store.slots import SlotsOnStore  # not needed in process
    from qo.queue.queue import check_queue

    asynchronous: Any = getattr(queue, "asynchronous", queue)
    check_queue(asynchronous)
    return SlotsOnStore(asynchronous)
