"""Ids of jobs as people read and type them: the beginning is enough where only one job has it."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import pairwise

from qo.cli.table import Column
from qo.cli.terminal import width_of
from qo.errors import InvalidValue, JobNotFound
from qo.queue.queue import Queue

MADE_BY_QO = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")
SHORTEST_SHOWN = 12
"""Ten characters are the millisecond in which an id was made, so two more tell almost all jobs of one moment apart."""
SHORTEST_TAKEN = 4
"""A shorter beginning is more likely a slip than a job's name, and a cancel cannot be undone."""
LISTED = 5
CUT = "…"


def id_column(name: str, ids: Sequence[str]) -> Column:
    """The ids as a table shows them: in a terminal shortened, in a pipe whole."""
    length = _length_that_tells_apart(ids)
    return Column(name, ids if width_of(sys.stdout) is None else [_short(each, length) for each in ids], least=length)


def _short(job_id: str, length: int) -> str:
    """Only ids that qo made: in others, such as `order-2026-117`, every part may mean something."""
    return job_id[:length] if MADE_BY_QO.fullmatch(job_id) else job_id


def _length_that_tells_apart(ids: Sequence[str]) -> int:
    made = sorted({each for each in ids if MADE_BY_QO.fullmatch(each)})
    return max(SHORTEST_SHOWN, *(_shared(a, b) + 1 for a, b in pairwise(made)), 0)


def _shared(a: str, b: str) -> int:
    """How many characters both begin with."""
    return next((number for number, pair in enumerate(zip(a, b, strict=False)) if pair[0] != pair[1]), len(a))


async def whole_id(queue: Queue, given: str) -> str:
    """The id of the job that a person means: a whole id, or the beginning of one.

    Raises JobNotFound, and InvalidValue where several jobs begin so.
    """
    if (await queue.store_here.jobs(ids=[given])).jobs:
        return given
    beginning = given.removesuffix(CUT)  # as a narrow table has cut it
    if len(beginning) < SHORTEST_TAKEN:
        raise JobNotFound(given)
    found = await _ids_that_begin_with(queue, beginning)
    if not found:
        raise JobNotFound(given)
    if len(found) > 1:
        more = f" and {CUT}" if len(found) > LISTED else ""
        raise InvalidValue(
            f"{given!r} is the beginning of several ids: {', '.join(found[:LISTED])}{more}; write more of it."
        )
    return found[0]


async def _ids_that_begin_with(queue: Queue, beginning: str) -> list[str]:
    found: dict[str, None] = {}
    after = None
    while len(found) <= LISTED:
        page = await queue.store_here.jobs(id_prefix=beginning, limit=LISTED + 1, after=after)
        found.update(dict.fromkeys(job.id for job in page.jobs))
        after = page.next
        if after is None:
            break
    return list(found)
