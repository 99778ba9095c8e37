"""put_record: write small service data if nobody else has since it was read.

Writes   the record, or removes it
Answers  whether the version was still the expected one
Audit    the entry that is given, where written
"""

from __future__ import annotations

from typing import Any

from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.rows import to_json
from qo.store.sqlite.shared.step import Step
from qo.values import Audited


def put_record(step: Step, name: str, value: Any, *, version: int, audited: Audited | None = None) -> bool:
    present = sql.value(step.db, "SELECT version FROM record WHERE name = ?", (name,)) or 0
    if present != version:
        return False
    if value is None:
        step.db.execute("DELETE FROM record WHERE name = ?", (name,))
    else:
        step.db.execute("INSERT OR REPLACE INTO record VALUES (?, ?, ?)", (name, version + 1, to_json(value)))
    if audited is not None:
        step.audit(audited.by, audited.action, audited.subject, audited.detail)
    return True
