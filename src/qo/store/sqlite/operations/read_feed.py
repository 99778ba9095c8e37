"""Reading events and the audit trail."""

from __future__ import annotations

from collections.abc import Collection

import apsw

from qo.event import AuditEntry, Event, Feed
from qo.job import moment
from qo.policy.audit import audit_entry
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.rows import decode, to_json
from qo.store.sqlite.shared.view import View


def audit(
    view: View, *, subject: str | None = None, limit: int = 100, after: int | None = None
) -> tuple[AuditEntry, ...]:
    given = {"subject = ?": subject, "id < ?": after}
    wanted = {condition: value for condition, value in given.items() if value is not None}
    rows = view.db.execute(
        "SELECT id, at, by, action, subject, detail FROM audit"
        f"{' WHERE ' if wanted else ''}{' AND '.join(wanted)} ORDER BY id DESC LIMIT ?",
        (*wanted.values(), limit),
    )
    return tuple(
        audit_entry(id_, moment(at), by, action, subject_, decode(detail))
        for id_, at, by, action, subject_, detail in rows
    )


def events(
    db: apsw.Connection,
    after: int | None,
    *,
    kinds: Collection[str] | None,
    subjects: Collection[str] | None,
    limit: int,
) -> Feed:
    oldest, newest = sql.row(db, "SELECT coalesce(min(id), 1), coalesce(max(id), 0) FROM event")
    if after is None:
        return Feed(events=(), cursor=newest)
    if after < oldest - 1 or after > newest:
        return Feed(events=(), cursor=newest, reset=True)
    wanted = [("kind", kinds), ("subject", subjects)]
    conditions = [f" AND {column} IN (SELECT value FROM json_each(?))" for column, names in wanted if names is not None]
    rows = db.execute(
        f"SELECT id, at, kind, subject, detail FROM event WHERE id > ?{''.join(conditions)} ORDER BY id LIMIT ?",
        (after, *(to_json(sorted(names)) for _, names in wanted if names is not None), limit),
    )
    found = tuple(
        Event(id=id_, at=moment(at), kind=kind, subject=subject, detail=decode(detail))
        for id_, at, kind, subject, detail in rows
    )
    return Feed(events=found, cursor=found[-1].id if len(found) == limit else newest)


def has_events(db: apsw.Connection, after: int, *, kinds: Collection[str] | None) -> tuple[bool, int]:
    """Whether there are any of these kinds, and up to where that is known."""
    newest: int = sql.value(db, "SELECT coalesce(max(id), 0) FROM event")
    if newest <= after or kinds is None:
        return newest > after, newest
    statement = "SELECT EXISTS (SELECT 1 FROM event WHERE id > ? AND kind IN (SELECT value FROM json_each(?)))"
    return bool(sql.value(db, statement, (after, to_json(sorted(kinds))))), newest
