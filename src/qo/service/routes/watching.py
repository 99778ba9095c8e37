"""What operators look at: workers, figures, the audit trail."""

from __future__ import annotations

import msgspec

from qo.policy.analytics import Analytics
from qo.policy.promises import starts_of
from qo.service.access.refused import Refused
from qo.service.operations import Call, May, Operation
from qo.service.shapes import AnalyticsQuery, AuditItem, AuditPage, AuditQuery, Undone
from qo.values import WorkerInfo

DIGITS_AT_MOST = 15


async def workers(call: Call) -> list[WorkerInfo]:
    return await call.queue.workers()


async def analytics(call: Call) -> Analytics:
    query = call.query(AnalyticsQuery)
    figures = await call.queue.analytics(minutes=query.minutes, group=query.group)
    if query.starts == 0:
        return figures
    page = await call.queue.store_here.jobs(ended=True, newest_first=True, limit=query.starts)
    return msgspec.structs.replace(figures, starts=starts_of(page.jobs))


async def audit(call: Call) -> AuditPage:
    query = call.query(AuditQuery)
    after = None if query.after is None else int(query.after)
    entries = await call.queue.audit(query.target, limit=query.limit, after=after)
    following = str(entries[-1].id) if len(entries) == query.limit else None
    return AuditPage(items=[AuditItem.of(entry) for entry in entries], next=following)


async def undo(call: Call) -> Undone:
    audit_id = call.named["id"]
    if not audit_id.isascii() or not audit_id.isdecimal() or len(audit_id) > DIGITS_AT_MOST:
        raise Refused(404, "Audit entry not found", f"There is no entry {audit_id!r} in the audit trail.")
    (entry, *_) = [*await call.queue.audit(limit=1, after=int(audit_id) + 1), None]
    if entry is not None and entry.id == int(audit_id) and entry.batch is not None:
        call.batch = entry.batch
    await call.queue.undo(int(audit_id), by=call.by)
    return Undone(undone=int(audit_id), audit_id=None if entry is None else await call.audit_id(entry.subject))


OPERATIONS = (
    Operation("GET", "/api/workers", May.VIEWER, workers, "List the live workers.", answers=list[WorkerInfo]),
    Operation(
        "GET",
        "/api/analytics",
        May.VIEWER,
        analytics,
        "Get the figures of the last minutes.",
        query=AnalyticsQuery,
        answers=Analytics,
    ),
    Operation(
        "GET",
        "/api/audit",
        May.VIEWER,
        audit,
        "List who changed what, newest first.",
        query=AuditQuery,
        answers=AuditPage,
    ),
    Operation(
        "POST",
        "/api/audit/{id}/undo",
        May.ADMIN,
        undo,
        "Put back what a change of the last 10 seconds has changed.",
        answers=Undone,
    ),
)
