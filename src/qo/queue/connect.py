"""From a url and settings to a queue."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qo.errors import SettingsError
from qo.policy.checks import check_name, shown
from qo.queue.queue import Queue
from qo.settings import Settings, load_settings
from qo.store.open import ALLOWED, open_store, url_of


async def connect(
    url: str | Path | None = None,
    *,
    namespace: str | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
) -> Queue:
    """Open the queue at a url; without one, at the url in `.qo.toml` or `QO_URL`, else at `sqlite:///qo.db`.

    A `Path` names an SQLite file. `settings` is a mapping nested like `.qo.toml` that changes the keys it names, or
    whole settings from `qo.settings`.
    Raises StoreAway when the store could not be reached for some seconds.
    """
    return await _connect(url, namespace=namespace, settings=settings, waits=False)


async def connect_when_there(settings: Settings | Mapping[str, Any] | None = None) -> Queue:
    """The same for a process that has nothing else to do: waits for a store that is away, and logs that it waits.
    Raises for wrong settings and wrong credentials."""
    return await _connect(None, namespace=None, settings=settings, waits=True)


async def _connect(
    url: str | Path | None, *, namespace: str | None, settings: Settings | Mapping[str, Any] | None, waits: bool
) -> Queue:
    if settings is not None and not isinstance(settings, Settings | Mapping):
        raise SettingsError(f"settings is {shown(settings)}; give a mapping such as {{'queue': {{'cap': 5}}}}.")
    chosen = settings if isinstance(settings, Settings) else load_settings(settings)
    if namespace is not None:
        check_name("namespace", namespace)
    checked = None if url is None else _checked_url(url)
    return await open_queue(chosen, url=checked, namespace=namespace, waits=waits)


async def open_queue(
    settings: Settings,
    *,
    url: str | None = None,
    namespace: str | None = None,
    create: bool = True,
    waits: bool = False,
) -> Queue:
    """The same with whole settings. Without `create`, raises NoStoreYet where there is no store yet."""
    store = await open_store(
        settings.store.url if url is None else url,
        namespace=settings.store.namespace if namespace is None else namespace,
        accept_eviction=settings.store.accept_eviction,
        create=create,
        waits=waits,
    )
    return Queue(store, settings)


def _checked_url(url: str | Path) -> str:
    if isinstance(url, Path):
        return url_of(url)
    if not isinstance(url, str) or not url:
        raise SettingsError(f"url is {shown(url)}; use {ALLOWED}, or the Path of an SQLite file.")
    return url
