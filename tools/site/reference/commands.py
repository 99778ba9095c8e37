"""Every command of `qo`, with its arguments and options."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from qo.cli.main import EPILOG, qo
from tools.site.reference.text import code, heading, paragraphs, table

SHARED = ("--url", "--namespace", "--json", "--help")
FIRST = """\
`qo --help` lists the commands, `qo COMMAND --help` describes one. These options are understood by every command,
before or behind its name:"""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that people can call, by its whole name."""
    yield from _below("qo", qo)


def _below(name: str, group: click.Group) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _below(f"{name} {each}", command)
        else:
            yield f"{name} {each}", command


def page() -> str:
    parts = ["# Commands", FIRST, _options(qo, shared=True)]
    for name, command in commands():
        parts += [heading(2, code(name), name), f"```text\n{_usage(name, command)}\n```", _help(command)]
        parts += [_options(command, shared=False)]
    codes = inspect.cleandoc(EPILOG.partition("Exit codes:\n")[2].partition("\n\n")[0])
    return paragraphs([*parts, "## Exit codes", f"```text\n{codes}\n```"])


def _usage(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name)
    return f"{name} {' '.join(command.collect_usage_pieces(context))}"


def _help(command: click.Command) -> str:
    """The command's own words. A paragraph that keeps its lines is marked with \\b."""
    parts = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(f"```text\n{part[1:].strip()}\n```" if part.startswith("\b") else part for part in parts)


def _options(command: click.Command, *, shared: bool) -> str:
    context = click.Context(command)
    rows = []
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is None or (record[0].split()[0].rstrip(",") in SHARED) != shared:
            continue
        rows.append((code(record[0]), record[1]))
    return table(["option", "means"], rows)
