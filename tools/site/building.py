"""From the pages to HTML."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.site.links import broken_links
from tools.site.source import write_source

SETTINGS = Path(__file__).with_name("zensical.toml")
INTERNALS = "Internals"


def build(folder: Path) -> list[str]:
    """Make the site anew in `folder/html`. Returns what is wrong with it."""
    write_source(folder / "source")
    shutil.copy(SETTINGS, folder)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return [done.stdout + done.stderr]
    return broken_links(folder / "html")


def navigation() -> dict[str, list[str]]:
    """The pages of each section, as they are listed on the site."""
    sections = tomllib.loads(SETTINGS.read_text())["project"]["nav"]
    return {title: list(_pages(entries)) for section in sections for title, entries in section.items()}


def _pages(entries: list[dict[str, Any]]) -> Iterator[str]:
    for entry in entries:
        yield from entry.values()
