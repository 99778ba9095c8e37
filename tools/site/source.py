"""The pages that the site is made of: those of `docs/`, the README as the first one, and the reference."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tools.site.reference import pages as reference_pages

ROOT = Path(__file__).parents[2]
BESIDE_THE_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE")
"""Files at the root of the project that pages link to."""
LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def write_source(folder: Path) -> None:
    """Make the folder anew."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    for name in BESIDE_THE_PAGES:
        shutil.copy(ROOT / name, folder / name)
    (folder / "index.md").write_text(with_links_of_the_site((ROOT / "README.md").read_text()))
    for page in folder.rglob("*.md"):
        page.write_text(_without_the_way_up(page, folder))
    reference = folder / "reference"
    reference.mkdir(exist_ok=True)
    for name, text in reference_pages().items():
        (reference / name).write_text(text)


def with_links_of_the_site(readme: str) -> str:
    """On the site, the pages of `docs/` are beside the README."""
    return LINK.sub(lambda found: f"{found[1]}{found[2].removeprefix('docs/')}{found[3]}", readme)


def _without_the_way_up(page: Path, folder: Path) -> str:
    """Links to files at the project's root, which are at the site's root."""
    depth = len(page.relative_to(folder).parts) - 1
    text = page.read_text()
    for name in (*BESIDE_THE_PAGES, "README.md"):
        target = "index.md" if name == "README.md" else name
        text = text.replace(f"]({'../' * (depth + 1)}{name}", f"]({'../' * depth}{target}")
    return text
