"""HTTP.md's table "Who may do what" as statuses. A new route needs one line in `ROUTES`, and a `make` if it has to find
something."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from qo.job import State
from qo.service.access.watch_links import WatchLinks
from qo.values import Outcome
from tests.service.conftest import Service

ANSWERS = """
caller                       | open sign-in | submit list estimate own change-own | who sign-out | view what-if | admin
no key                       | ok   ok      | 401    401  401      401 401        | 401 401      | 401  401     | 401
wrong key                    | ok   ok      | 401    401  401      401 401        | 401 401      | 401  401     | 401
expired key                  | ok   ok      | 401    401  401      401 401        | 401 401      | 401  401     | 401
revoked key                  | ok   ok      | 401    401  401      401 401        | 401 401      | 401  401     | 401
viewer                       | ok   ok      | 403    ok   ok       ok  403        | ok  ok       | ok   ok      | 403
user on own                  | ok   ok      | ok     ok   ok       ok  ok         | ok  ok       | 403  403     | 403
user on another's            | ok   ok      | ok     ok   403      404 404        | ok  ok       | 403  403     | 403
admin                        | ok   ok      | ok     ok   ok       ok  ok         | ok  ok       | ok   ok      | ok
cookie                       | ok   ok      | ok     ok   ok       ok  ok         | ok  ok       | ok   ok      | ok
cookie without X-Qo-Csrf     | ok   ok      | 403    ok   ok       ok  403        | ok  403      | ok   403     | 403
cookie without an origin     | ok   ok      | 403    ok   ok       ok  403        | ok  403      | ok   403     | 403
cookie from a foreign origin | ok   403     | 403    ok   ok       ok  403        | ok  403      | ok   403     | 403
cookie from a foreign site   | ok   403     | 403    ok   ok       ok  403        | ok  403      | ok   403     | 403
foreign Host                 | 421  421     | 421    421  421      421 421        | 421 421      | 421  421     | 421
admin by a proxy             | ok   ok      | ok     ok   ok       ok  ok         | ok  ok       | ok   ok      | ok
admin by a trusted proxy     | ok   ok      | ok     ok   ok       ok  ok         | ok  ok       | ok   ok      | ok
no key by a trusted proxy    | ok   ok      | 401    401  401      401 401        | 401 401      | 401  401     | 401
no keys at all               | ok   401     | ok     ok   ok       ok  ok         | ok  ok       | ok   ok      | ok
no keys, foreign origin      | ok   403     | 403    ok   ok       ok  403        | ok  403      | ok   403     | 403
no keys, foreign Host        | 421  421     | 421    421  421      421 421        | 421 421      | 421  421     | 421
no keys, Forwarded           | ok   401     | 403    403  403      403 403        | 403 403      | 403  403     | 403
no keys, Via                 | ok   401     | 403    403  403      403 403        | 403 403      | 403  403     | 403
no keys, X-Forwarded-For     | ok   401     | 403    403  403      403 403        | 403 403      | 403  403     | 403
no keys, X-Forwarded-Proto   | ok   401     | 403    403  403      403 403        | 403 403      | 403  403     | 403
no keys, by a trusted proxy  | ok   401     | 403    403  403      403 403        | 403 403      | 403  403     | 403
"""
"""The status of each kind of route for each caller. `ok` is the status that the route's document names."""
EXCEPTIONS = {("foreign Host", "GET /healthz"): 200, ("no keys, foreign Host", "GET /healthz"): 200}
"""Whoever asks whether the process lives may call it by any name."""

ME, STRANGER = "u1", "u2"
EVIL = "http://evil.example"
OURS = "(ours)"
"""Stands for the origin of the server."""


class Caller(NamedTuple):
    key: str | None = None
    """The role of the key in Authorization, or what is wrong with it."""
    headers: Mapping[str, str] = {}
    owner: str = ME
    """The user whose jobs are named."""
    has_cookie: bool = False
    """Whether an admin's session cookie is sent."""
    has_keys: bool = True
    """Whether there are keys on the server."""
    trusted_proxies: tuple[str, ...] = ()


CSRF = {"X-Qo-Csrf": "1"}
PROXIED = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https"}
LOOPBACK = ("127.0.0.0/8",)
CALLERS: dict[str, Caller] = {
    "no key": Caller(),
    "wrong key": Caller("wrong"),
    "expired key": Caller("expired"),
    "revoked key": Caller("revoked"),
    "viewer": Caller("viewer"),
    "user on own": Caller("user"),
    "user on another's": Caller("user", owner=STRANGER),
    "admin": Caller("admin"),
    "cookie": Caller(has_cookie=True, headers=CSRF | {"Origin": OURS}),
    "cookie without X-Qo-Csrf": Caller(has_cookie=True, headers={"Origin": OURS, "Sec-Fetch-Site": "same-origin"}),
    "cookie without an origin": Caller(has_cookie=True, headers=CSRF),
    "cookie from a foreign origin": Caller(has_cookie=True, headers=CSRF | {"Origin": EVIL}),
    "cookie from a foreign site": Caller(has_cookie=True, headers=CSRF | {"Sec-Fetch-Site": "cross-site"}),
    "foreign Host": Caller("admin", headers={"Host": "evil.example"}),
    "admin by a proxy": Caller("admin", headers=PROXIED),
    "admin by a trusted proxy": Caller("admin", headers=PROXIED, trusted_proxies=LOOPBACK),
    "no key by a trusted proxy": Caller(headers=PROXIED, trusted_proxies=LOOPBACK),
    "no keys at all": Caller(has_keys=False),
    "no keys, foreign origin": Caller(has_keys=False, headers={"Origin": EVIL}),
    "no keys, foreign Host": Caller(has_keys=False, headers={"Host": "evil.example"}),
    "no keys, Forwarded": Caller(has_keys=False, headers={"Forwarded": "for=203.0.113.7"}),
    "no keys, Via": Caller(has_keys=False, headers={"Via": "1.1 proxy"}),
    "no keys, X-Forwarded-For": Caller(has_keys=False, headers={"X-Forwarded-For": "127.0.0.1"}),
    "no keys, X-Forwarded-Proto": Caller(has_keys=False, headers={"X-Forwarded-Proto": "https"}),
    "no keys, by a trusted proxy": Caller(has_keys=False, headers=PROXIED, trusted_proxies=LOOPBACK),
}


def answers() -> dict[str, dict[str, str]]:
    """The table, by caller and kind."""
    heading, *lines = (line.replace("|", " | ", 1).split(" | ", 1) for line in ANSWERS.strip().splitlines())
    kinds = heading[1].replace("|", " ").split()
    return {
        caller.strip(): dict(zip(kinds, statuses.replace("|", " ").split(), strict=True)) for caller, statuses in lines
    }


# --- what a route finds -----------------------------------------------------------------------------------------

Names = dict[str, str]
Make = Callable[[Service, str, str], Awaitable[Names]]
"""Makes what the route is called for, of this owner and under this name. Returns the names for its path and body."""


async def nothing(served: Service, owner: str, name: str) -> Names:
    return {"name": name}


async def person(served: Service, owner: str, name: str) -> Names:
    return {"user": owner}


async def waiting_job(served: Service, owner: str, name: str) -> Names:
    await served.queue.submit("build", id=name, user=owner)
    return {"id": name, "other": (await served.queue.submit("build", user=owner)).id}


async def watched_job(served: Service, owner: str, name: str) -> Names:
    job = await served.queue.submit("build", id=name, user=owner)
    token = await WatchLinks(served.queue.store).make(job.id, job.submitted_at, job.submitted_at.replace(year=2999))
    return {"token": token}


async def started(served: Service, owner: str, name: str) -> str:
    """The token of a job that runs, in a group of its own with one slot. All of them have this name."""
    await served.queue.set_limit(name, 1)
    await served.queue.submit(name, id=name, user=owner, groups=[name])
    claimed = await served.queue.store.claim(worker="w", tasks=[name], capacity=1, lease_ms=60_000, claim_id=name)
    return claimed.leases[0].token


async def confirming_job(served: Service, owner: str, name: str) -> Names:
    token = await started(served, owner, name)
    await served.queue.store.finish([Outcome(job_id=name, token=token, state=State.CONFIRMING)])
    return {"id": name}


async def failed_job(served: Service, owner: str, name: str) -> Names:
    token = await started(served, owner, name)
    await served.queue.store.finish([Outcome(job_id=name, token=token, state=State.FAILED)])
    return {"id": name}


async def held_slot(served: Service, owner: str, name: str) -> Names:
    await started(served, owner, name)
    return {"group": name, "slot": "0"}


async def limited_group(served: Service, owner: str, name: str) -> Names:
    await served.queue.set_limit(name, 2)
    return {"group": name}


async def paused_group(served: Service, owner: str, name: str) -> Names:
    """The entry of a pause in the audit trail."""
    await served.queue.pause(name)
    (entry,) = await served.queue.audit(name)
    return {"id": str(entry.id)}


async def parent(served: Service, owner: str, name: str) -> Names:
    """Of a stranger's parent, a part is the caller's."""
    await served.queue.submit("build", parent=name, phase=1, user=owner)
    if owner == STRANGER:
        await served.queue.submit("build", parent=name, phase=2, user=ME)
    return {"parent": name}


async def icon(served: Service, owner: str, name: str) -> Names:
    return {"file": "icon.svg"}


async def script(served: Service, owner: str, name: str) -> Names:
    return {"folder": "js", "file": "app.js"}


async def script_of_a_part(served: Service, owner: str, name: str) -> Names:
    return {"folder": "js", "part": "line", "file": "row.js"}


async def first_key(served: Service, owner: str, name: str) -> Names:
    """The key that was made first, an admin's. A server learns of a new key within a second only."""
    return {"key": served.keys_made[0] if served.keys_made else "qo_nobody_nothing"}


# --- every route ------------------------------------------------------------------------------------------------


class Route(NamedTuple):
    kind: str
    """A column of the table."""
    make: Make = nothing
    body: Any = None
    """`{name}` in it stands for a name that `make` returned."""
    query: Mapping[str, str] = {}


ROUTES: dict[str, Route] = {
    "POST /api/jobs": Route("submit", body={"task": "build"}),
    "GET /api/jobs": Route("list", waiting_job),
    "GET /api/counts": Route("list", waiting_job),
    "GET /api/queue": Route("list", waiting_job),
    "GET /api/history": Route("list", failed_job),
    "GET /api/history/daily": Route("view", failed_job),
    "GET /api/jobs/{id}": Route("own", waiting_job),
    "GET /api/jobs/{id}/why": Route("own", waiting_job),
    "GET /api/jobs/{id}/stream": Route("own", waiting_job),
    "GET /api/usage/{user}": Route("own", person),
    "GET /api/parents/{parent}": Route("own", parent),
    "POST /api/parents/{parent}/cancel": Route("change-own", parent),
    "PATCH /api/parents/{parent}/priority": Route("admin", parent, {"priority": 20}),
    "POST /api/jobs/{id}/confirm": Route("change-own", confirming_job),
    "POST /api/jobs/{id}/cancel": Route("change-own", waiting_job),
    "POST /api/jobs/{id}/retry": Route("change-own", failed_job),
    "GET /api/estimate": Route("estimate", person, query={"task": "build", "user": "{user}"}),
    "POST /api/queue/what-if": Route("what-if", limited_group, {"variants": [{"limits": {"api": 3}}]}),
    "GET /api/concurrency": Route("view"),
    "GET /api/concurrency/{group}": Route("view", limited_group),
    "GET /api/concurrency/{group}/timeline": Route("view", limited_group),
    "GET /api/workers": Route("view"),
    "GET /api/analytics": Route("view"),
    "GET /api/audit": Route("view"),
    "GET /api/stream": Route("view"),
    "GET /metrics": Route("view"),
    "PATCH /api/queue/{id}/priority": Route("admin", waiting_job, {"priority": "low"}),
    "POST /api/queue/{id}/move": Route("admin", waiting_job, {"after": "{other}"}),
    "POST /api/queue/pause": Route("admin", limited_group, {"group": "{group}"}),
    "POST /api/queue/resume": Route("admin", limited_group, {"group": "{group}"}),
    "PUT /api/concurrency/{group}": Route("admin", limited_group, {"limit": 3}),
    "DELETE /api/concurrency/{group}": Route("admin", limited_group),
    "DELETE /api/concurrency/{group}/slots/{slot}": Route("admin", held_slot, query={"force": "true"}),
    "PUT /api/users/{user}/tier": Route("admin", person, {"tier": "partner"}),
    "POST /api/jobs/actions": Route("admin", waiting_job, {"action": "cancel", "ids": ["{id}"]}),
    "POST /api/audit/{id}/undo": Route("admin", paused_group),
    "POST /api/session": Route("sign-in", first_key, {"key": "{key}"}),
    "GET /api/session": Route("who"),
    "DELETE /api/session": Route("sign-out"),
    "GET /watch/{token}": Route("open", watched_job),
    "GET /": Route("open"),
    "GET /page/{file}": Route("open", icon),
    "GET /page/{folder}/{file}": Route("open", script),
    "GET /page/{folder}/{part}/{file}": Route("open", script_of_a_part),
    "GET /widget.js": Route("open"),
    "GET /healthz": Route("open"),
    "GET /readyz": Route("open"),
    "GET /docs": Route("open"),
    "GET /openapi.json": Route("open"),
    "GET /problems/{name}": Route("open"),
}
