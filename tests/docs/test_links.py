"""Links in the documents lead somewhere, and the glossary defines each word once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
WORD = re.compile(r"^### (.+)$", re.MULTILINE)
# fmt: off
WORDS = [
    "job", "task", "group", "limit", "paused", "slot", "lease", "holder", "token", "line",
    "place", "position", "priority", "boost", "tier", "quota", "cap", "phase", "parent", "stage",
    "iteration", "attempt", "caller", "ticket", "capacity", "parked", "ready", "open", "gate", "portion",
    "bounds", "feed", "event", "lane", "turn", "suspect", "outbox",
]
# fmt: on


def without_code(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, made as GitHub makes them."""
    titles = HEADING.findall(without_code(page))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_resolves(page: Path) -> None:
    broken = []
    for link in LINK.findall(without_code(page)):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)

    assert broken == []


def test_the_glossary_defines_each_word_once() -> None:
    defined = WORD.findall((ROOT / "docs/glossary.md").read_text())

    assert sorted(defined) == sorted(WORDS)


def test_every_word_of_the_glossary_has_a_definition() -> None:
    sections = re.split(r"^### .+$", (ROOT / "docs/glossary.md").read_text(), flags=re.MULTILINE)[1:]

    for word, text in zip(WORD.findall((ROOT / "docs/glossary.md").read_text()), sections, strict=True):
        definition = text.partition("\n##")[0].strip()
        assert re.fullmatch(r"[A-Z].*[.)]", definition), word
