"""Small pieces of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """A text as the cell of a table: in one line, its bars escaped."""
    return re.sub(r"\s*\n\s*", " ", text).replace("|", "\\|").strip()


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, or nothing where it has no row."""
    lines = [f"| {' | '.join(cell(each) for each in row)} |" for row in rows]
    if not lines:
        return ""
    return "\n".join([f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *lines])


def paragraphs(parts: Iterable[str]) -> str:
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def anchor(name: str) -> str:
    """The part of an address behind its #."""
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")


def heading(level: int, title: str, name: str | None = None) -> str:
    """A heading whose anchor is made from `name`."""
    return f"{'#' * level} {title} {{ #{anchor(name or title)} }}"
