"""Browser sessions: sign in with a key, look, sign out."""

from __future__ import annotations

from datetime import UTC, datetime

from qo.service.access.caller import Caller
from qo.service.access.refused import wrong_host
from qo.service.access.sessions import SESSION_LENGTH, clear_cookie, safe_next, set_cookie
from qo.service.access.site import Site
from qo.service.operations import Answer, Call, May, Operation
from qo.service.shapes import NoQuery, SessionInfo, SignIn


async def sign_in(call: Call) -> Answer:
    call.query(NoQuery)
    gate = call.shared.gate
    gate.check_forgery(call.request)
    wanted = await call.body(SignIn)
    caller = await gate.caller_with_key(call.request, wanted.key)
    assert caller.key_id is not None
    now = call.queue.system.now()
    value = await call.shared.sessions.make(caller.key_id, now)
    expires_at = min(now + SESSION_LENGTH, caller.expires_at or datetime.max.replace(tzinfo=UTC))
    shown = SessionInfo(role=caller.role, user=caller.user, expires_at=expires_at, next=safe_next(wanted.next))
    return Answer(shown, headers={"Set-Cookie": set_cookie(_site(call), value)})


async def show(call: Call) -> SessionInfo:
    return _info(call.caller)


async def sign_out(call: Call) -> Answer:
    if call.caller.session is not None:
        call.shared.watchers.close_session(call.caller.session)
    return Answer(_info(call.caller), headers={"Set-Cookie": clear_cookie(_site(call))})


def _info(caller: Caller) -> SessionInfo:
    return SessionInfo(role=caller.role, user=caller.user, expires_at=caller.expires_at)


def _site(call: Call) -> Site:
    site = call.shared.gate.site(call.request)
    if site is None:
        raise wrong_host()
    return site


OPERATIONS = (
    Operation(
        "POST",
        "/api/session",
        May.ANYBODY,
        sign_in,
        "Sign in with a key; answers a cookie.",
        SignIn,
        example={"key": "qo_01M7Q5T9NTZS80TM38DYZ02VCN_the-secret-of-the-key", "next": "/"},
        answers=SessionInfo,
    ),
    Operation("GET", "/api/session", May.OWNER, show, "Who this caller is.", answers=SessionInfo),
    Operation(
        "DELETE", "/api/session", May.OWNER, sign_out, "Sign out: the browser forgets the cookie.", answers=SessionInfo
    ),
)
