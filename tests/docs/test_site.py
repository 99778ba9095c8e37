"""The site of the documentation: it builds without a network, its links work, and it speaks to users first."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import qo
from qo.service.app import ALL
from qo.service.openapi import document
from tests.docs.examples import DOCS, ROOT
from tools.site.building import INTERNALS, build, navigation
from tools.site.reference import pages as reference_pages

LISTED_BY_THEIR_OWN_PAGE = "decisions/"
FOR_USERS = [page for title, pages in navigation().items() if title != INTERNALS for page in pages]
# The rights of a server's user have to name a prefix, behind ~ or &.
OF_A_STORE = re.compile(r"\.lua\b|\bLua\b|(?<![~&])qo:\{|src/qo|\b(?:policy|store|worker|service|queue|limits)/\w+\.py")


def text_of(page: str) -> str:
    folder, _, name = page.partition("/")
    if folder == "reference":
        return reference_pages()[name]
    return (ROOT / "README.md" if page == "index.md" else DOCS / page).read_text()


def test_the_site_is_built_without_a_warning_and_no_link_of_it_is_broken(tmp_path: Path) -> None:
    assert build(tmp_path) == []

    built = {file.relative_to(tmp_path / "html").as_posix() for file in (tmp_path / "html").rglob("*.html")}
    assert {page.replace(".md", ".html") for pages in navigation().values() for page in pages} <= {
        name.replace("decisions/index.html", "decisions/README.html") for name in built
    }


def test_every_page_is_in_the_navigation_once() -> None:
    listed = [page for pages in navigation().values() for page in pages]
    written = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    expected = {page for page in written if not page.startswith(LISTED_BY_THEIR_OWN_PAGE)}
    expected |= {f"reference/{name}" for name in reference_pages()}

    assert sorted(set(listed)) == sorted(listed)
    assert expected - set(listed) == set()


@cache
def names_of_internal_classes() -> set[str]:
    """Classes of qo that no program can name and that the HTTP service does not show."""
    defined = {
        node.name
        for file in (ROOT / "src/qo").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    things = [getattr(qo, name) for name in qo.__all__]
    public = {*qo.__all__, *vars(qo.sync), *(thing.__name__ for thing in things if isinstance(thing, type))}
    shown = document(ALL).decode()
    return {name for name in defined - public if f'"{name}' not in shown}


@pytest.mark.parametrize("page", FOR_USERS)
def test_a_page_for_users_names_no_layout_no_source_file_and_no_internal_class(page: str) -> None:
    text = re.sub(r"`tests/[^`]*`", "", text_of(page))  # what shows a guarantee
    classes = {name for name in re.findall(r"`(?:qo\.)?([A-Z]\w+)`", text) if name in names_of_internal_classes()}

    assert OF_A_STORE.findall(text) == []
    assert classes == set()
