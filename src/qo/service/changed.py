"""What a change of a group answers."""

from __future__ import annotations

import msgspec

from qo.service.operations import Call
from qo.service.shapes import GroupAnswer


async def changed_group(call: Call, group: str) -> GroupAnswer:
    """The group as it is now, and the entry of the change in the audit trail."""
    status = await call.queue.limit(group)
    return GroupAnswer(**msgspec.structs.asdict(status), audit_id=await call.audit_id(group))
