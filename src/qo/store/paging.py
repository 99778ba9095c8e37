"""Lists in pages: the cursor between two pages, and reading on until there is enough.

A cursor names the place of the last row that a page looked at: in line by its order key, behind the line by its number.
Rows that come and go in between move no other row's place.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Self, Unpack

import msgspec

from qo.errors import InvalidValue
from qo.job import Job
from qo.policy.checks import shown
from qo.store.contract import Store
from qo.values import InLine, LinePage, Wanted

CURSOR = re.compile(r"l([0-9]{1,16})|o([0-9]{1,15})?")
ENDED_CURSOR = re.compile(r"e([0-9]{1,15})-([0-9]{1,15})")


class Cursor(NamedTuple):
    """Where a page ended. `last` None: at the beginning of the line, or of the others."""

    in_line: bool
    last: int | None

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Raises InvalidValue for a text that no page has answered."""
        if text is None:
            return cls(True, None)
        found = CURSOR.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise InvalidValue(f"after is {shown(text)}; use the next of the page before, or None for the first page.")
        key, number = found.groups()
        return cls(True, int(key)) if key else cls(False, None if number is None else int(number))

    def text(self) -> str:
        return f"{'l' if self.in_line else 'o'}{'' if self.last is None else self.last}"


class EndedCursor(NamedTuple):
    """Where a page of ended jobs ended: at the time at which this job did."""

    at: int
    number: int

    @classmethod
    def read(cls, text: str | None) -> Self | None:
        """Raises InvalidValue for a text that no page has answered."""
        if text is None:
            return None
        found = ENDED_CURSOR.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise InvalidValue(f"after is {shown(text)}; use the next of the page before, or None for the first page.")
        return cls(int(found[1]), int(found[2]))

    def text(self) -> str:
        return f"e{self.at}-{self.number}"


async def read_jobs(
    store: Store,
    *,
    limit: int,
    newest_first: bool = False,
    **wanted: Unpack[Wanted],
) -> list[Job]:
    """The first `limit` jobs, in as many pages as that takes. One that moves meanwhile is answered once."""
    found: dict[str, Job] = {}
    after = None
    while True:
        page = await store.jobs(limit=limit - len(found), newest_first=newest_first, after=after, **wanted)
        for job in page.jobs:
            found.setdefault(job.id, job)
        after = page.next
        if after is None or len(found) >= limit:
            return list(found.values())


async def read_line(store: Store, *, limit: int) -> LinePage:
    """The first `limit` jobs in line as one page, read in as many as that takes."""
    found: dict[str, InLine] = {}
    after = None
    while True:
        page = await store.line(limit=limit - len(found), after=after)
        for job in page.jobs:
            found.setdefault(job.id, job)
        after = page.next
        if after is None or len(found) >= limit:
            return msgspec.structs.replace(page, jobs=tuple(found.values()))
