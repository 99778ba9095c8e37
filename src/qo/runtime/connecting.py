"""From a url and settings to a queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qo.runtime.queue import Queue
from qo.settings import Settings, load_settings
from qo.store.away import until_there
from qo.store.open import open_store


async def connect(
    url: str | None = None,
    *,
    namespace: str | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
) -> Queue:
    """Open the queue at a url; without one, at that of `.qo.toml` or `QO_URL`, else `sqlite:///qo.db`.

    `settings` is nested like the file and changes what it names, or are whole settings from `qo.settings`.
    Raises StoreAway when the store cannot be reached for now, after it has been tried for some seconds.
    """
    return await _connect(url, namespace=namespace, settings=settings, waits=False)


async def connect_when_there(settings: Settings | Mapping[str, Any] | None = None) -> Queue:
    """The same for a process that has nothing else to do: a store that is away is waited for, which the store logs.
    Wrong settings and wrong credentials are raised."""
    return await _connect(None, namespace=None, settings=settings, waits=True)


async def _connect(
    url: str | None, *, namespace: str | None, settings: Settings | Mapping[str, Any] | None, waits: bool
) -> Queue:
    chosen = settings if isinstance(settings, Settings) else load_settings(settings)
    store = await open_store(
        url or chosen.store.url,
        namespace=namespace or chosen.store.namespace,
        accept_eviction=chosen.store.accept_eviction,
        waits=waits,
    )
    queue = Queue(store, chosen)
    try:
        await (until_there(queue.apply_configured_limits) if waits else queue.apply_configured_limits())
    except BaseException:
        await queue.close()
        raise
    return queue
