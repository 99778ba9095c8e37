"""is_claimable: whether a claim might find something now. Asked by `wait_for_work` after every change of the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import apsw

from qo.policy.groups import GLOBAL
from qo.store.sqlite.operations.read_groups import counter, fallen_ms, uncounted_ms
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.rows import find, names, row_groups
from qo.store.sqlite.shared.suspects import SUSPECTS, Source, Taker
from qo.values import DEFAULT_LEASE_MS


def is_claimable(db: apsw.Connection, *, worker: str, tasks: Sequence[str], suspects: int | None, now: int) -> bool:
    """Whether there is a candidate behind open gates that the worker may take, or something due."""
    if _is_due(db, now):
        return True
    if not _has_room(db, GLOBAL):
        return False
    there_are, lease_ms = counter(db, SUSPECTS) > 0, counter(db, "lease_ms") or DEFAULT_LEASE_MS
    taker = Taker(db, worker, suspects, there_are=there_are, lease_ms=lease_ms, now=now)
    heads = _heads(db, [source for source in taker.sources(tasks) if not taker.passes(source)])
    if not there_are:
        return next(heads, None) is not None
    first = min(heads, default=None)
    if first is None:
        return False
    key, source = first
    # It has to become empty for this job; unless the job is blocked, which is for a claim to find out and to note.
    return taker.may_take(source.suspicion) or _is_blocked(db, key)


def _is_due(db: apsw.Connection, now: int) -> bool:
    due: int = sql.value(
        db,
        "SELECT EXISTS (SELECT 1 FROM job WHERE due_at IS NOT NULL AND steady_at IS NULL AND due_at <= ?1)"
        " OR EXISTS (SELECT 1 FROM job WHERE due_at IS NOT NULL AND steady_at IS NOT NULL AND due_at <= ?2)"
        " OR EXISTS (SELECT 1 FROM grp WHERE closed_until <= ?2)"
        " OR EXISTS (SELECT 1 FROM lease WHERE expires_at <= ?3)",
        (now, now - fallen_ms(db), now - uncounted_ms(db)),
    )
    return bool(due)


def _heads(db: apsw.Connection, sources: Sequence[Source]) -> Iterator[tuple[int, Source]]:
    """The first candidate of each source whose gate is open, by its key."""
    for source in sources:
        keys = sql.row(
            db,
            "SELECT (SELECT min(key) FROM job WHERE task = ?1 AND suspicion = ?2 AND first AND parked IS NULL),"
            " (SELECT min(key) FROM open WHERE task = ?1 AND suspicion = ?2)",
            source,
        )
        found = [key for key in keys or () if key is not None]
        if found and _has_room(db, source.task):
            yield min(found), source


def _is_blocked(db: apsw.Connection, key: int) -> bool:
    row = find(db, "state = 'queued' AND key = ?", (key,))
    assert row is not None
    task_groups = names(sql.value(db, "SELECT groups FROM task WHERE name = ?", (row.task,)) or "[]")
    return not all(_has_room(db, group) for group in row_groups(row, task_groups))


def _has_room(db: apsw.Connection, name: str) -> bool:
    row = sql.row(db, "SELECT slots, paused, closed_until FROM grp WHERE name = ?", (name,))
    if row is None:
        return True
    limit, paused, closed_until = row
    active = sql.value(db, "SELECT count(*) FROM slot WHERE grp = ? AND token IS NOT NULL", (name,))
    return not paused and closed_until is None and (limit is None or active < limit)
