"""Options that all commands share, and parsers for the values that people write."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import click

from qo.errors import InvalidPriority

F = TypeVar("F", bound=Callable[..., Any])

UNITS = {"": "seconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Target(NamedTuple):
    """The queue that a command works on, and whether it prints JSON. The settings decide where a value is None."""

    url: str | None
    namespace: str | None
    as_json: bool

    def overrides(self) -> dict[str, Any]:
        """The options as settings, which win over the file and the environment."""
        named = {"url": self.url, "namespace": self.namespace}
        return {"store": {key: value for key, value in named.items() if value is not None}}


def _with_store_options(function: F) -> F:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Answer with JSON on stdout, errors with JSON on stderr."),
        click.option("--namespace", metavar="NAME", help="The queue's namespace. Default: that of the settings."),
        click.option("--url", metavar="URL", help="The store. Default: QO_URL, .qo.toml, else sqlite:///qo.db."),
    ):
        function = option(function)
    return function


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --url, --namespace and --json; it receives them as its first argument, a `Target`."""

    @wraps(command)
    def with_target(*args: Any, url: str | None, namespace: str | None, as_json: bool, **options: Any) -> Any:
        before = click.get_current_context().find_root().params  # `qo --json jobs` means the same as `qo jobs --json`
        target = Target(
            url=url or before.get("url"),
            namespace=namespace or before.get("namespace"),
            as_json=as_json or before.get("as_json", False),
        )
        return command(target, *args, **options)

    return _with_store_options(with_target)


def store_options_of_all(group: Callable[..., Any]) -> Callable[..., Any]:
    """Accept the same options before the command's name; `store_options` reads them from there."""

    @wraps(group)
    def without_them(*, url: str | None, namespace: str | None, as_json: bool) -> Any:
        return group()

    return _with_store_options(without_them)


def server_settings(host: str | None, port: int | None) -> dict[str, Any]:
    """--host and --port as settings, as far as they were given."""
    named = {"host": host, "port": port}
    return {"server": {name: value for name, value in named.items() if value is not None}}


def by_option(command: F) -> F:
    """--by, for the audit trail."""
    return click.option(
        "--by",
        default=_user_name,
        metavar="NAME",
        help="Your name in the audit trail. Default: your login.",
    )(command)


def _user_name() -> str | None:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None  # a container's user may have a number and no name


# Types for click: each raises `BadParameter`, to which click adds the name of the parameter.


def priority(value: str) -> int:
    """A number or a name."""
    from qo.policy.ordering import parse_priority

    try:
        return parse_priority(int(value) if re.fullmatch(r"-?\d{1,9}", value, re.ASCII) else value)
    except InvalidPriority as error:
        raise click.BadParameter(str(error)) from None


def span(value: str) -> timedelta:
    """Seconds, or a number with its unit: 90, 1.5h."""
    parts = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhd]?)", value, re.ASCII)
    if parts is None:
        raise click.BadParameter(
            f"{value!r} is no span of time; write seconds, or a number with s, m, h or d: 90, 1.5h."
        )
    return timedelta(**{UNITS[parts[2]]: float(parts[1])})


def moment(value: str) -> datetime:
    """A date and time with its zone."""
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no time; write it like 2030-12-31T18:00:00Z.") from None
    if at.tzinfo is None:
        raise click.BadParameter(f"{value!r} has no time zone; write {value}Z for UTC, or {value}+02:00.")
    return at


def span_or_moment(value: str) -> timedelta | datetime:
    """A span, or a date and time with its zone."""
    return moment(value) if re.match(r"\d{4}-", value, re.ASCII) else span(value)
