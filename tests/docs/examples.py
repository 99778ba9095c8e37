"""The Python examples of the pages.

The blocks of a page are one program, from the first to the last, as they would be typed into `python -m asyncio`. A
block whose first line is `# name.py` is a file of that name instead. What a reader has already, such as a queue, is in
a comment of the page that begins with `<!-- before`, and is run with the blocks. A block that says `# prints: …` at the
end of a line prints that.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
BLOCK = re.compile(r"^( *)```python\n(.*?)^ *```$|^<!-- before\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w/]+\.py)\n")
PRINTS = re.compile(r"  # prints: (.*)")


class Examples(NamedTuple):
    files: dict[str, str]
    program: list[str]
    """The blocks that are no files, in their order."""

    @property
    def promised(self) -> list[str]:
        return [line for block in self.program for line in PRINTS.findall(block)]

    def write_files(self, folder: Path) -> None:
        for name, text in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def examples_of(page: Path) -> Examples:
    files: dict[str, str] = {}
    program = []
    for indent, block, before in BLOCK.findall(page.read_text()):
        text = re.sub(f"^{indent}", "", block or before, flags=re.MULTILINE)
        named = FILE.match(text)
        if named is not None:
            files[named[1]] = text
        else:
            program.append(text)
    return Examples(files, program)


def name_of(page: Path) -> str:
    """Such as how-to/web.md."""
    return page.relative_to(ROOT if page.parent == ROOT else DOCS).as_posix()


WITH_EXAMPLES = [page for page in PAGES if any(examples_of(page))]


async def run_program(page: Path) -> dict[str, Any]:
    """Run the blocks one after the other. Returns the names that they made."""
    namespace: dict[str, Any] = {"__name__": "example"}
    for block in examples_of(page).program:
        code = compile(block, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        running = eval(code, namespace)
        if inspect.isawaitable(running):
            await asyncio.wait_for(running, 60)
    return namespace
