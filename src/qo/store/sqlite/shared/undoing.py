"""An undo counts only if nothing was changed since: the entry that it undoes is the newest about its subject."""

from __future__ import annotations

from typing import Any

from qo.policy.audit import changed_since
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.groups import Group
from qo.store.sqlite.shared.rows import JobRow, decode
from qo.store.sqlite.shared.step import Step


def undone(step: Step, subject: str, entry_id: int) -> dict[str, Any]:
    """The detail of the entry. Raises UndoRefused if it is not the newest one about this subject."""
    newest = sql.row(step.db, "SELECT id, detail FROM audit WHERE subject = ? ORDER BY id DESC LIMIT 1", (subject,))
    if newest is None or newest[0] != entry_id:
        raise changed_since(subject, entry_id)
    detail: dict[str, Any] = decode(newest[1])
    return detail


def undone_of_job(step: Step, row: JobRow, entry_id: int) -> dict[str, Any]:
    """Raises UndoRefused too if the entry is a move and the job has another key by now."""
    detail = undone(step, row.id, entry_id)
    if "key" in detail and detail["key"] != str(row.key):
        raise changed_since(row.id, entry_id)
    return detail


def check_undone_limit(step: Step, group: Group, entry_id: int) -> None:
    """Raises UndoRefused if the group's limit is not the one that the entry has set."""
    detail = undone(step, group.name, entry_id)
    source = None if detail.get("limit") is None else detail["source"]
    if "limit" not in detail or (group.limit, group.source) != (detail["limit"], source):
        raise changed_since(group.name, entry_id)
