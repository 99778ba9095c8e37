"""The way to PostgreSQL: connections, the migrations, and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlsplit

from qo.errors import HistoryAway, SettingsError

try:
    import asyncpg
    from asyncpg.connect_utils import SessionAttribute
except ImportError:
    raise SettingsError("The history needs the driver of PostgreSQL: pip install 'qo-queue[postgres]'.") from None

VERSION = 1
"""Of the schema. A migration of a higher number makes it higher."""
MIGRATIONS = "qo.history.migrations"
LOCK = 0x716F_6869_7374_6F72  # "qohistor": taken by whoever migrates
CONNECT_SECONDS = 10.0
COMMAND_SECONDS = 60.0
OTHER_SCHEMA, OTHER_NAMESPACE = "QO001", "QO002"
NEXT_HOST = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.TargetServerAttributeNotMatched,
)
WRONG_LOGIN = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)
NOT_MIGRATED = (
    asyncpg.UndefinedFunctionError,
    asyncpg.UndefinedTableError,
    asyncpg.InvalidSchemaNameError,
    asyncpg.InsufficientPrivilegeError,
)


async def connect(url: str, *, writes: bool = False, **driver: Any) -> asyncpg.Connection:
    """Of several hosts, the first that answers and is what `target_session_attrs` asks for. With `writes`, it is the
    first that can be written to.

    Raises `HistoryAway` while no server can be reached, and `SettingsError` where one refuses the login.
    """
    check_url(url)
    hosts = _hosts_of(url)
    with explained(url):
        for wanted in _wanted_attributes(url, writes=writes) if len(hosts) > 1 else (None,):
            for host in hosts:
                try:
                    # Each with a timeout of its own: the driver has one for all, and a silent host would use it up.
                    # Without a cache of statements, because PgBouncer hands every transaction to another connection.
                    return await asyncpg.connect(
                        host,
                        statement_cache_size=0,
                        timeout=CONNECT_SECONDS,
                        command_timeout=COMMAND_SECONDS,
                        target_session_attrs=wanted,
                        **driver,
                    )
                except NEXT_HOST as error:
                    last_error = error
                except ValueError as error:
                    raise SettingsError(_not_readable(url, error)) from None
        raise last_error


def _not_readable(url: str, error: ValueError) -> str:
    # The words of other errors may have a part of a password, where its special characters are not encoded.
    why = f": {str(error).splitlines()[0]}" if isinstance(error, asyncpg.ClientConfigurationError) else ""
    return (
        f"history.url cannot be read, the one of {location_of(url)}{why}. Use "
        "postgresql://user:password@host:5432/database, and write special characters as %40."
    )


def _hosts_of(url: str) -> list[str]:
    """The same url for each of its hosts."""
    parts = urlsplit(url)
    login, mark, hosts = parts.netloc.rpartition("@")
    if "," not in hosts:
        return [url]
    return [parts._replace(netloc=f"{login}{mark}{host}").geturl() for host in hosts.split(",")]


def _wanted_attributes(url: str, *, writes: bool) -> tuple[SessionAttribute | None, ...]:
    """What a server has to be, and what it may be if there is no such one."""
    if writes:
        return (SessionAttribute.read_write,)
    wanted = parse_qs(urlsplit(url).query).get("target_session_attrs")
    return (SessionAttribute.standby, SessionAttribute.any) if wanted == ["prefer-standby"] else (None,)


def check_url(url: str) -> None:
    if urlsplit(url).scheme not in ("postgresql", "postgres"):
        raise SettingsError(f"history.url is {location_of(url)!r}; use postgresql://user:password@host:5432/database.")


def location_of(url: str) -> str:
    """The address without user, password and options."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2].partition('?')[0]}" if mark else url.partition("?")[0]


@contextmanager
def explained(url: str) -> Iterator[None]:
    """Errors of the driver as those of qo. What the server says about the data itself is raised as it is."""
    where = location_of(url)
    try:
        yield
    except WRONG_LOGIN as error:
        raise SettingsError(f"PostgreSQL at {where} refuses the login of history.url: {error}.") from error
    except NOT_MIGRATED as error:
        raise SettingsError(
            f"The history at {where} is not ready for this role ({error}); let the owner of the database call "
            "`qo record --migrate --to URL`, and grant the role what docs/history.md names."
        ) from error
    except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.ProgramLimitExceededError):
        raise
    except asyncpg.PostgresError as error:
        if error.sqlstate in (OTHER_SCHEMA, OTHER_NAMESPACE):
            raise SettingsError(
                f"PostgreSQL at {where} says: {error}. Use another database, or the version of qo that made it."
            ) from error
        raise HistoryAway(where, error) from error
    except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        raise HistoryAway(where, error) from error


async def migrate(connection: asyncpg.Connection, *, keep_days: int) -> None:
    """Bring the schema to `VERSION`, however many try it at once. Needs the rights of the owner."""
    encoding = connection.get_settings().server_encoding
    if encoding != "UTF8":
        raise SettingsError(
            f"The database of history.url has the encoding {encoding}, which lacks letters that names may have; make "
            "one with CREATE DATABASE qo ENCODING 'UTF8' TEMPLATE template0."
        )
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
        await connection.execute("CREATE SCHEMA IF NOT EXISTS history")
        await connection.execute("CREATE TABLE IF NOT EXISTS history.migrations (version integer PRIMARY KEY)")
        present: int = await connection.fetchval("SELECT coalesce(max(version), 0) FROM history.migrations")
        if present > VERSION:
            raise SettingsError(
                f"The history was made by a newer qo (schema {present}, this one knows {VERSION}); upgrade qo."
            )
        for version, script in _migrations():
            if version > present:
                await connection.execute(script)
                await connection.execute("INSERT INTO history.migrations VALUES ($1)", version)
        changed = "UPDATE history.recorder SET keep_days = $1, kept_on = NULL WHERE keep_days <> $1"
        await connection.execute(changed, keep_days)


def _migrations() -> list[tuple[int, str]]:
    files = sorted(resources.files(MIGRATIONS).iterdir(), key=lambda file: file.name)
    return [(int(file.name[:4]), file.read_text(encoding="utf-8")) for file in files if file.name.endswith(".sql")]
