"""The files of the dashboard, read once: their bytes, plain and compressed, and their ETags."""

from __future__ import annotations

import gzip
import hashlib
import re
from functools import cache
from pathlib import Path

import msgspec

from qo.service.page_script import joined_script

FOLDER = Path(__file__).parent / "page"
INDEX = "index.html"
ENTRY = "js/app.js"
BEFORE_MODULES = "js/first.js"
"""A script that the page loads by itself, because modules run too late for it."""
SCRIPT, STYLE = "app.js", "style.css"
"""All modules in one, and all style sheets in one."""
FIRST_SHEETS = ("css/base.css", "css/parts.css", "css/line.css")
"""The others come after these, by name."""
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
"""Files with any other ending are not served."""


class PageFile(msgspec.Struct, frozen=True, kw_only=True):
    media_type: str
    plain: bytes
    compressed: bytes
    """With gzip."""
    etag: str


@cache
def page_files() -> dict[str, PageFile]:
    """Every file that may be asked for, by its path below the folder. A name that is not in here cannot reach the
    file system."""
    found = sorted(path for path in FOLDER.rglob("*") if path.is_file() and path.suffix in MEDIA_TYPES)
    contents = {path.relative_to(FOLDER).as_posix(): _read(path) for path in found}
    files = {name: _page_file(name, content) for name, content in contents.items() if name != INDEX}
    files[STYLE] = _page_file(STYLE, _joined_style(contents, files))
    files[SCRIPT] = _page_file(SCRIPT, _joined_modules(contents, files))
    files[INDEX] = _page_file(INDEX, _with_versions(contents[INDEX], files))
    return files


def _read(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix in (".js", ".css") and "vendor" not in path.parts:
        return without_comments(content.decode()).encode()
    return content


def _page_file(name: str, content: bytes) -> PageFile:
    return PageFile(
        media_type=MEDIA_TYPES[Path(name).suffix],
        plain=content,
        compressed=gzip.compress(content, mtime=0),
        etag=hashlib.sha256(content).hexdigest()[:16],
    )


def _joined_style(contents: dict[str, bytes], files: dict[str, PageFile]) -> bytes:
    names = sorted((name for name in contents if name.startswith("css/")), key=_sheet_order)

    def address(found: re.Match[str]) -> str:
        return f'url("{found[1]}?{files[found[1]].etag}")'

    return re.sub(r'url\("\.\./([^"]+)"\)', address, "".join(contents[name].decode() for name in names)).encode()


def _sheet_order(name: str) -> tuple[int, str]:
    return FIRST_SHEETS.index(name) if name in FIRST_SHEETS else len(FIRST_SHEETS), name


def _joined_modules(contents: dict[str, bytes], files: dict[str, PageFile]) -> bytes:
    sources = {
        name: content.decode()
        for name, content in contents.items()
        if name.startswith("js/") and name != BEFORE_MODULES
    }
    addresses = {
        name: f"./{name}?{file.etag}"
        for name, file in files.items()
        if name.startswith("vendor/") and name.endswith(".js")
    }
    return joined_script(sources, ENTRY, addresses=addresses).encode()


def _with_versions(index: bytes, files: dict[str, PageFile]) -> bytes:
    """The page with the version of each file in its address, so that browsers can keep that file for good."""

    def versioned(found: re.Match[str]) -> str:
        return f'"page/{found[1]}?{files[found[1]].etag}"'

    return re.sub(r'"page/([^"?]+)"', versioned, index.decode()).encode()


def without_comments(source: str) -> str:
    """A script or a style sheet without its comments, which are whole lines here, and without empty lines and
    indentation. Together they are a quarter of its bytes."""
    lines = []
    is_inside = False
    for line in source.split("\n"):
        text = line.strip()
        is_comment = is_inside or text.startswith(("//", "/*"))
        if is_inside or text.startswith("/*"):
            is_inside = not text.endswith("*/")
        if text and not is_comment:
            lines.append(text)
    return "\n".join([*lines, ""])
