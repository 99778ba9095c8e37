"""docs/architecture.md is a map: every file and name on it exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "docs/architecture.md",
    *sorted((ROOT / "docs/internals").glob("*.md")),
    *sorted((ROOT / "docs/decisions").glob("*.md")),
]
FILE = re.compile(r"\b((?:[a-z_]+/)*[a-z_*]+\.(?:py|lua))\b")
FOLDER = re.compile(r"`([a-z_]+(?:/[a-z_]+)*/)`")
DECIDES = re.compile(r"`([\w/]+\.(?:py|lua))`, `(\w+)`|`([\w.]+)`(?: and `(\w+)`)? in `([\w/]+\.py)`")
MOST_FILES_FROM_SUBMIT_TO_END = 15


def exists(name: str) -> bool:
    """Below src/qo or the root; a name without a folder, or with a * or only its last folders, anywhere in src/qo."""
    source = ROOT / "src/qo"
    return (source / name).exists() or (ROOT / name).exists() or any(source.rglob(name))


def test_every_file_and_folder_that_the_pages_name_exists() -> None:
    named = {name for page in PAGES for name in FILE.findall(page.read_text()) + FOLDER.findall(page.read_text())}

    assert len(named) > 40
    assert sorted(name for name in named if not exists(name)) == []


def test_every_function_on_the_map_is_in_the_file_that_is_named_with_it() -> None:
    found = DECIDES.findall(PAGES[0].read_text())
    pairs = [
        (file or later, each) for file, name, first, second, later in found for each in (name, first, second) if each
    ]

    missing = [
        (file, name)
        for file, name in pairs
        if f"def {name.rpartition('.')[2]}(" not in (ROOT / "src/qo" / file).read_text()
    ]

    assert len(pairs) > 5
    assert missing == []


def test_a_job_passes_few_files_from_submit_to_its_end() -> None:
    way = re.findall(r"─ (\d+) +([\w/]+\.py)", PAGES[0].read_text())

    assert [int(number) for number, _ in way] == list(range(1, len(way) + 1))
    assert len({file for _, file in way}) <= MOST_FILES_FROM_SUBMIT_TO_END
