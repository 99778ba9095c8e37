"""From a url and settings to a queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qo.runtime.queue import Queue
from qo.settings import Settings, load_settings
from qo.store.open import open_store


async def connect(
    url: str | None = None,
    *,
    namespace: str | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
) -> Queue:
    """Open the queue at a url; without one, at that of `.qo.toml` or `QO_URL`, else `sqlite:///qo.db`.

    `settings` is nested like the file and changes what it names, or are whole settings from `qo.settings`.
    """
    chosen = settings if isinstance(settings, Settings) else load_settings(settings)
    return await open_queue(chosen, url=url, namespace=namespace)


async def open_queue(
    settings: Settings, *, url: str | None = None, namespace: str | None = None, create: bool = True
) -> Queue:
    """The same with whole settings. `create` False: raises NoStoreYet where nobody has made the store yet."""
    store = await open_store(
        url or settings.store.url,
        namespace=namespace or settings.store.namespace,
        accept_eviction=settings.store.accept_eviction,
        create=create,
    )
    return Queue(store, settings)
