"""All keys of a namespace on Redis, read in one moment and unpacked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from qo.job import State
from qo.store.redis.rows import JobRow, decode_row

if TYPE_CHECKING:
    from qo.store.redis.store import RedisStore

# What the functions keep; every other key is an index, which can be worked out from these.
PACKED_ROWS = {"jobs", "groups", "leases", "tickets", "users", "tasks", "workers", "averages", "audit", "records"}
PACKED_ROWS |= {"idle_workers"}
CONTENTS = {"payloads", "checkpoints", "results"}
ROWS = {*PACKED_ROWS, *CONTENTS, "contacts", "counters", "schema", "events", "parents", "kept", "outbox"}
PACKED = {*PACKED_ROWS, "claims"}
FAMILIES_OF_ROWS = ("quota:", "figures:", "errors:", "reply:")

COUNTERS = [
    *("newest_event", "newest_signal", "oldest_event", "next_sequence", "last_token", "last_job", "oldest_job"),
    *("last_audit", "forget_from", "noted_at", "lease_ms", "uncounted_ms", "fallen_ms", "renewed_since_gap"),
    *("token_at_gap", "waiting_callers", "soonest_due", "soonest_spans", "soonest_closed", "soonest_expiry"),
    *("soonest_ticket_expiry", "in_line", "turns", "turn_after", "kept", "soonest_start_by", "soonest_steady_start_by"),
    "suspects",
    *(f"state:{state}" for state in State),
    *("outbox_max", "outbox_added", "outbox_recorded", "outbox_newest", "outbox_dropped", "outbox_drops"),
    "outbox_payloads",
]
"""in the order in which `lib/counters.lua` keeps them"""

# One script, so that what it reads is of one moment, in one round trip.
READ_ALL = """
local read = {
  hash = { 'HGETALL' }, zset = { 'ZRANGE', 0, -1, 'WITHSCORES' }, set = { 'SMEMBERS' }, list = { 'LRANGE', 0, -1 },
  stream = { 'XRANGE', '-', '+' }, string = { 'GET' },
}
local found = {}
for i, key in ipairs(redis.call('KEYS', KEYS[1] .. '*')) do
  local kind = redis.call('TYPE', key).ok
  local command = read[kind]
  found[i] = { key, kind, redis.call(command[1], key, unpack(command, 2)), redis.call('PTTL', key) }
end
return found
"""


@dataclass(frozen=True)
class Keys:
    """All keys of the namespace, without its prefix. Each is a dict, so that any two can be compared member by member:
    a hash by field, a sorted set by member, a set with None, a list by index, the feed by event."""

    by_name: dict[str, dict[Any, Any]]
    lifetimes_ms: dict[str, int]

    def __getitem__(self, name: str) -> dict[Any, Any]:
        return self.by_name.get(name, {})

    def family(self, prefix: str) -> Iterator[tuple[str, dict[Any, Any]]]:
        """The keys that begin so, each by the rest of its name."""
        return ((name[len(prefix) :], key) for name, key in self.by_name.items() if name.startswith(prefix))


async def read_all(store: RedisStore) -> Keys:
    prefix = store.client.prefix
    by_name: dict[str, dict[Any, Any]] = {}
    lifetimes_ms: dict[str, int] = {}
    for key, kind, value, lifetime_ms in await store.client.command("EVAL", READ_ALL, 1, prefix):
        name = key.decode().removeprefix(prefix)
        by_name[name] = _decoded(name, kind.decode(), value)
        lifetimes_ms[name] = lifetime_ms
    return Keys(by_name, lifetimes_ms)


def _decoded(name: str, kind: str, value: Any) -> dict[Any, Any]:
    match kind:
        case "hash":
            return {field.decode(): _field(name, packed) for field, packed in _pairs(value)}
        case "zset":
            return {member.decode(): int(score) for member, score in _pairs(value)}
        case "set":
            return {member.decode(): None for member in value}
        case "list":
            return {index: element.decode() for index, element in enumerate(value)}
        case "stream" if name == "outbox":
            return {int(id_.removesuffix(b"-0")): dict(_pairs(fields)) for id_, fields in value}
        case "stream":
            return {int(id_.removesuffix(b"-0")): _entry(dict(_pairs(fields))) for id_, fields in value}
        case _ if name == "counters":
            return dict(zip(COUNTERS, msgspec.msgpack.decode(value), strict=True))
        case _ if name == "kept":
            return dict(msgspec.msgpack.decode(value))
        case _:
            return {0: value}


def _pairs(flat: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _entry(fields: dict[bytes, bytes]) -> dict[str, Any]:
    return {"events": msgspec.msgpack.decode(fields[b"events"]), "kinds": fields[b"kinds"].decode().split(",")}


def _field(name: str, packed: bytes) -> Any:
    if name == "jobs":
        return decode_row(packed)
    if name == "lanes":
        return msgspec.msgpack.decode(b"\x94" + packed)  # four values one after the other, which this makes a list
    if name in PACKED:
        return msgspec.msgpack.decode(packed)
    return packed if name in CONTENTS else packed.decode()


def lane_of_job(row: JobRow) -> str:
    """The name of the lane of a job in line, as `tasks.lane_of` in `lib/rows.lua` makes it."""
    named = (row.task, str(row.priority), row.user, row.project, row.tier, row.parent)
    lane = "\0".join([*(name or "" for name in named), "\0".join(row.own_groups)])
    return f"\1{row.suspicion}{lane}" if row.suspicion else lane


def source_of_job(row: JobRow) -> str:
    """What the job's task is to the indexes, as `tasks.source_of` in `lib/rows.lua` makes it."""
    return f"{row.task}\1{row.suspicion}" if row.suspicion else row.task


def task_and_suspicion(source: str) -> tuple[str, int]:
    task, _, suspicion = source.partition("\1")
    return task, int(suspicion or 0)


def lane_of_caller(ticket: dict[str, Any]) -> str:
    return "\0".join(["", *ticket["groups"]])


def parked_in(keys: Keys, lane: str) -> str | None:
    """The group in which a lane waits, which is the only thing that its record alone says; None where it is ready."""
    _, _, _, group = keys["lanes"].get(lane, (None, None, None, None))
    return group or None


def audit_entries(keys: Keys) -> list[tuple[int, list[Any]]]:
    return sorted((int(id_), entry) for id_, entry in keys["audit"].items())
