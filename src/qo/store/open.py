"""From a url to a store. Each store's driver is imported only when its url is used."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from qo.errors import SettingsError
from qo.store.base import Store
from qo.store.values import Bounds

ALLOWED = "sqlite:///path/to/qo.db or memory://"


async def open_store(url: str, *, namespace: str = "default", bounds: Bounds | None = None) -> Store:
    """Open the store that a url names. Raises SettingsError for a url no store understands.

    A namespace other than "default" is a file of its own beside the named one: `qo.db` and `qo.team-a.db`.
    """
    from qo.store.sqlite import SQLiteStore

    parts = urlsplit(url)
    if parts.scheme == "memory" and not parts.netloc and not parts.path.strip("/"):
        return await SQLiteStore.open(":memory:", bounds=bounds)
    path = unquote(parts.path.removeprefix("/"))
    if parts.scheme != "sqlite" or parts.netloc or not path:
        raise SettingsError(f"store.url is {url!r}; use {ALLOWED}.")
    return await SQLiteStore.open(_in_namespace(path, namespace), bounds=bounds)


def _in_namespace(path: str, namespace: str) -> str:
    if namespace == "default":
        return path
    stem, dot, ending = path.rpartition(".")
    return f"{stem}.{namespace}.{ending}" if dot and "/" not in ending else f"{path}.{namespace}"
