"""From a url to a store. Each store's driver is imported only when its url is used."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from qo.errors import SettingsError
from qo.store.base import Store
from qo.store.values import Bounds

ALLOWED = (
    "sqlite:///path/to/qo.db, memory://, redis://host:6379/0, rediss:// (with TLS), redis+sentinel://host/primary "
    "or unix:///path/to.sock"
)
REDIS_SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
BUCKET_SCHEMES = ("s3", "gs", "az")


async def open_store(
    url: str,
    *,
    namespace: str = "default",
    bounds: Bounds | None = None,
    accept_eviction: bool = False,
    create: bool = True,
) -> Store:
    """Open the store that a url names. Raises SettingsError for a url no store understands.

    A namespace is a set of keys of its own on Redis; of SQLite, one other than "default" is a file of its own beside
    the named one: `qo.db` and `qo.team-a.db`. `accept_eviction`: a Redis server that may throw jobs away when its
    memory is full is used all the same. `create` False: raises NoStoreYet where nobody has made the store yet.
    """
    if is_redis(url):
        from qo.store.redis import RedisStore

        return await RedisStore.open(
            url, namespace=namespace, bounds=bounds, accept_eviction=accept_eviction, create=create
        )
    if is_bucket(url):
        raise SettingsError(
            f"store.url names a bucket, which keeps slots and no jobs; use {ALLOWED} for jobs, and name the bucket as "
            "store under [concurrency], or with qo.ConcurrencyManager.open."
        )
    from qo.store.sqlite import SQLiteStore

    parts = urlsplit(url)
    if parts.scheme == "memory" and not parts.netloc and not parts.path.strip("/"):
        return await SQLiteStore.open(":memory:", bounds=bounds)
    path = unquote(parts.path.removeprefix("/"))
    if parts.scheme != "sqlite" or parts.netloc or not path:
        raise SettingsError(f"store.url is {url!r}; use {ALLOWED}.")
    return await SQLiteStore.open(_in_namespace(path, namespace), bounds=bounds, create=create)


def is_bucket(url: str) -> bool:
    """Whether it names object storage, which keeps slots and no jobs."""
    return url.partition("://")[0] in BUCKET_SCHEMES


def is_redis(url: str) -> bool:
    # Not by `urlsplit`, which refuses some passwords with a message that shows them.
    return url.partition("://")[0] in REDIS_SCHEMES


def _in_namespace(path: str, namespace: str) -> str:
    if namespace == "default":
        return path
    stem, dot, ending = path.rpartition(".")
    return f"{stem}.{namespace}.{ending}" if dot and "/" not in ending else f"{path}.{namespace}"
