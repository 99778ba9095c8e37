"""What only a store on Redis keeps, worked out from its rows and compared: indexes, counters, the feed, lifetimes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from qo.job import ENDED, State
from qo.policy.ordering import parent_order, place_of, was_moved
from qo.store.redis.rows import JobRow
from qo.values import Source
from tests.store.redis.keys import (
    FAMILIES_OF_ROWS,
    ROWS,
    Keys,
    audit_entries,
    lane_of_caller,
    lane_of_job,
    parked_in,
    source_of_job,
)

CALLERS = ""  # the "task" under which waiting callers are parked


def check_integrity(keys: Keys) -> None:
    """Every index is what its rows say, every key is known, and nothing is left of jobs that are gone."""
    differences = [
        *_differences_of_indexes(keys),
        *_differences_of_contents(keys),
        *_differences_of_counters(keys),
        *_differences_of_feed(keys),
        *_differences_of_lifetimes(keys),
    ]
    assert not differences, "\n".join(["Redis keys that do not fit their rows:", *differences])


def _differences_of_indexes(keys: Keys) -> Iterator[str]:
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


def _differences_of_contents(keys: Keys) -> Iterator[str]:
    jobs = keys["jobs"]
    succeeded = {number for number, row in jobs.items() if row.state == State.SUCCEEDED}
    with_contact = {number for number, row in jobs.items() if row.has_contact}
    if keys["contacts"].keys() != with_contact:
        yield f"  'contacts': has {sorted(keys['contacts'])}, should have {sorted(with_contact)}"
    for name, allowed in (("payloads", set(jobs)), ("checkpoints", set(jobs)), ("results", succeeded)):
        if surplus := keys[name].keys() - allowed:
            yield f"  {name!r}: has {sorted(surplus)}, which no job asks for"
    for name, size in (("payloads", "payload_bytes"), ("checkpoints", "checkpoint_bytes")):
        for number, row in jobs.items():
            if getattr(row, size) != len(keys[name].get(number, b"")):
                yield f"  {name!r}: {number} is said to have {getattr(row, size)} bytes, which is not so"
    if missing := jobs.keys() - keys["payloads"].keys():
        yield f"  'payloads': of {sorted(missing)} are missing"
    for number, row in jobs.items():
        if row.number != number:
            yield f"  'jobs': {number!r} holds the row of {row.number!r}"
    parents = {row.parent for row in jobs.values()} - {None}
    if keys["parents"].keys() != parents:
        yield f"  'parents': has {sorted(keys['parents'])}, those of jobs are {sorted(parents)}"
    for user, days in keys.family("quota:"):
        if unused := {day: used for day, used in days.items() if int(used) <= 0}:
            yield f"  'quota:{user}': keeps days without use, {unused}"
    for minute, figures in keys.family("figures:"):
        if alone := [field for field in figures if field[:2] != "n:" and f"n:{field[2:]}" not in figures]:
            yield f"  'figures:{minute}': has totals without a count, {alone}"


def _differences_of_counters(keys: Keys) -> Iterator[str]:
    jobs, counters = keys["jobs"], keys["counters"]
    oldest, last = counters.get("oldest_job", 1), counters.get("last_job", 0)
    if strangers := sorted(number for number in jobs if not oldest <= int(number) <= last):
        yield f"  'counters': jobs are {oldest} to {last} by them, and yet there are {strangers}"
    last_token = counters.get("last_token", 0)
    if newer := sorted(token for token in keys["leases"] if int(token) > last_token):
        yield f"  'counters': the last token is {last_token} by them, and yet there are {newer}"
    waiting = counters.get("waiting_callers", 0)
    if waiting != len(keys["tickets"]):
        yield f"  'counters': {waiting} callers wait by them, and yet there are {sorted(keys['tickets'])}"
    in_line = counters.get("in_line", 0)
    if in_line != len(keys["line"]):
        yield f"  'counters': {in_line} jobs are in line by them, and yet there are {sorted(keys['line'])}"
    for name in ("turns", "kept"):
        if counters.get(name, 0) != len(keys[name]):
            yield f"  'counters': {name} is {counters[name]} by them, and yet it is {keys[name]}"
    suspects = sorted(row.id for row in jobs.values() if row.suspicion and row.state not in ENDED)
    if counters.get("suspects", 0) != len(suspects):
        yield f"  'counters': {counters['suspects']} suspects wait or run by them, and yet there are {suspects}"
    for index in ("due", "spans", "closed", "expiry", "ticket_expiry", "start_by", "steady_start_by"):
        soonest, first = counters.get(f"soonest_{index}"), min(keys[index].values(), default=None)
        if first is not None and soonest > first:
            yield f"  'counters': nothing is due in {index!r} before {soonest} by them, and yet something is at {first}"


def _differences_of_feed(keys: Keys) -> Iterator[str]:
    counters = keys["counters"]
    oldest, newest = counters.get("oldest_event", 1), counters.get("newest_event", 0)
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
    ids = [id_ for id_, _ in audit_entries(keys)]
    last = counters.get("last_audit", 0)
    if ids != list(range(last - len(ids) + 1, last + 1)):
        yield f"  'audit': has {ids}, the last one is {last}"


def _differences_of_lifetimes(keys: Keys) -> Iterator[str]:
    """Replies go by themselves, nothing else does."""
    for name, lifetime_ms in keys.lifetimes_ms.items():
        if (lifetime_ms == -1) == name.startswith("reply:"):
            yield f"  {name!r}: lives for {lifetime_ms} ms"


class _Indexes:
    """All indexes, worked out from the rows."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.by_name: dict[str, dict[Any, Any]] = {}
        self.clashes: list[str] = []
        self.lanes: dict[tuple[str, str], dict[str, int]] = {}
        """by task and name: the keys of their members"""
        for row in keys["jobs"].values():
            self.add_job(row)
        self.add_leases()
        self.add_slots()
        self.add_tickets()
        self.add_lanes()
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
            if row.turn:
                self.put("turns", f"job:{row.number}", None)
            self.lanes.setdefault((source_of_job(row), lane_of_job(row)), {})[row.number] = row.key or 0
        if row.key is not None and was_moved(place_of(row.key)):
            self.put("moved", str(place_of(row.key)), row.number)
        if row.due_at is not None:
            index = "due" if row.steady_at is None else "spans"
            self.put(index, f"{parent_order(row.parent)}\0{row.phase or 0:010d}\0{row.number}", row.due_at)
        if row.started_at is None and row.state not in ENDED:
            for index, latest in (("start_by", row.start_by), ("steady_start_by", row.steady_start_by)):
                if latest is not None:
                    self.put(index, row.number, latest)
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
            self.add_phase(row)
        if row.state in ENDED:
            self.put(f"endings:{row.parent}", row.number, row.finished_at)
        self.count("unfinished", str(row.parent), row.state not in ENDED)

    def add_phase(self, row: JobRow) -> None:
        """The newest job of a phase counts; all those before it were cancelled."""
        phases = self.by_name.setdefault(f"phases:{row.parent}", {})
        *older, newest = sorted({row.number, phases.get(str(row.phase), row.number)})
        phases[str(row.phase)] = newest
        if older and self.keys["jobs"][older[0]].state != State.CANCELLED:
            self.clashes.append(f"  'phases:{row.parent}': {row.phase} is claimed by {older[0]!r} and by {newest!r}")

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
            self.lanes.setdefault((CALLERS, lane_of_caller(ticket)), {})[holder] = ticket["key"]
            self.put("ticket_expiry", f"{ticket['key']:016d}{holder}", ticket["expires_at"])
            if ticket.get("turn"):
                self.put("turns", f"caller:{holder}", None)

    # --- lanes and groups -------------------------------------------------------------------------------------

    def add_lanes(self) -> None:
        """Only the first of a lane is in an index. Where the lane waits is kept nowhere else, so it is believed."""
        for (task, lane), members in self.lanes.items():
            first = min(members, key=members.__getitem__)
            group = parked_in(self.keys, lane)
            self.put("lanes", lane, [first, members[first], len(members) > 1, group or False])
            if len(members) > 1:
                self.by_name[f"lane:{lane}"] = dict(members)
            if group is None:
                self.put(f"ready:{task}", first, members[first])
            else:
                self.put(f"parked:{task}\0{group}", first, members[first])
                parks = self.by_name.setdefault(f"parks:{group}", {})
                parks[task] = str(int(parks.get(task, 0)) + len(members))

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
        # The others may be there for longer, until somebody meets them.
        for task, workers in self.keys.family("idle:"):
            for worker, until in workers.items():
                self.put(f"idle:{task}", worker, until)
        for task in self.keys["idle_tasks"]:
            self.put("idle_tasks", task, None)
        for worker in self.keys["draining"]:
            self.put("draining", worker, None)

    def add_what_is_beside(self) -> None:
        for minute, _ in self.keys.family("figures:"):
            self.put("minutes", minute, int(minute))
        for name in self.keys["records"]:
            self.put("record_names", name, 0)
        for id_, (_, _, _, subject, _) in audit_entries(self.keys):
            entries = self.by_name.setdefault(f"audit:{subject}", {})
            entries[len(entries)] = str(id_)
