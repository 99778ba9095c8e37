"""The gate that every request passes: is it for this server, who sent it, and did a page of ours send it?"""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256

from starlette.requests import Request

from qo.errors import SettingsError
from qo.loops.system import SYSTEM, System
from qo.service.access import refused
from qo.service.access.addresses import address_of, is_loopback, networks, peer_of
from qo.service.access.attempts import Attempts
from qo.service.access.caller import Caller, Role
from qo.service.access.keys import Key, Keys
from qo.service.access.sessions import Sessions, cookie_name
from qo.service.access.site import Site, is_ip_literal, parsed_host, site_of_request, site_of_url
from qo.settings.sections import ServerSettings

HARMLESS_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
HEALTH_PATH = "/healthz"
LOCALHOST = "localhost"


class Gate:
    def __init__(self, keys: Keys, sessions: Sessions, settings: ServerSettings, *, system: System = SYSTEM) -> None:
        """Raises `SettingsError` for a public_url, a host or a proxy that is malformed."""
        self._keys = keys
        self._sessions = sessions
        self._system = system
        self._public_site = None if settings.public_url is None else site_of_url(settings.public_url)
        self._hosts = frozenset({LOCALHOST, *map(_checked_name, settings.hosts)})
        self._trusted_proxies = networks(settings.trusted_proxies)
        self._attempts = Attempts(system.monotonic)

    async def who(self, request: Request) -> Caller:
        """The caller of a request. Raises `Refused` with the answer to a request that may not pass."""
        self.check_host(request)
        # A caller that sends a key knows that there is one, even if it was made a moment ago by another process.
        sends_key = "authorization" in request.headers
        has_keys = await self._keys.any() or (sends_key and await self._keys.any(cached_seconds=0))
        if has_keys and sends_key:
            return await self.caller_with_key(request, _bearer(request))
        self.check_forgery(request)
        return await self._with_cookie(request) if has_keys else self._without_keys(request)

    def check_host(self, request: Request) -> None:
        """Refuse a request for another host: a page can give its own name this machine's address (DNS rebinding), but
        not change the name that the browser sends. /healthz has nothing to hide, and its callers use many names."""
        if request.scope["path"].removeprefix(request.scope.get("root_path", "")) == HEALTH_PATH:
            return
        given = request.headers.getlist("host")
        host = parsed_host(given[0]) if len(given) == 1 else None
        if host is None or not (host[0] in self._hosts or is_ip_literal(host[0])):
            raise refused.wrong_host()

    def check_forgery(self, request: Request) -> None:
        """Refuse a change that a page of another site made a browser send.

        A request with a key in Authorization passes: no page can add that header without being asked first (CORS).
        """
        if request.method in HARMLESS_METHODS or _bearer(request) is not None:
            return
        if any(value != "same-origin" for value in request.headers.getlist("sec-fetch-site")):
            raise refused.from_another_site("Sec-Fetch-Site")
        origins = request.headers.getlist("origin")
        if not origins:
            return
        site = self.site(request)
        if site is None or not all(site.has_origin(origin) for origin in origins):
            raise refused.from_another_site("Origin")

    async def caller_with_key(self, request: Request, text: str | None) -> Caller:
        """The caller who sent this key, in Authorization or to sign in. None is a key that could not be read.

        A valid key always passes, however many wrong ones came from the same address.
        """
        key = await self._keys.find(text or "")
        if key is None:
            retry_after = self._attempts.count_wrong_key(self.address(request))
            raise refused.wrong_key() if retry_after is None else refused.too_many_wrong_keys(retry_after)
        return self._caller(request, key, expires_at=key.expires_at)

    async def is_still_allowed(self, caller: Caller) -> bool:
        """Whether the caller's key and session are still valid, for streams that stay open. At most 5 s old."""
        if caller.key_id is None:
            return not await self._keys.any()
        if caller.expires_at is not None and caller.expires_at <= self._system.now():
            return False
        return await self._keys.named(caller.key_id) is not None

    def address(self, request: Request) -> str:
        return address_of(request, self._trusted_proxies)

    def site(self, request: Request) -> Site | None:
        """The site that browsers see. None when the request has no usable Host header and no public_url is set."""
        return self._public_site or site_of_request(request)

    def _without_keys(self, request: Request) -> Caller:
        if not is_loopback(peer_of(request)):
            raise refused.keys_needed()
        for header in request.headers:
            if header in ("forwarded", "via") or header.startswith("x-forwarded-"):
                raise refused.came_through_a_proxy(_shown_header(header))
        return Caller(role=Role.ADMIN, address=self.address(request))

    async def _with_cookie(self, request: Request) -> Caller:
        site = self.site(request)
        value = None if site is None else request.cookies.get(cookie_name(site))
        if value is None:
            raise refused.no_key()
        session = await self._sessions.read(value, self._system.now())
        key = None if session is None else await self._keys.named(session.key_id)
        if session is None or key is None:
            raise refused.no_session()
        if request.method not in HARMLESS_METHODS:
            _check_own_page(request)
        expires_at = session.expires_at if key.expires_at is None else min(session.expires_at, key.expires_at)
        return self._caller(request, key, expires_at=expires_at, session=sha256(value.encode()).hexdigest())

    def _caller(self, request: Request, key: Key, *, expires_at: datetime | None, session: str | None = None) -> Caller:
        return Caller(
            role=key.role,
            key_id=key.id,
            user=key.user,
            project=key.project,
            address=self.address(request),
            by_cookie=session is not None,
            session=session,
            expires_at=expires_at,
        )


def _checked_name(name: str) -> str:
    parsed = parsed_host(name)
    if parsed is None or parsed[1] is not None:
        raise SettingsError(f"server.hosts has {name!r}; use a name without scheme and port, such as qo.example.com.")
    return parsed[0]


def _bearer(request: Request) -> str | None:
    """The key in Authorization. None without that header, and for one that does not parse."""
    given = request.headers.getlist("authorization")
    if len(given) != 1:
        return None
    scheme, _, text = given[0].strip().partition(" ")
    text = text.strip()
    return text if scheme.lower() == "bearer" and text else None


def _check_own_page(request: Request) -> None:
    # That the two say "ours" was checked before; here it matters that one of them is there.
    if "sec-fetch-site" not in request.headers and "origin" not in request.headers:
        raise refused.not_proven_own("the header Origin or Sec-Fetch-Site")
    if "x-qo-csrf" not in request.headers:
        raise refused.not_proven_own("the header X-Qo-Csrf with any value")


def _shown_header(name: str) -> str:
    return "X-Forwarded-*" if name.startswith("x-forwarded-") else name.title()
