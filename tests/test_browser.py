"""Finding a Chromium: the system's first, then playwright's own, and else advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser import NAMES, NoBrowser, find_chromium


def made_executable(path: Path) -> Path:
    path.touch(mode=0o755)
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_a_chromium_on_path_comes_before_that_of_playwright(folder: Path, name: str) -> None:
    of_the_system = made_executable(folder / name)
    of_playwright = made_executable(folder / "chrome")

    assert find_chromium(of_playwright) == str(of_the_system)


def test_that_of_playwright_is_used_where_path_has_none(folder: Path) -> None:
    of_playwright = made_executable(folder / "chrome")

    assert find_chromium(of_playwright) == str(of_playwright)


def test_without_any_the_error_says_what_to_install(folder: Path) -> None:
    with pytest.raises(NoBrowser, match=r"apt install chromium.*playwright install chromium"):
        find_chromium(folder / "chrome")
