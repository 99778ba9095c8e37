"""Every `qo …` that a page shows, in a line of a shell or in a sentence, is a command with options that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from qo.cli.main import qo
from tests.docs.examples import PAGES, name_of

FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
IN_A_SENTENCE = re.compile(r"`(qo [^`\n]+)`")
CALL = re.compile(r"^(qo [a-z].*?)(?:\s+#.*|\s*&)?$", re.MULTILINE)
EVERYWHERE = {"--url", "--namespace", "--json", "--help", "--version"}


def calls_on(page: Path) -> list[str]:
    text = page.read_text()
    in_shells = [call for kind, block in FENCED.findall(text) if kind in ("", "sh") for call in CALL.findall(block)]
    return [*in_shells, *IN_A_SENTENCE.findall(FENCED.sub("", text))]


def wrong_with(call: str) -> str | None:
    """What of a call does not exist. Words that stand for something, and what follows an ellipsis, are let through."""
    words = shlex.split(call.split("…")[0].split("|")[0], posix=False)[1:]
    command: click.Command = qo
    context = click.Context(qo)
    known = set(EVERYWHERE)
    for word in words:
        if word.startswith("--"):
            if word.partition("=")[0] not in known:
                return f"{word} of {call!r}"
        elif isinstance(command, click.Group):
            found = command.get_command(context, word)
            if found is None:
                return f"{word} of {call!r}"
            command = found
            known |= {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    return None


@pytest.mark.parametrize("page", [page for page in PAGES if calls_on(page)], ids=name_of)
def test_every_command_of_a_page_exists_with_its_options(page: Path) -> None:
    assert [wrong for call in calls_on(page) if (wrong := wrong_with(call))] == []
