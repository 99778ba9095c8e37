"""What each operation sends, where that is not just its parameters."""

from __future__ import annotations

import msgspec

from qo.store.redis import wire
from qo.store.redis.calling import FIRST_BLOB, Given, Sent
from qo.store.redis.rows import stored_token


def submit(given: Given) -> Sent:
    submissions = given["submissions"]
    wanted = [wire.submission(submission, number) for number, submission in enumerate(submissions, FIRST_BLOB)]
    return Sent({"submissions": wanted}, [submission.payload for submission in submissions])


def claim(given: Given) -> Sent:
    return Sent({**given, "tasks": list(given["tasks"])})


def renew(given: Given) -> Sent:
    renewals = given["renewals"]
    sent = {
        "renewals": [wire.renewal(renewal) for renewal in renewals],
        "worker": given["worker"],
        "instance": given["instance"],
        "tickets": list(given["tickets"]),
    }
    return Sent(sent, once=any(renewal.extend_ms for renewal in renewals))


def advance(given: Given) -> Sent:
    blobs: list[bytes] = []
    return Sent({"advances": [wire.advance(item, blobs) for item in given["advances"]]}, blobs)


def finish(given: Given) -> Sent:
    blobs: list[bytes] = []
    return Sent({"outcomes": [wire.outcome(item, blobs) for item in given["outcomes"]]}, blobs)


def set_limits(given: Given) -> Sent:
    return Sent({**given, "limits": list(given["limits"])}, once=True)


def set_paused(given: Given) -> Sent:
    return Sent({**given, "paused": bool(given["paused"])}, once=True)


def revoke(given: Given) -> Sent:
    return Sent({**given, "force": bool(given["force"])}, once=True)


def acquire(given: Given) -> Sent:
    return Sent({"tickets": list(given["tickets"])}, once=True)


def release(given: Given) -> Sent:
    holders = [
        {"holder": holder, "token": None if token is None else stored_token(token)}
        for holder, token in given["holders"]
    ]
    return Sent({"holders": holders}, once=True)


def register(given: Given) -> Sent:
    return Sent(wire.registration(given["registration"]), once=True)


def upkeep(given: Given) -> Sent:
    return Sent(wire.upkeep_rules(given["rules"]), once=True)


def observe(given: Given) -> Sent:
    sent = {
        "observations": [[average, float(value)] for average, value in given["observations"]],
        "errors": {task: [repr(float(ratio)) for ratio in ratios] for task, ratios in given["errors"].items()},
        "keep_errors": given["keep_errors"],
    }
    return Sent(sent, once=True)


def note_promises(given: Given) -> Sent:
    ranges = given["ranges"]
    return Sent({"ids": list(ranges), "spans": [f"{lower} {upper}" for lower, upper in ranges.values()]}, once=True)


def put_record(given: Given) -> Sent:
    value, audited = given["value"], given["audited"]
    if audited is not None:
        audited = {**msgspec.structs.asdict(audited), "detail": wire.json_text(audited.detail)}
    return Sent({**given, "value": None if value is None else wire.json_text(value), "audited": audited}, once=True)


def groups(given: Given) -> Sent:
    return Sent({"names": None if given["names"] is None else list(given["names"])})


def observed(given: Given) -> Sent:
    return Sent({"names": list(given["names"]), "tasks": list(given["tasks"])})
