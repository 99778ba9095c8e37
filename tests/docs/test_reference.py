"""The reference has an entry for everything that a user can name, and every entry says something."""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import qo
import qo.event
from qo.meanings import MEANINGS
from qo.service.app import ALL
from qo.settings import PURPOSES
from tools.site.reference import pages
from tools.site.reference.commands import commands
from tools.site.reference.docstrings import class_attributes
from tools.site.reference.events import described, detail_of
from tools.site.reference.python import FOR_QO_ITSELF, methods, public_names
from tools.site.reference.text import anchor

PAGES = pages()
ANCHORS = {found for text in PAGES.values() for found in re.findall(r"\{ #(\S+) \}$", text, re.MULTILINE)}


def entries() -> Iterator[tuple[str, Any]]:
    """Every public name and call, with what it is."""
    for module in (qo, qo.sync):
        for name in public_names(module):
            thing = getattr(module, name)
            if inspect.ismodule(thing):
                continue
            yield f"{module.__name__}.{name}", thing
            if inspect.isclass(thing) and not issubclass(thing, BaseException | enum.Enum):
                for method, function in methods(thing):
                    yield f"{module.__name__}.{name}.{method}", function


def test_every_public_name_and_call_has_an_entry() -> None:
    names = [name for name, _ in entries()]

    assert len(names) > 150
    assert [name for name in names if anchor(name) not in ANCHORS] == []


def test_every_public_class_and_call_has_a_docstring() -> None:
    """What msgspec or an enumeration says of itself does not count."""
    without = [
        name
        for name, thing in entries()
        if (inspect.isclass(thing) and not thing.__dict__.get("__doc__"))
        or (inspect.isroutine(thing) and not inspect.getdoc(thing))
    ]

    assert without == []


def test_every_name_that_is_left_out_exists() -> None:
    assert [name for name in FOR_QO_ITSELF if name.startswith("Queue.") and not hasattr(qo.Queue, name[6:])] == []


@pytest.mark.parametrize("kind", [name for name in qo.__all__ if name[0].isupper()])
def test_every_field_of_a_value_has_a_row(kind: str) -> None:
    thing = getattr(qo, kind)
    if isinstance(thing, type) and issubclass(thing, msgspec.Struct):
        section = section_of(f"qo.{kind}")
        public = [field.name for field in msgspec.structs.fields(thing) if not field.name.startswith("_")]

        assert [name for name in public if f"| `{name}` |" not in section] == []


def test_every_field_and_attribute_is_explained() -> None:
    """No row of a table of fields, members or attributes has an empty last cell."""
    pages = {name: text for name, text in PAGES.items() if name not in ("commands.md", "http.md")}
    empty = re.compile(r"^\|.*\|  \|$", re.MULTILINE)

    assert [(name, row) for name, text in pages.items() for row in empty.findall(text)] == []


def test_the_variables_of_an_error_are_not_among_its_attributes() -> None:
    assert list(class_attributes(qo.QueueFull)) == ["is_guess", "waiting", "cap", "retry_after"]


def section_of(name: str) -> str:
    """The text below the heading of a name."""
    others = ("commands.md", "http.md")  # `qo job` is a command
    (found,) = [text for page, text in PAGES.items() if f"{{ #{anchor(name)} }}\n" in text and page not in others]
    return found.partition(f"{{ #{anchor(name)} }}\n")[2].partition("\n## ")[0]


def test_every_error_names_its_attributes_and_its_status() -> None:
    error = qo.QueueFull(100, 100, qo.Retry(after=60).after or pytest.fail("a span"))
    section = section_of("qo.QueueFull")

    assert [name for name in vars(error) if f"| `{name}` |" not in section] == []
    assert all(f"Over HTTP: {MEANINGS[kind].status}" in section_of(f"qo.{kind.__name__}") for kind in MEANINGS)


def test_every_setting_has_a_row_and_a_variable() -> None:
    page = PAGES["settings.md"]

    for path in PURPOSES:
        section, key = path.split(".")
        variable = f"QO_{'TIERS__<NAME>' if section == 'tiers' else section.upper()}__{key.upper()}"
        assert f"| `{key}` |" in page, path
        assert f"`{'QO_URL' if path == 'store.url' else variable}" in page, path


def test_every_command_has_an_entry_with_its_options() -> None:
    page = PAGES["commands.md"]

    assert len(list(commands())) > 20
    for name, command in commands():
        section = page.partition(f"{{ #{anchor(name)} }}\n")[2].partition("\n## ")[0]
        assert f"```text\n{name}" in section
        shown = [option for each in command.params if not getattr(each, "hidden", False) for option in each.opts[:1]]
        assert [option for option in shown if option.startswith("--") and option not in section + page[:800]] == []


def test_every_route_has_an_entry() -> None:
    assert [each.path for each in ALL if f"`{each.method} {each.path}`" not in PAGES["http.md"]] == []


def test_every_kind_of_event_is_described_with_its_detail() -> None:
    kinds = described()

    assert [kind for kind, text in kinds.items() if "Detail:" not in text] == []
    assert {str(state) for state in qo.State} | {qo.event.TURN, qo.event.POSITION} <= set(kinds)


async def test_the_events_of_real_jobs_have_no_other_detail_than_the_reference_says() -> None:
    async with await qo.connect("memory://", settings={"retries": {"first_delay_secs": 0}}) as queue:
        await stage_events(queue)
        feed = await queue.store.events(0, limit=1000)
        watched = [event async for event in queue.watch("staged")]

    kinds = described()
    assert {event.kind for event in feed.events} >= set(kinds) - NOT_STAGED
    for event in (*feed.events, *(each for each in watched if "present" not in each.detail)):
        assert set(event.detail) <= detail_of(kinds[event.kind]), event


NOT_STAGED = {"aged", "cancel_wanted", "granted", "lease_lost", "position", "rescheduled", "turn"}
"""Kinds of events that need time, a race or a second process."""


async def stage_events(queue: qo.Queue) -> None:
    worker = qo.Worker(queue)

    @worker.task("staged", stages=("one", "two"))
    async def staged(data: None, ctx: qo.Context) -> None:
        async for number in ctx.iterations():
            await ctx.stage("one", "begins")
            await ctx.progress(1, 2, "half")
            await ctx.stage("two")
            if number == 3:
                return

    @worker.task("broken", max_attempts=2)
    async def broken() -> None:
        raise ValueError

    await queue.submit("staged", id="staged", user="ada", tier="bootstrapper")
    await queue.submit("broken", id="broken")
    await queue.submit("later", id="later", delay=3600)
    await queue.submit("second", parent="p", phase=2)
    await queue.submit("other", id="other")
    await queue.set_priority("other", "low", by="ops")
    await queue.move("other", before="staged", by="ops")
    await queue.cancel("other")
    await queue.set_limit("gpu", 2)
    await queue.pause("gpu")
    await queue.resume("gpu")
    await queue.set_tier("ada", "partner", by="ops")
    await worker.run_until_idle()
    while (await queue.get("staged")).state is qo.State.CONFIRMING:
        await queue.confirm("staged")
        await worker.run_until_idle()
    await queue.wait("staged", timeout=60)
    await queue.wait("broken", timeout=60)
