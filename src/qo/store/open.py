"""From a url to a store. Each store's driver is imported only when its url is used."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote

from qo.clock import Clock
from qo.errors import SettingsError
from qo.store.contract import Store
from qo.store.namespaces import encoded_namespace
from qo.values import Bounds

ALLOWED = (
    "sqlite:///path/to/qo.db, memory://, redis://host:6379/0, rediss:// (with TLS), redis+sentinel://host/primary "
    "or unix:///path/to.sock"
)
REDIS_SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
BUCKET_SCHEMES = ("s3", "gs", "az")
SQLITE = "sqlite:///"
LONGEST_NAME_IN_A_PATH = 150
"""so that the name of the file, which has more parts, stays below the 255 bytes that file systems allow"""


async def open_store(
    url: str,
    *,
    namespace: str = "default",
    bounds: Bounds | None = None,
    accept_eviction: bool = False,
    create: bool = True,
    waits: bool = False,
    timeout_seconds: float | None = None,
    clock: Clock | None = None,
) -> Store:
    """Open the store that a url names. Raises SettingsError for a url no store understands.

    A namespace is a set of keys of its own on Redis; of SQLite, one other than "default" is a file of its own beside
    the named one: `qo.db` and `qo.team-a.db`. What could be more than a name there is percent-encoded.
    `accept_eviction`: a Redis server that may throw jobs away when its memory is full is used all the same.
    `create` False: raises NoStoreYet where nobody has made the store yet. `waits`: for a store that is away until it is
    there, which the store logs. `timeout_seconds`: how long a call waits for a store that is away, or for the lock of
    a file; without it, the store's own time holds. `clock`: one that a test sets, and that decides about time.
    """
    # The derived methods of a store return a Coroutine, where pyright expects the CoroutineType of an `async def`.
    if is_redis(url):
        if clock is not None:
            raise SettingsError(
                "clock is for tests on memory:// and SQLite files; a Redis server goes by its own time, so connect "
                "without one."
            )
        from qo.store.redis import RedisStore

        return await RedisStore.open(  # pyright: ignore[reportReturnType]
            url,
            namespace=namespace,
            bounds=bounds,
            accept_eviction=accept_eviction,
            create=create,
            waits=waits,
            patience_seconds=timeout_seconds,
        )
    if is_bucket(url):
        raise SettingsError(
            f"store.url names a bucket, which keeps slots and no jobs; use {ALLOWED} for jobs, and name the bucket as "
            "store under [concurrency], or with qo.ConcurrencyManager.open."
        )
    from qo.store.sqlite import ClockedSQLiteStore, SQLiteStore

    kind = SQLiteStore if clock is None else ClockedSQLiteStore
    if url.rstrip("/") == "memory:" and url != "memory:":
        opened = await kind.open(":memory:", bounds=bounds)
    else:
        path = _in_namespace(_path_in(url), namespace)
        opened = await kind.open(path, bounds=bounds, create=create, waits=waits, busy_seconds=timeout_seconds)
    opened.clock = clock
    return opened  # pyright: ignore[reportReturnType]


def url_of(path: Path) -> str:
    """Of an SQLite file."""
    return SQLITE + quote(str(path))


def sqlite_file(url: str, *, namespace: str) -> str | None:
    """The file of this namespace; None where the store is no file."""
    return _in_namespace(_path_in(url), namespace) if url.startswith(SQLITE) else None


def is_bucket(url: str) -> bool:
    """Whether it names object storage, which keeps slots and no jobs."""
    return url.partition("://")[0] in BUCKET_SCHEMES


def is_redis(url: str) -> bool:
    # Not by `urlsplit`, which refuses some passwords with a message that shows them.
    return url.partition("://")[0] in REDIS_SCHEMES


def _in_namespace(path: str, namespace: str) -> str:
    if namespace == "default":
        return path
    name = encoded_namespace(namespace)
    if len(name) > LONGEST_NAME_IN_A_PATH:
        raise SettingsError(
            f"store.namespace is {namespace!r}, which is too long for the name of a file; use at most "
            f"{LONGEST_NAME_IN_A_PATH} plain letters and digits."
        )
    stem, dot, ending = path.rpartition(".")
    return f"{stem}.{name}.{ending}" if dot and "/" not in ending else f"{path}.{name}"


def _path_in(url: str) -> str:
    """The file that a url of SQLite names. Raises SettingsError that says how to write it."""
    if url.startswith(SQLITE) and not any(mark in url for mark in "?#") and url != SQLITE:
        return unquote(url.removeprefix(SQLITE))
    if url.startswith(SQLITE) and url != SQLITE:
        raise SettingsError(
            f"store.url is {url!r}; a file's path has no options, and its ? and # are written as %3F and %23."
        )
    if url.startswith("sqlite:") and (path := url.removeprefix("sqlite:").lstrip("/")):
        raise SettingsError(
            f"store.url is {url!r}; write {SQLITE}{path} for a file in the working directory, "
            f"or {SQLITE}/{path} for the absolute path /{path}."
        )
    raise SettingsError(f"store.url is {_without_password(url)!r}; use {ALLOWED}.")


def _without_password(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}" if mark else url
