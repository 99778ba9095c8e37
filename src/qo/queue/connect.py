"""From a url and settings to a queue."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qo.clock import Clock
from qo.errors import InvalidValue, SettingsError
from qo.loops.system import SYSTEM, System
from qo.policy.checks import check_name, check_seconds, shown
from qo.queue.queue import Queue
from qo.settings import Settings, load_settings
from qo.store.open import ALLOWED, open_store, url_of

TIMEOUT_SECONDS = 10.0


async def connect(
    url: str | Path | None = None,
    *,
    namespace: str | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
    timeout: float = TIMEOUT_SECONDS,
    clock: Clock | None = None,
) -> Queue:
    """Open the queue at a url; without one, at the url in `.qo.toml` or `QO_URL`, else at `sqlite:///qo.db`.

    A `Path` names an SQLite file. `settings` is a mapping nested like `.qo.toml` that changes the keys it names, or
    whole settings from `qo.settings`.
    `timeout` is how many seconds this call, and each later one on the queue, waits for a store that is away or, of
    SQLite, that another process keeps locked; then it raises StoreAway. Web requests want fewer than 10 seconds.
    `clock` is one that a test sets, for `memory://` and SQLite files.
    """
    check_seconds("timeout", timeout)
    if clock is not None and not isinstance(clock, Clock):
        raise InvalidValue(f"clock is {shown(clock)}; give a qo.Clock, which a test moves forward.")
    return await _connect(
        url, namespace=namespace, settings=settings, waits=False, timeout_seconds=timeout, clock=clock
    )


async def connect_when_there(
    settings: Settings | Mapping[str, Any] | None = None, *, timeout_seconds: float | None = None
) -> Queue:
    """The same for a process that has nothing else to do: waits for a store that is away, and logs that it waits.
    Later calls wait `timeout_seconds`, or as long as the store's own timeout. Raises for wrong settings and wrong
    credentials."""
    return await _connect(None, namespace=None, settings=settings, waits=True, timeout_seconds=timeout_seconds)


async def _connect(
    url: str | Path | None,
    *,
    namespace: str | None,
    settings: Settings | Mapping[str, Any] | None,
    waits: bool,
    timeout_seconds: float | None,
    clock: Clock | None = None,
) -> Queue:
    if settings is not None and not isinstance(settings, Settings | Mapping):
        raise SettingsError(f"settings is {shown(settings)}; give a mapping such as {{'queue': {{'cap': 5}}}}.")
    chosen = settings if isinstance(settings, Settings) else load_settings(settings)
    if namespace is not None:
        check_name("namespace", namespace)
    checked = None if url is None else _checked_url(url)
    return await open_queue(
        chosen, url=checked, namespace=namespace, waits=waits, timeout_seconds=timeout_seconds, clock=clock
    )


async def open_queue(
    settings: Settings,
    *,
    url: str | None = None,
    namespace: str | None = None,
    create: bool = True,
    waits: bool = False,
    timeout_seconds: float | None = None,
    clock: Clock | None = None,
) -> Queue:
    """The same with whole settings. Without `create`, raises NoStoreYet where there is no store yet. Without a timeout,
    the store's own holds."""
    store = await open_store(
        settings.store.url if url is None else url,
        namespace=settings.store.namespace if namespace is None else namespace,
        accept_eviction=settings.store.accept_eviction,
        create=create,
        waits=waits,
        timeout_seconds=timeout_seconds,
        clock=clock,
    )
    return Queue(store, settings, system=SYSTEM if clock is None else System(clock=clock))


def _checked_url(url: str | Path) -> str:
    if isinstance(url, Path):
        return url_of(url)
    if not isinstance(url, str) or not url:
        raise SettingsError(f"url is {shown(url)}; use {ALLOWED}, or the Path of an SQLite file.")
    return url
