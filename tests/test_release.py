"""What a release promises: its version, its notes, and names that can be installed as they are printed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import qo

ROOT = Path(__file__).parents[1]
SEMANTIC_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?")
RELEASE = re.compile(r"^## \[([^\]]+)\](?: - (\d{4}-\d\d-\d\d|not released yet))?$", re.MULTILINE)
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
EXTRAS = re.compile(r"\bqo-queue\[([a-z0-9,]+)\]")
IMPORT_NAME_WITH_EXTRA = re.compile(r"\bqo\[[a-z]")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def releases() -> list[str]:
    return [version for version, _ in RELEASE.findall((ROOT / "CHANGELOG.md").read_text())]


def texts_for_users() -> Iterator[tuple[Path, str]]:
    for path in (*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"):
        yield path, path.read_text()


def test_the_version_is_a_semantic_one() -> None:
    assert SEMANTIC_VERSION.fullmatch(qo.__version__)


def test_the_changelog_has_the_unreleased_changes_first_then_each_version_newest_first() -> None:
    first, *versions = releases()
    numbers = [tuple(map(int, version.partition("-")[0].split("."))) for version in versions]

    assert first == "Unreleased"
    assert qo.__version__ == versions[0]
    assert numbers == sorted(numbers, reverse=True)
    assert all(SEMANTIC_VERSION.fullmatch(version) for version in versions)


def test_the_changelog_sorts_changes_into_the_usual_kinds() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()

    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= KINDS


def test_every_version_has_its_notes_for_those_who_upgrade() -> None:
    notes = (ROOT / "docs/upgrading.md").read_text()

    assert [version for version in releases()[1:] if f"\n## {version}\n" not in notes] == []


def test_every_installation_that_a_text_names_can_be_made_as_it_is_printed(project: dict[str, Any]) -> None:
    extras, wrong, named = project["optional-dependencies"], [], set()
    for path, text in texts_for_users():
        found = {extra for each in EXTRAS.findall(text) for extra in each.split(",")}
        named |= found
        wrong += [(path.name, extra) for extra in found if extra not in extras]
        wrong += [(path.name, each) for each in IMPORT_NAME_WITH_EXTRA.findall(text)]

    assert project["name"] == "qo-queue"
    assert {"redis", "s3", "server"} <= named
    assert wrong == []


def test_the_command_is_also_there_under_the_name_of_the_distribution(project: dict[str, Any]) -> None:
    assert project["scripts"]["qo"] == project["scripts"][project["name"]]
