"""Entries of the audit trail: made from what a store keeps, and shown as an old and a new value."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from qo.errors import UndoRefused
from qo.event import AuditEntry
from qo.policy.actor import actor_of


def audit_entry(
    id_: int, at: datetime, by: str | None, action: str, subject: str, detail: dict[str, Any]
) -> AuditEntry:
    """`by` as a store keeps it."""
    actor = actor_of(by)
    return AuditEntry(
        id=id_,
        at=at,
        by=actor.name,
        action=action,
        subject=subject,
        detail=detail,
        role=actor.role,
        address=actor.address,
        batch=actor.batch,
    )


def changed_since(subject: str, entry_id: int) -> UndoRefused:
    """What a store raises for an undo that comes too late for a newer change."""
    return UndoRefused(f"{subject!r} was changed again since entry {entry_id}; nothing was undone.")


def old_and_new(entry: AuditEntry) -> tuple[Any, Any]:
    """What was before the action and what is after it, as far as that is more than the action itself."""
    detail = entry.detail
    match entry.action:
        case "priority":
            return {"priority": detail["from"]}, {"priority": detail["priority"]}
        case "move":
            return detail.get("from"), {name: detail[name] for name in ("before", "after") if name in detail}
        case "limit":
            old = {"limit": detail["from"], "source": detail.get("from_source")}
            return old, {"limit": detail["limit"], "source": None if detail["limit"] is None else detail["source"]}
        case "pause" | "resume":
            return {"paused": entry.action == "resume"}, {"paused": entry.action == "pause"}
        case "tier":
            return {"tier": detail.get("from")}, {"tier": detail["tier"]}
        case "cancel":
            return {"state": detail.get("from")}, {"message": detail["message"]}
        case "release":
            return {"slot": detail["slot"], "holder": detail["holder"]}, None
        case "revoke_key":
            return detail, None
        case _:
            return None, detail or None
