"""Everything a SQLite store knows, read straight from its tables, in the shape the state machine compares."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from qo.event import Event
from qo.job import State, moment
from qo.policy.audit import audit_entry
from qo.store.sqlite import SQLiteStore
from qo.store.sqlite.operations import read_jobs as reading
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.rows import decode, lane_of, names, select
from qo.values import DEFAULT_LEASE_MS, DEFAULT_TURN_AFTER, Mean, Standing

FIRST_OF_LANE = "SELECT parked FROM job WHERE lane = ? ORDER BY key LIMIT 1"
TICKETS = """
    SELECT holder, key, groups, (SELECT parked FROM ticket AS other WHERE other.groups = ticket.groups ORDER BY key),
        expires_at, lease_ms, wait_ms, passed, turn
    FROM ticket
"""


async def snapshot(store: SQLiteStore) -> dict[str, Any]:
    return await store.read(_snapshot)


def _snapshot(db: apsw.Connection) -> dict[str, Any]:
    _check_integrity(db)
    counters = dict(sql.rows(db, "SELECT name, value FROM counter"))
    return {
        "jobs": {row.id: _job(db, row) for row in select(db, "true")},
        "groups": {
            name: {"limit": slots, "source": source, "paused": bool(paused), "closed_until": closed_until}
            for name, slots, source, paused, closed_until, _ in sql.rows(db, "SELECT * FROM grp")
        },
        "slots": _slots(db),
        "leases": {
            str(token): {"holder": holder, "job": job is not None, "worker": worker, "claim": claim, "expires_at": end}
            for token, holder, job, _, _, worker, claim, end in sql.rows(db, "SELECT * FROM lease")
        },
        "tickets": {
            holder: {
                "key": key,
                "groups": names(groups),
                "parked": parked,
                "expires_at": expires_at,
                "lease_ms": lease_ms,
                "wait_ms": wait_ms,
                "passed": passed,
                "turn": bool(turn),
            }
            for holder, key, groups, parked, expires_at, lease_ms, wait_ms, passed, turn in sql.rows(db, TICKETS)
        },
        "states": {
            State(name.removeprefix("state:")): count
            for name, count in counters.items()
            if name.startswith("state:") and count != 0
        },
        "open": sorted(sql.rows(db, "SELECT task, suspicion, grp, key FROM open")),
        "counts": dict(sql.rows(db, "SELECT priority, waiting FROM line_count WHERE waiting != 0")),
        "users": {
            name: (msgspec.json.decode(standing, type=Standing), bool(pinned))
            for name, standing, pinned, _ in sql.rows(db, "SELECT * FROM user")
        },
        "quota": {(user, day): used for user, day, used in sql.rows(db, "SELECT * FROM quota")},
        "parents": dict(sql.rows(db, "SELECT * FROM parent")),
        "tasks": {name: (names(groups), most) for name, groups, most in sql.rows(db, "SELECT * FROM task")},
        "workers": {
            name: {
                "instance": instance,
                "tasks": names(tasks),
                "capacity": capacity,
                "heard_at": heard_at,
                "expires_at": expires_at,
            }
            for name, instance, tasks, capacity, heard_at, expires_at in sql.rows(
                db, "SELECT name, instance, tasks, capacity, heard_at, expires_at FROM worker"
            )
        },
        "events": [
            Event(id=id_, at=moment(at), kind=kind, subject=subject, detail=decode(detail))
            for id_, at, kind, subject, detail in sql.rows(db, "SELECT * FROM event ORDER BY id")
        ],
        "audit": [
            audit_entry(id_, moment(at), by, action, subject, decode(detail))
            for id_, at, by, action, subject, detail in sql.rows(db, "SELECT * FROM audit ORDER BY id")
        ],
        "series": {
            (name, minute): (count, total)
            for minute, name, count, total in sql.rows(db, "SELECT minute, name, count, total_ms FROM figure")
        },
        "averages": {
            name: Mean(value=value, square=square, count=count)
            for name, value, square, count in sql.rows(db, "SELECT * FROM average")
        },
        "clock": {
            "noted_at": counters.get("noted_at"),
            "lease_ms": counters.get("lease_ms", DEFAULT_LEASE_MS),
            "turn_after": counters.get("turn_after", DEFAULT_TURN_AFTER),
            "uncounted_ms": counters.get("uncounted_ms", 0),
            "fallen_ms": counters.get("fallen_ms", 0),
            "renewed_since_gap": bool(counters.get("renewed_since_gap", True)),
            "token_at_gap": counters.get("token_at_gap", 0),
            "next_sequence": counters.get("next_sequence", 64),
            "last_token": counters.get("last_token", 0),
        },
    }


def _job(db: apsw.Connection, row: Any) -> dict[str, Any]:
    kept = "SELECT payload, checkpoint, contact, overdue_message FROM content WHERE number = ?"
    payload, checkpoint, contact, overdue_message = sql.row(db, kept, (row.number,))
    assert row.has_contact == (contact is not None)
    return {
        "job": reading.job_now(db, row.id, with_history=True),
        "key": row.key,
        "parked": None if row.lane is None else sql.value(db, FIRST_OF_LANE, (row.lane,)),
        "due_at": row.due_at,
        "steady_at": row.steady_at,
        "start_by": row.start_by,
        "steady_start_by": row.steady_start_by,
        "overdue_message": overdue_message,
        "quota_day": row.quota_day,
        "deferred": bool(row.deferred),
        "boost": row.boost,
        "iterations_batch": row.iterations_batch,
        "aged_at": row.aged_at,
        "reminded": row.reminded,
        "passed": row.passed,
        "turn": bool(row.turn),
        "ended_token": None if row.ended_token is None else str(row.ended_token),
        "payload": payload,
        "checkpoint": checkpoint,
        "contact": contact,
        "suspicion": row.suspicion,
        "number": row.number,
    }


def _slots(db: apsw.Connection) -> dict[str, dict[int, str]]:
    slots: dict[str, dict[int, str]] = {}
    for group, number, token in sql.rows(db, "SELECT grp, number, token FROM slot WHERE token IS NOT NULL"):
        slots.setdefault(group, {})[number] = str(token)
    return slots


def _check_integrity(db: apsw.Connection) -> None:
    """What only this store keeps: places given by moves belong to jobs that have them, free numbers lie below a
    held one, nothing is left of jobs that are gone, and of each lane the first one is marked, and no other."""
    moved = sql.rows(db, "SELECT place, number FROM moved ORDER BY place")
    places = sql.rows(
        db,
        "SELECT key & ((1 << 46) - 1) AS place, number FROM job WHERE key IS NOT NULL AND place % 128 BETWEEN 1 AND 64"
        " ORDER BY place",
    )
    assert moved == places
    top = "SELECT max(number) FROM slot AS held WHERE held.grp = slot.grp AND held.token IS NOT NULL"
    assert not sql.rows(db, f"SELECT * FROM slot WHERE token IS NULL AND number > coalesce(({top}), -1)")
    assert not sql.rows(db, "SELECT number FROM content WHERE number NOT IN (SELECT number FROM job)")
    for row in select(db, "true"):
        assert row.lane == (lane_of(row) if row.state == State.QUEUED else None), row
    for table, lane in (("job", "lane"), ("ticket", "groups")):
        first = f"key = (SELECT min(key) FROM {table} AS other WHERE other.{lane} = {table}.{lane})"
        wrong = f"{lane} IS NOT NULL AND (first IS 1) <> ({first}) OR parked IS NOT NULL AND first IS NULL"
        assert not sql.rows(db, f"SELECT * FROM {table} WHERE {wrong}")
