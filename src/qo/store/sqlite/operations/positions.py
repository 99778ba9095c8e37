"""Places in line: ranks, and how many jobs were placed ahead of another, counted from order keys alone.

The order key tells when a job joined (`ordering.sequence_of`), so jobs that joined later are counted in the index of
the line. No row is read but those of jobs that a move gave their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import apsw

from qo.policy.ordering import (
    CELL,
    MOVED_COUNTED_AT_MOST,
    PLACE_BITS,
    STEPS_PER_CELL,
    order_key,
    places_around,
    priority_of,
    sequence_drawn,
)
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.rows import to_json
from qo.store.sqlite.shared.view import View
from qo.values import Place

_BETWEEN = "SELECT count(*) FROM job WHERE state = 'queued' AND key > ? AND key < ?"
# A key and its place are equal modulo CELL, as the priority's part of a key is a multiple of it.
_DRAWN_BETWEEN = f"{_BETWEEN} AND (key % {CELL} = 0 OR key % {CELL} > {STEPS_PER_CELL})"
# `ordering.sequence_of`, by its cell: cell + (cell * CELL - place)
_PLACE = f"(key & {(1 << PLACE_BITS) - 1})"
_DRAWN_BETWEEN_AND_LATER = f"{_DRAWN_BETWEEN} AND ({_PLACE} + {CELL - 1}) / {CELL} * {CELL + 1} - {_PLACE} > ?"


def positions(view: View, job_ids: Sequence[str]) -> dict[str, Place]:
    db = view.db
    rows = sql.rows(
        db,
        "SELECT id, key, position_original, undisturbed_key, displaced FROM job"
        " WHERE state = 'queued' AND id IN (SELECT value FROM json_each(?)) ORDER BY key",
        (to_json(list(job_ids)),),
    )
    ranks = ranks_of(db, [row[1] for row in rows])
    worse = [
        (key, sequence_drawn(key, undisturbed))
        for rank, (_, key, original, undisturbed, _) in zip(ranks, rows, strict=True)
        if rank > original
    ]
    placed_ahead = _placed_ahead(db, worse) if worse else {}
    return {
        job_id: Place(position=rank, original=original, placed_ahead=placed_ahead.get(key), displaced=displaced)
        for rank, (job_id, key, original, _, displaced) in zip(ranks, rows, strict=True)
    }


def position(db: apsw.Connection, key: int) -> int:
    """The 1-based rank of a key: whole priorities by their counts, only its own by counting."""
    own = priority_of(key)
    rank: int = sql.value(
        db,
        "SELECT (SELECT coalesce(sum(waiting), 0) FROM line_count WHERE priority < ?1)"
        " + (SELECT count(*) FROM job WHERE state = 'queued' AND key >= ?2 AND key <= ?3)",
        (own, own << PLACE_BITS, key),
    )
    return rank


def ranks_of(db: apsw.Connection, keys: Sequence[int]) -> list[int]:
    """The ranks of keys of jobs in line, smallest first: however many they are, every priority is counted once."""
    ranks: list[int] = []
    for before, key in zip([None, *keys], keys, strict=False):
        if before is None or priority_of(before) != priority_of(key):
            ranks.append(position(db, key))
        else:
            ranks.append(ranks[-1] + 1 + sql.value(db, _BETWEEN, (before, key)))
    return ranks


def _placed_ahead(db: apsw.Connection, worse: Sequence[tuple[int, int | None]]) -> dict[int, int | None]:
    """By key, how many of those ahead of a job joined after it. Of each are given its key and its sequence."""
    moved = _moved(db)
    if moved is None:
        return {}
    levels: list[int] = [level for (level,) in sql.rows(db, "SELECT priority FROM line_count WHERE waiting > 0")]
    surely_later = {
        level: _surely_later(db, level, (known for key, known in worse if known and priority_of(key) > level))
        for level in levels
    }
    return {
        key: None if known is None else _count(db, key, known, surely_later=surely_later, moved=moved)
        for key, known in worse
    }


def _surely_later(db: apsw.Connection, level: int, sequences: Iterable[int]) -> dict[int, int]:
    """How many jobs of a priority joined surely after each of these sequences; none is counted twice."""
    found: dict[int, int] = {}
    count, end = 0, order_key(level + 1, 0)
    for sequence in sorted(set(sequences), reverse=True):
        begin = order_key(level, places_around(sequence)[1])
        count += sql.value(db, _DRAWN_BETWEEN, (begin, end))
        found[sequence], end = count, begin + 1
    return found


def _count(
    db: apsw.Connection,
    key: int,
    sequence: int,
    *,
    surely_later: dict[int, dict[int, int]],
    moved: Sequence[tuple[int, int | None]],
) -> int | None:
    ahead = [joined_as for moved_key, joined_as in moved if moved_key < key]
    if None in ahead:
        return None
    own = priority_of(key)
    surely_earlier_up_to, surely_later_after = places_around(sequence)
    count = sum(joined_as > sequence for joined_as in ahead if joined_as is not None)
    for level, later in surely_later.items():
        if level > own:
            continue
        # One whose key is out of its own order has been moved aside: there may be drawn places between.
        begin = order_key(level, surely_later_after)
        count += later[sequence] if level < own else sql.value(db, _DRAWN_BETWEEN, (begin, key))
        near = order_key(level, surely_earlier_up_to), min(begin + 1, key)
        count += sql.value(db, _DRAWN_BETWEEN_AND_LATER, (*near, sequence))
    return count


def _moved(db: apsw.Connection) -> list[tuple[int, int | None]] | None:
    """Key and sequence of each job in line whose place a move gave it; None where they are too many."""
    if sql.value(db, "SELECT count(*) FROM (SELECT 1 FROM moved LIMIT ?)", (MOVED_COUNTED_AT_MOST + 1,)) > (
        MOVED_COUNTED_AT_MOST
    ):
        return None
    rows = sql.rows(db, "SELECT key, undisturbed_key FROM moved CROSS JOIN job USING (number) WHERE state = 'queued'")
    return [(key, sequence_drawn(key, undisturbed)) for key, undisturbed in rows]
