"""The pages of the reference, each made from the code that it describes."""

from __future__ import annotations

from functools import cache

from tools.site.reference import commands, errors, events, http, metrics, python, settings


@cache
def pages() -> dict[str, str]:
    """The text of each page, by its file name."""
    return {
        **python.pages(),
        "errors.md": errors.page(),
        "events.md": events.page(),
        "settings.md": settings.page(),
        "commands.md": commands.page(),
        "http.md": http.page(),
        "metrics.md": metrics.page(),
    }
