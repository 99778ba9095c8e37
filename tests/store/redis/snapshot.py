"""Everything a Redis store knows, read straight from its keys, in the shape the state machine compares."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from qo.event import Event
from qo.job import State, moment
from qo.policy.audit import audit_entry
from qo.policy.ordering import priority_of
from qo.store.redis.rows import plain_token, to_job
from qo.store.row import groups_of_row
from qo.values import DEFAULT_LEASE_MS, DEFAULT_TURN_AFTER, Mean, Standing
from tests.store.redis.integrity import check_integrity
from tests.store.redis.keys import (
    Keys,
    audit_entries,
    lane_of_caller,
    lane_of_job,
    parked_in,
    read_all,
    task_and_suspicion,
)

if TYPE_CHECKING:
    from qo.store.redis.store import RedisStore


async def snapshot(store: RedisStore) -> dict[str, Any]:
    keys = await read_all(store)
    check_integrity(keys)
    counters = keys["counters"]
    return {
        "jobs": _jobs(keys),
        "groups": {
            name: {
                "limit": group.get("limit"),
                "source": group.get("source"),
                "paused": group.get("paused", False),
                "closed_until": group.get("closed_until"),
            }
            for name, group in keys["groups"].items()
        },
        "slots": {
            group: {number: plain_token(token) for token, number in held.items()}
            for group, held in keys.family("held:")
        },
        "leases": {
            plain_token(token): {
                "holder": lease["holder"],
                "job": "job" in lease,
                "worker": lease.get("worker"),
                "claim": lease.get("claim"),
                "expires_at": keys["expiry"][token],
            }
            for token, lease in keys["leases"].items()
        },
        "tickets": {
            holder: {
                "key": ticket["key"],
                "groups": tuple(ticket["groups"]),
                "parked": parked_in(keys, lane_of_caller(ticket)),
                "expires_at": ticket["expires_at"],
                "lease_ms": ticket["lease_ms"],
                "wait_ms": ticket["wait_ms"],
                "passed": ticket.get("passed", 0),
                "turn": ticket.get("turn", False),
            }
            for holder, ticket in keys["tickets"].items()
        },
        "states": {
            State(name.removeprefix("state:")): count
            for name, count in counters.items()
            if name.startswith("state:") and count != 0
        },
        "open": sorted(
            (*task_and_suspicion(source), group, key)
            for source, opened in keys.family("open:")
            for group, key in opened.items()
        ),
        "counts": dict(Counter(map(priority_of, keys["line"].values()))),
        "users": {
            name: (msgspec.convert(user["standing"], Standing), user.get("pinned", False))
            for name, user in keys["users"].items()
        },
        "quota": {(user, int(day)): int(used) for user, days in keys.family("quota:") for day, used in days.items()},
        "parents": {name: int(priority) for name, priority in keys["parents"].items()},
        "tasks": {
            name: (tuple(task.get("groups", ())), task.get("max_attempts")) for name, task in keys["tasks"].items()
        },
        "workers": {
            name: {
                "instance": worker["instance"],
                "tasks": tuple(worker["tasks"]),
                "capacity": worker["capacity"],
                "heard_at": worker["heard_at"],
                "expires_at": worker["expires_at"],
            }
            for name, worker in keys["workers"].items()
        },
        "events": _events(keys, oldest=counters.get("oldest_event", 1)),
        "audit": [
            audit_entry(id_, moment(at), by or None, action, subject, msgspec.json.decode(detail))
            for id_, (at, by, action, subject, detail) in audit_entries(keys)
        ],
        "series": {
            (field[2:], int(minute)): (int(count), int(figures.get(f"t:{field[2:]}", 0)))
            for minute, figures in keys.family("figures:")
            for field, count in figures.items()
            if field.startswith("n:")
        },
        "averages": {
            name: Mean(value=float(value), square=float(square), count=count)
            for name, (value, square, count) in keys["averages"].items()
        },
        "clock": {
            "noted_at": counters.get("noted_at") or None,
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


def _jobs(keys: Keys) -> dict[str, Any]:
    in_line = sorted(keys["line"], key=keys["line"].__getitem__)
    positions = {number: position for position, number in enumerate(in_line, start=1)}
    return {
        row.id: {
            "job": to_job(
                row,
                groups=groups_of_row(
                    row, task_groups=tuple(keys["tasks"].get(row.task, {}).get("groups", ())), own=row.own_groups
                ),
                position=positions.get(row.number),
                result=keys["results"].get(row.number),
                with_history=True,
            ),
            "key": row.key,
            "parked": parked_in(keys, lane_of_job(row)) if row.state == State.QUEUED else None,
            "due_at": row.due_at,
            "steady_at": row.steady_at,
            "start_by": row.start_by,
            "steady_start_by": row.steady_start_by,
            "overdue_message": row.overdue_message,
            "quota_day": row.quota_day,
            "deferred": row.deferred,
            "boost": row.boost,
            "iterations_batch": row.iterations_batch,
            "aged_at": row.aged_at,
            "reminded": row.reminded,
            "ended_token": None if row.ended_token is None else plain_token(row.ended_token),
            "payload": keys["payloads"].get(row.number),
            "checkpoint": keys["checkpoints"].get(row.number),
            "contact": keys["contacts"].get(row.number),
            "suspicion": row.suspicion,
            "number": int(row.number),
            "passed": row.passed,
            "turn": row.turn,
        }
        for row in keys["jobs"].values()
    }


def _events(keys: Keys, oldest: int) -> list[Event]:
    """An entry of the stream holds the events of one step and has the number of the last."""
    return [
        Event(id=id_, at=moment(at), kind=kind, subject=subject, detail=msgspec.json.decode(detail))
        for newest, entry in keys["events"].items()
        for id_, (at, kind, subject, detail) in enumerate(entry["events"], start=newest - len(entry["events"]) + 1)
        if id_ >= oldest
    ]
