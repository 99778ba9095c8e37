"""Everything a Redis store knows, read straight from its keys, in the shape the state machine compares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from qo.event import AuditEntry, Event
from qo.job import ENDED, State, moment
from qo.policy.ordering import parent_order, place_of, priority_of, was_moved
from qo.store.redis.rows import JobRow, decode_row, plain_token, to_job
from qo.store.values import Mean, Source, Standing

if TYPE_CHECKING:
    from qo.store.redis.store import RedisStore

CALLERS = ""  # the "task" under which waiting callers are parked

# What the scripts keep; every other key is an index, which can be worked out from these.
PACKED_ROWS = {"jobs", "groups", "leases", "tickets", "users", "tasks", "workers", "averages", "audit", "records"}
PACKED_ROWS |= {"idle_workers"}
CONTENTS = {"payloads", "checkpoints", "results"}
ROWS = {*PACKED_ROWS, *CONTENTS, "counters", "events", "parents"}
PACKED = {*PACKED_ROWS, "claims"}
FAMILIES_OF_ROWS = ("quota:", "figures:", "errors:", "reply:")

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


async def snapshot(store: RedisStore) -> dict[str, Any]:
    keys = await _read_all(store)
    _check_integrity(keys)
    counters = {name: int(value) for name, value in keys["counters"].items()}
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
                "parked": ticket.get("parked"),
                "expires_at": ticket["expires_at"],
                "lease_ms": ticket["lease_ms"],
                "wait_ms": ticket["wait_ms"],
            }
            for holder, ticket in keys["tickets"].items()
        },
        "open": sorted((task, group, key) for task, opened in keys.family("open:") for group, key in opened.items()),
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
            name: {"tasks": tuple(worker["tasks"]), "places": worker["places"], "expires_at": worker["expires_at"]}
            for name, worker in keys["workers"].items()
        },
        "events": _events(keys, oldest=counters.get("oldest_event", 1)),
        "audit": [
            AuditEntry(
                id=id_, at=moment(at), by=by or None, action=action, subject=subject, detail=msgspec.json.decode(detail)
            )
            for id_, (at, by, action, subject, detail) in _audit(keys)
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
            "noted_at": counters.get("noted_at"),
            "no_expiry_before": counters.get("no_expiry_before", 0),
            "next_sequence": counters.get("next_sequence", 64),
            "last_token": counters.get("last_token", 0),
        },
    }


def _jobs(keys: _Keys) -> dict[str, Any]:
    in_line = sorted(keys["line"], key=keys["line"].__getitem__)
    positions = {number: position for position, number in enumerate(in_line, start=1)}
    return {
        row.id: {
            "job": to_job(
                row,
                task_groups=tuple(keys["tasks"].get(row.task, {}).get("groups", ())),
                position=positions.get(row.number),
                result=keys["results"].get(row.number),
            ),
            "key": row.key,
            "parked": row.parked,
            "due_at": row.due_at,
            "quota_day": row.quota_day,
            "deferred": row.deferred,
            "boost": row.boost,
            "iterations_batch": row.iterations_batch,
            "aged_at": row.aged_at,
            "reminded": row.reminded,
            "ended_token": None if row.ended_token is None else plain_token(row.ended_token),
            "payload": keys["payloads"].get(row.number),
            "checkpoint": keys["checkpoints"].get(row.number),
            "number": int(row.number),
        }
        for row in keys["jobs"].values()
    }


def _events(keys: _Keys, oldest: int) -> list[Event]:
    """An entry of the stream holds the events of one step and has the number of the last."""
    return [
        Event(id=id_, at=moment(at), kind=kind, subject=subject, detail=msgspec.json.decode(detail))
        for newest, entry in keys["events"].items()
        for id_, (at, kind, subject, detail) in enumerate(entry["events"], start=newest - len(entry["events"]) + 1)
        if id_ >= oldest
    ]


def _audit(keys: _Keys) -> list[tuple[int, list[Any]]]:
    return sorted((int(id_), entry) for id_, entry in keys["audit"].items())


# --- reading ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Keys:
    """All keys of the namespace, without its prefix. Each is a dict, so that any two can be compared member by member:
    a hash by field, a sorted set by member, a set with None, a list by index, the feed by event."""

    by_name: dict[str, dict[Any, Any]]
    lifetimes_ms: dict[str, int]

    def __getitem__(self, name: str) -> dict[Any, Any]:
        return self.by_name.get(name, {})

    def family(self, prefix: str) -> Iterator[tuple[str, dict[Any, Any]]]:
        """The keys that begin so, each by the rest of its name."""
        return ((name[len(prefix) :], key) for name, key in self.by_name.items() if name.startswith(prefix))


async def _read_all(store: RedisStore) -> _Keys:
    prefix = store.client.prefix
    by_name: dict[str, dict[Any, Any]] = {}
    lifetimes_ms: dict[str, int] = {}
    for key, kind, value, lifetime_ms in await store.client.command("EVAL", READ_ALL, 1, prefix):
        name = key.decode().removeprefix(prefix)
        by_name[name] = _decoded(name, kind.decode(), value)
        lifetimes_ms[name] = lifetime_ms
    return _Keys(by_name, lifetimes_ms)


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
        case "stream":
            return {int(id_.removesuffix(b"-0")): _entry(dict(_pairs(fields))) for id_, fields in value}
        case _:
            return {0: value}


def _pairs(flat: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _entry(fields: dict[bytes, bytes]) -> dict[str, Any]:
    return {"events": msgspec.msgpack.decode(fields[b"events"]), "kinds": fields[b"kinds"].decode().split(",")}


def _field(name: str, packed: bytes) -> Any:
    if name == "jobs":
        return decode_row(packed)
    if name in PACKED:
        return msgspec.msgpack.decode(packed)
    return packed if name in CONTENTS else packed.decode()


# --- what only this store keeps ---------------------------------------------------------------------------------


def _check_integrity(keys: _Keys) -> None:
    """Every index is what its rows say, every key is known, and nothing is left of jobs that are gone."""
    differences = [
        *_differences_of_indexes(keys),
        *_differences_of_contents(keys),
        *_differences_of_feed(keys),
        *_differences_of_lifetimes(keys),
    ]
    assert not differences, "\n".join(["Redis keys that do not fit their rows:", *differences])


def _differences_of_indexes(keys: _Keys) -> Iterator[str]:
    expected = _Indexes(keys)
    yield from expected.clashes
    for name in sorted({*keys.by_name, *expected.by_name}):
        if name in ROWS or name.startswith(FAMILIES_OF_ROWS):
            continue
        if name not in expected.by_name:
            yield f"  {name!r}: no rows ask for this key, it holds {keys[name]}"
        else:
            yield from _differences_between(name, keys[name], expected.by_name[name])


def _differences_between(name: str, actual: dict[Any, Any], expected: dict[Any, Any]) -> Iterator[str]:
    for member in sorted({*actual, *expected}):
        if member not in actual:
            yield f"  {name!r}: {member!r} is missing, should be {expected[member]!r}"
        elif member not in expected:
            yield f"  {name!r}: {member!r} should not be there, is {actual[member]!r}"
        elif actual[member] != expected[member]:
            yield f"  {name!r}: {member!r} should be {expected[member]!r}, is {actual[member]!r}"


def _differences_of_contents(keys: _Keys) -> Iterator[str]:
    jobs, counters = keys["jobs"], keys["counters"]
    succeeded = {number for number, row in jobs.items() if row.state == State.SUCCEEDED}
    for name, allowed in (("payloads", set(jobs)), ("checkpoints", set(jobs)), ("results", succeeded)):
        if surplus := keys[name].keys() - allowed:
            yield f"  {name!r}: has {sorted(surplus)}, which no job asks for"
    if missing := jobs.keys() - keys["payloads"].keys():
        yield f"  'payloads': of {sorted(missing)} are missing"
    for number, row in jobs.items():
        if row.number != number:
            yield f"  'jobs': {number!r} holds the row of {row.number!r}"
    oldest, last = int(counters.get("oldest_job", 1)), int(counters.get("last_job", 0))
    if strangers := sorted(number for number in jobs if not oldest <= int(number) <= last):
        yield f"  'counters': jobs are {oldest} to {last} by them, and yet there are {strangers}"
    last_token = int(counters.get("last_token", 0))
    if newer := sorted(token for token in keys["leases"] if int(token) > last_token):
        yield f"  'counters': the last token is {last_token} by them, and yet there are {newer}"
    parents = {row.parent for row in jobs.values()} - {None}
    if keys["parents"].keys() != parents:
        yield f"  'parents': has {sorted(keys['parents'])}, those of jobs are {sorted(parents)}"
    for user, days in keys.family("quota:"):
        if unused := {day: used for day, used in days.items() if int(used) <= 0}:
            yield f"  'quota:{user}': keeps days without use, {unused}"
    for minute, figures in keys.family("figures:"):
        if alone := [field for field in figures if field[:2] != "n:" and f"n:{field[2:]}" not in figures]:
            yield f"  'figures:{minute}': has totals without a count, {alone}"


def _differences_of_feed(keys: _Keys) -> Iterator[str]:
    counters = keys["counters"]
    oldest, newest = int(counters.get("oldest_event", 1)), int(counters.get("newest_event", 0))
    before = None
    for last, entry in keys["events"].items():
        first = last - len(entry["events"]) + 1
        if before is None and not first <= oldest <= last:
            yield f"  'events': the first entry is {first} to {last}, the oldest event is {oldest}"
        if before is not None and first != before + 1:
            yield f"  'events': {first} to {last} follows on {before}"
        if sorted(entry["kinds"]) != ["", "", *sorted({kind for _, kind, _, _ in entry["events"]})]:
            yield f"  'events': {first} to {last} are said to be {entry['kinds']}, and are {entry['events']}"
        before = last
    if (before or oldest - 1) != newest:
        yield f"  'events': ends with {before}, the newest event is {newest}"
    ids = [id_ for id_, _ in _audit(keys)]
    if ids != list(range(1, int(counters.get("last_audit", 0)) + 1)):
        yield f"  'audit': has {ids}, the last one is {counters.get('last_audit', 0)}"


def _differences_of_lifetimes(keys: _Keys) -> Iterator[str]:
    """Replies go by themselves, nothing else does."""
    for name, lifetime_ms in keys.lifetimes_ms.items():
        if (lifetime_ms == -1) == name.startswith("reply:"):
            yield f"  {name!r}: lives for {lifetime_ms} ms"


class _Indexes:
    """All indexes, worked out from the rows."""

    def __init__(self, keys: _Keys) -> None:
        self.keys = keys
        self.by_name: dict[str, dict[Any, Any]] = {}
        self.clashes: list[str] = []
        for row in keys["jobs"].values():
            self.add_job(row)
        self.add_leases()
        self.add_slots()
        self.add_tickets()
        self.add_groups()
        self.add_open()
        self.add_people()
        self.add_idle_workers()
        self.add_what_is_beside()

    def put(self, name: str, member: Any, value: Any) -> None:
        index = self.by_name.setdefault(name, {})
        if index.setdefault(member, value) != value:
            self.clashes.append(f"  {name!r}: {member!r} is claimed by {index[member]!r} and by {value!r}")

    def count(self, name: str, member: str, change: bool) -> None:
        index = self.by_name.setdefault(name, {})
        index[member] = str(int(index.get(member, 0)) + change)

    # --- jobs -------------------------------------------------------------------------------------------------

    def add_job(self, row: JobRow) -> None:
        self.put("ids", row.id, row.number)
        if row.state == State.QUEUED:
            self.put("line", row.number, row.key)
            self.put("aged", row.number, row.aged_at)
            self.add_candidate(row.task, row.parked, row.number, row.key)
        if row.key is not None and was_moved(place_of(row.key)):
            self.put("moved", str(place_of(row.key)), row.number)
        if row.due_at is not None:
            self.put("due", f"{parent_order(row.parent)}\0{row.phase or 0:010d}\0{row.id}", row.due_at)
        if row.deferred:
            self.put(f"deferred:{row.user}", row.number, row.run_at)
        if row.confirming_at is not None:
            self.put("confirming", row.number, row.confirming_at)
            self.put(f"reminded:{row.reminded}", row.number, row.confirming_at)
        if row.state in ENDED:
            self.put("finished", row.number, row.finished_at)
        elif row.unique_key is not None:
            self.put("unique", row.unique_key, row.number)
        if row.user is not None:
            self.put(f"jobs_of:{row.user}", row.number, int(row.number))
        if row.parent is not None:
            self.add_child(row)

    def add_child(self, row: JobRow) -> None:
        self.put(f"children:{row.parent}", row.number, int(row.number))
        if row.phase is not None:
            self.put(f"phases:{row.parent}", str(row.phase), row.number)
        if row.state in ENDED:
            self.put(f"endings:{row.parent}", row.number, row.finished_at)
        self.count("unfinished", str(row.parent), row.state not in ENDED)

    def add_candidate(self, task: str, parked: str | None, member: str, key: int | None) -> None:
        if parked is None:
            self.put(f"ready:{task}", member, key)
        else:
            self.put(f"parked:{task}\0{parked}", member, key)
            self.put(f"parks:{parked}", task, None)

    # --- leases, slots and tickets ----------------------------------------------------------------------------

    def add_leases(self) -> None:
        for token, lease in sorted(self.keys["leases"].items()):
            self.put("expiry", token, self.keys["expiry"].get(token))
            for group, number in lease.get("slots", {}).items():
                self.put(f"held:{group}", token, number)
            if "job" in lease:
                self.put(f"running:{lease['worker']}", token, None)
                self.by_name.setdefault("claims", {}).setdefault(lease["claim"], []).append(token)
            else:
                self.put("callers", lease["holder"], token)

    def add_slots(self) -> None:
        """A free number is kept while a higher one is held."""
        held = {name: index for name, index in self.by_name.items() if name.startswith("held:")}
        for name, index in held.items():
            numbers = set(index.values())
            self.put("holding", name.removeprefix("held:"), None)
            if len(numbers) < len(index):
                self.clashes.append(f"  {name!r}: a number is held twice, {index}")
            for number in set(range(max(numbers))) - numbers:
                self.put(name.replace("held:", "free:", 1), str(number), number)

    def add_tickets(self) -> None:
        for holder, ticket in self.keys["tickets"].items():
            self.add_candidate(CALLERS, ticket.get("parked"), holder, ticket["key"])
            self.put("ticket_expiry", f"{ticket['key']:016d}{holder}", ticket["expires_at"])

    # --- groups -----------------------------------------------------------------------------------------------

    def add_groups(self) -> None:
        for name, group in self.keys["groups"].items():
            if group.get("closed_until") is not None:
                self.put("closed", name, group["closed_until"])
            if group.get("source") in (Source.TIER, Source.SUBMIT):
                self.put("limit_ages", name, group["last_job"])

    def add_open(self) -> None:
        """A group is in open(task) exactly when it has room and parked ones of that task, under its head's key."""
        parks = [(name[len("parks:") :], tasks) for name, tasks in self.by_name.items() if name.startswith("parks:")]
        for group, tasks in parks:
            for task in tasks if self.has_room(group) else ():
                self.put(f"open:{task}", group, min(self.by_name[f"parked:{task}\0{group}"].values()))

    def has_room(self, name: str) -> bool:
        group, active = self.keys["groups"].get(name, {}), len(self.by_name.get(f"held:{name}", ()))
        closed = group.get("paused") or group.get("closed_until") is not None
        return not closed and ("limit" not in group or active < group["limit"])

    # --- users, workers and the rest --------------------------------------------------------------------------

    def add_people(self) -> None:
        for user, days in self.keys.family("quota:"):
            for day in map(int, days):
                self.put("quota_days", f"{day:06d}{user}", day)
        for name, user in self.keys["users"].items():
            if not user.get("pinned") and f"quota:{name}" not in self.keys.by_name:
                self.put("idle_users", name, user["last_job"])

    def add_idle_workers(self) -> None:
        for worker, idle in self.keys["idle_workers"].items():
            for task in idle["tasks"]:
                self.put(f"idle:{task}", worker, self.keys[f"idle:{task}"].get(worker))
                self.put("idle_tasks", task, None)
        for task in self.keys["idle_tasks"]:
            self.put("idle_tasks", task, None)  # it may be there for longer, until somebody looks at it

    def add_what_is_beside(self) -> None:
        for minute, _ in self.keys.family("figures:"):
            self.put("minutes", minute, int(minute))
        for name in self.keys["records"]:
            self.put("record_names", name, 0)
        for id_, (_, _, _, subject, _) in _audit(self.keys):
            entries = self.by_name.setdefault(f"audit:{subject}", {})
            entries[len(entries)] = str(id_)
