"""How much a command logs, and in which form."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import click

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class LogChoice(NamedTuple):
    level: int = logging.INFO
    as_json: bool = False


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --log-level, --log-format and --quiet; it receives them as `log_choice`."""

    @wraps(command)
    def with_choice(*args: Any, log_level: str | None, log_format: str, quiet: bool, **options: Any) -> Any:
        if quiet and log_level is not None:
            raise click.UsageError(
                "--quiet and --log-level were both given; give one of them: --quiet is --log-level warning.",
                click.get_current_context(),
            )
        level = logging.WARNING if quiet else LEVELS[log_level or "info"]
        return command(*args, log_choice=LogChoice(level, log_format == "json"), **options)

    for option in (
        click.option("--quiet", is_flag=True, help="Log only warnings and errors."),
        click.option(
            "--log-format",
            type=click.Choice(["plain", "json"]),
            default="plain",
            show_default=True,
            help="Lines for people, or one JSON object a line (as --json does).",
        ),
        click.option("--log-level", type=click.Choice(list(LEVELS)), help="The least that is logged. Default: info."),
    ):
        with_choice = option(with_choice)
    return with_choice
