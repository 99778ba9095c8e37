"""Links, images and scripts of the built site that lead nowhere, or to another host."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {"script": "src", "img": "src", "link": "href"}
"""What a browser loads by itself."""
NOT_FETCHED = {"canonical", "next", "prev", "alternate"}


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        for name in ("id", "name"):
            if name in found:
                self.anchors.add(found[name])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        attribute = FETCHED.get(tag)
        if attribute and attribute in found and found.get("rel") not in NOT_FETCHED:
            self.fetched.append(found[attribute])


def broken_links(site: Path) -> list[str]:
    """As `page: link`, sorted."""
    pages = {file: _read(file) for file in site.rglob("*.html") if file.name != "404.html"}
    broken = set()
    for file, page in pages.items():
        shown = file.relative_to(site)
        broken |= {f"{shown}: loads {each} from elsewhere" for each in page.fetched if urlsplit(each).netloc}
        for link in {*page.links, *page.fetched}:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            has_anchor = not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].anchors
            if not target.exists() or not has_anchor:
                broken.add(f"{shown}: {link}")
    return sorted(broken)


def _read(file: Path) -> _Page:
    page = _Page()
    page.feed(file.read_text())
    return page
