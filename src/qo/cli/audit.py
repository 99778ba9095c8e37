"""`qo audit`: who changed what, and when."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from qo.cli.job_ids import id_column, whole_id
from qo.cli.options import Target, store_options
from qo.cli.output import show_json, show_table
from qo.cli.running import reading
from qo.cli.table import LEAST, Column
from qo.cli.terminal import say
from qo.cli.wording import json_text
from qo.errors import JobNotFound
from qo.event import AuditEntry
from qo.policy.audit import old_and_new
from qo.queue.queue import Queue


@click.command()
@click.argument("subject", metavar="[ID|GROUP|USER]", required=False)
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@store_options
def audit(target: Target, *, subject: str | None, limit: int) -> None:
    """Show the audit trail, newest first: of everything, or of one job, group or user. ID may be shortened."""
    entries = reading(target, lambda queue: _read(queue, subject, limit))
    if target.as_json:
        show_json([_as_json(entry) for entry in entries])
    elif not entries:
        say("The audit trail is empty." if subject is None else f"The audit trail has nothing about {subject}.")
    else:
        _show(entries)
        if len(entries) == limit:
            say(f"These are the newest {len(entries)} of them; see more with --limit.")


async def _read(queue: Queue, subject: str | None, limit: int) -> list[AuditEntry]:
    entries = await queue.audit(subject, limit=limit)
    if entries or subject is None:
        return entries
    try:
        return await queue.audit(await whole_id(queue, subject), limit=limit)
    except JobNotFound:
        return []


def _show(entries: list[AuditEntry]) -> None:
    now = datetime.now(UTC)
    show_table(
        [
            Column("at (UTC)", [_time(entry.at, now) for entry in entries]),
            Column("by", [entry.by or "" for entry in entries], leaves=1, least=LEAST),
            Column("action", [entry.action for entry in entries]),
            id_column("on", [entry.subject for entry in entries]),
            Column("change", [_change(entry) for entry in entries], leaves=2, least=LEAST),
            Column("from", [entry.address or "" for entry in entries], leaves=4),
            Column("role", [entry.role or "" for entry in entries], leaves=3),
        ]
    )


def _time(at: datetime, now: datetime) -> str:
    return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M}"


def _change(entry: AuditEntry) -> str:
    old, new = (_in_words(value) for value in old_and_new(entry))
    return f"{old} → {new}" if old and new else old or new


def _in_words(value: Any) -> str:
    if not isinstance(value, dict):
        return "" if value is None else json_text(value) or ""
    return ", ".join(f"{name} {_plain(each)}" for name, each in value.items() if each is not None)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value) or ""


def _as_json(entry: AuditEntry) -> dict[str, Any]:
    """The fields of GET /audit, and the detail that they are made from."""
    old, new = old_and_new(entry)
    values: dict[str, Any] = msgspec.to_builtins(entry)
    return values | {"target": entry.subject, "old": old, "new": new}
