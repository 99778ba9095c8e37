"""Groups whose commands are imported when they are called, so that help is quick."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """`commands_at` maps a command's name to its function (`module:attribute`) and its help in one line."""

    def __init__(self, *args: Any, commands_at: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._commands_at = commands_at

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._commands_at)  # in the order in which a newcomer needs them

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._commands_at:
            return None
        module, attribute = self._commands_at[cmd_name][0].split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self._commands_at and not args[0].startswith("-"):
            ctx.fail(unknown_command(args[0], list(self._commands_at)))
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands that begin so, and the group's own options. Nothing is imported for it, so that it is quick."""
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=help_line)
            for name, (_, help_line) in self._commands_at.items()
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in self._commands_at.items()])


class Group(click.Group):
    """A group whose commands are all in one file; help lists them in the order of that file."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands and not args[0].startswith("-"):
            ctx.fail(unknown_command(args[0], list(self.commands)))
        return super().resolve_command(ctx, args)


def unknown_command(name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    nearest = get_close_matches(name, known, n=1, cutoff=0.5)
    if nearest:
        return f"There is no command {name!r}. Did you mean {nearest[0]!r}?"
    return f"There is no command {name!r}; use one of {', '.join(known)}."
