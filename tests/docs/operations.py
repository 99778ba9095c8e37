"""docs/operations.md by its sections, and the examples in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs/deploy"
PAGE = (ROOT / "docs/operations.md").read_text()
SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
SECTIONS = dict(SECTION.findall(PAGE))


def examples(language: str, section: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SECTIONS[section], re.DOTALL)


def toml_in(section: str) -> str:
    """The one example of settings in a section."""
    (found,) = examples("toml", section)
    return found
