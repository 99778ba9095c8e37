"""API keys: made, listed, revoked, and checked against what a caller sends.

A key is the text `qo_<id>_<secret>`. The store has its id, and of its secret only the SHA-256: the secret is 32 random
bytes, so that a slow hash would add nothing. A record per key, `key:<id>`, is written only by whoever saw its newest
version, so a revocation is never undone by a server that notes a use.

Revoked keys stay in the list. The audit trail names keys by their ids, and a server whose last key was revoked must not
become one without keys, which serves everybody on its machine as an admin.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

import msgspec

from qo.errors import InvalidValue, QoError
from qo.loops.system import SYSTEM, System
from qo.loops.trouble import Trouble
from qo.policy.checks import check_name, shown
from qo.service.access.caller import Role
from qo.service.access.signing import WATCH_SECRET, SigningSecret, encoded
from qo.store.contract import Store
from qo.values import Audited, Record

log = logging.getLogger("qo.service")

RECORD_PREFIX = "key:"
TEXT_PREFIX = "qo"
CACHED_SECONDS = 3.0
"""A revocation counts on every server within this time; streams, which are looked at every second, end a second later
at most."""
CACHED_SECONDS_FOR_WRONG_KEYS = 1.0
"""A key that does not fit may have been made just now, so the keys are read again, once a second at most."""
NOTED_EVERY = timedelta(minutes=1)
NO_DIGEST = "0" * 64
"""Compared with the secret of an unknown key, so that it costs as much time as a wrong secret."""


class KeyNotFound(QoError):
    """No key has this id."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"There is no key {shown(key_id)}; `qo keys list` shows the ids of all keys.")


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key as people may see it."""

    id: str
    role: Role
    user: str | None = None
    project: str | None = None
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    """To the minute: a use is noted at most once a minute."""
    revoked_at: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class NewKey(msgspec.Struct, frozen=True):
    """A key that was just made. `text` is what its owner sends; it cannot be read again."""

    id: str
    text: str

    def __repr__(self) -> str:
        return f"NewKey(id={self.id!r}, text=(hidden))"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("id", self.id), ("text", "(hidden)")]


class _Kept(msgspec.Struct, frozen=True):
    """The value of a key's record."""

    key: Key
    digest: str
    """The SHA-256 of the secret, in hexadecimal digits."""


class Keys:
    """The keys of one store. What `find` and `named` know is at most 5 s old."""

    def __init__(self, store: Store, *, system: System = SYSTEM) -> None:
        self._store = store
        self._system = system
        self._cached: dict[str, _Kept] | None = None
        """None: they have to be read. That there are none is remembered as long as keys are."""
        self._read_at = 0.0
        self._reading = asyncio.Lock()
        self._noted_at: dict[str, datetime] = {}
        self._noting: set[asyncio.Task[None]] = set()
        self._trouble = Trouble("the last use of a key could not be written", log)

    # --- for people -------------------------------------------------------------------------------------------

    async def create(
        self,
        role: Role | str,
        *,
        user: str | None = None,
        project: str | None = None,
        expires_at: datetime | None = None,
        by: str | None = None,
    ) -> NewKey:
        """Make a key. `by` is the author in the audit trail. Raises `InvalidValue`; then none was made."""
        now = self._system.now()
        role = _checked_role(role)
        _check_owner(role, user, project)
        _check_expiry(expires_at, now)
        secret = encoded(self._system.new_secret())
        key = Key(
            id=self._system.new_id(), role=role, user=user, project=project, created_at=now, expires_at=expires_at
        )
        if not await self._put(_Kept(key, _digest(secret)), version=0, audited=_audited("create_key", key, by)):
            raise InvalidValue(f"There is a key {shown(key.id)} already, so none was made; try again.")
        await self._forget_cached()
        return NewKey(key.id, f"{TEXT_PREFIX}_{key.id}_{secret}")

    async def list(self) -> tuple[Key, ...]:
        """All keys as they are in the store, also those that expired or were revoked, by id and so by age."""
        return tuple(kept.key for kept in (await self._read()).values())

    async def revoke(self, key_id: str, *, by: str | None = None) -> Key:
        """Make a key void on every server within 5 s. A second time changes nothing. Raises `KeyNotFound`."""
        while True:
            record, kept = await self._read_one(key_id)
            if kept is None:
                raise KeyNotFound(key_id)
            if kept.key.revoked_at is not None:
                return kept.key
            revoked = msgspec.structs.replace(kept.key, revoked_at=self._system.now())
            audited = _audited("revoke_key", revoked, by)
            if await self._put(_Kept(revoked, kept.digest), version=record.version, audited=audited):
                await self._forget_cached()
                return revoked

    async def rotate_watch(self, *, by: str | None = None) -> None:
        """Make all watch links void, on every server within 5 s."""
        audited = Audited(action="rotate_watch", subject="watch links", detail={}, by=by)
        await SigningSecret(self._store, WATCH_SECRET, system=self._system).rotate(audited)

    # --- for requests -----------------------------------------------------------------------------------------

    async def any(self, *, cached_seconds: float = CACHED_SECONDS) -> bool:
        """Whether a key was ever made, even if it has expired or was revoked. The first key counts at once here, and
        within `cached_seconds` when another process made it."""
        return bool(await self._known(cached_seconds))

    async def find(self, text: str) -> Key | None:
        """The valid key with this text, and note its use. None for any other text: an unknown id takes as much time
        as a wrong secret."""
        prefix, _, rest = text.partition("_")
        key_id, _, secret = rest.partition("_")
        if prefix != TEXT_PREFIX:
            key_id = ""
        digest = _digest(secret)
        for cached_seconds in (CACHED_SECONDS, CACHED_SECONDS_FOR_WRONG_KEYS):
            kept = (await self._known(cached_seconds)).get(key_id)
            fits = hmac.compare_digest(NO_DIGEST if kept is None else kept.digest, digest)
            if kept is not None and fits and kept.key.is_valid(self._system.now()):
                self._note_use(kept.key)
                return kept.key
        return None

    async def named(self, key_id: str) -> Key | None:
        """The valid key with this id, and note its use. Only for an id whose key was checked before."""
        kept = (await self._known(CACHED_SECONDS)).get(key_id)
        if kept is None or not kept.key.is_valid(self._system.now()):
            return None
        self._note_use(kept.key)
        return kept.key

    async def close(self) -> None:
        """Wait until the last uses are written."""
        await asyncio.gather(*self._noting)

    # --- the records ------------------------------------------------------------------------------------------

    async def _known(self, cached_seconds: float) -> dict[str, _Kept]:
        if (known := self._fresh(cached_seconds)) is not None:
            return known
        async with self._reading:  # of many requests one reads, and the others use what it has read
            if (known := self._fresh(cached_seconds)) is None:
                now = self._system.monotonic()
                known = self._cached = await self._read()
                self._read_at = now
            return known

    def _fresh(self, cached_seconds: float) -> dict[str, _Kept] | None:
        return self._cached if self._system.monotonic() - self._read_at < cached_seconds else None

    async def _forget_cached(self) -> None:
        async with self._reading:  # a reading that began before the change would bring the old keys back
            self._cached = None

    async def _read(self) -> dict[str, _Kept]:
        records = await self._store.records(prefix=RECORD_PREFIX)
        return {name.removeprefix(RECORD_PREFIX): _kept_in(record) for name, record in records.items()}

    async def _read_one(self, key_id: str) -> tuple[Record, _Kept | None]:
        name = RECORD_PREFIX + key_id
        record = (await self._store.records(name)).get(name)
        return (Record(), None) if record is None else (record, _kept_in(record))

    async def _put(self, kept: _Kept, *, version: int, audited: Audited | None = None) -> bool:
        value: Any = msgspec.to_builtins(kept)
        return await self._store.put_record(RECORD_PREFIX + kept.key.id, value, version=version, audited=audited)

    # --- last use ---------------------------------------------------------------------------------------------

    def _note_use(self, key: Key) -> None:
        """Write the time of this use beside the request, which neither waits for it nor fails with it."""
        now = self._system.now()
        noted_at = max(filter(None, (key.last_used_at, self._noted_at.get(key.id))), default=None)
        if noted_at is not None and now - noted_at < NOTED_EVERY:
            return
        self._noted_at[key.id] = now
        task = asyncio.create_task(self._write_use(key.id, now))
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)

    async def _write_use(self, key_id: str, now: datetime) -> None:
        try:
            record, kept = await self._read_one(key_id)
            if kept is None:
                return
            if kept.key.last_used_at is not None and now - kept.key.last_used_at < NOTED_EVERY:
                return  # another server has noted a use
            used = msgspec.structs.replace(kept.key, last_used_at=now)
            # If the record was changed in between, another server noted a use or the key was revoked.
            await self._put(_Kept(used, kept.digest), version=record.version)
        except Exception as error:
            self._trouble.tell(error)
        else:
            self._trouble.over()


def _audited(action: str, key: Key, by: str | None) -> Audited:
    """The entry in the audit trail: what the key may do, and nothing of its secret."""
    shown = msgspec.to_builtins(key)
    detail = {name: shown[name] for name in ("role", "user", "project", "expires_at") if shown[name] is not None}
    return Audited(action=action, subject=key.id, detail=detail, by=by)


def _kept_in(record: Record) -> _Kept:
    return msgspec.convert(record.value, _Kept)


def _digest(secret: str) -> str:
    return sha256(secret.encode(errors="replace")).hexdigest()


def _checked_role(role: object) -> Role:
    if not isinstance(role, str) or role not in tuple(Role):
        raise InvalidValue(f"role is {shown(role)}; use admin, viewer or user.")
    return Role(role)


def _check_owner(role: Role, user: str | None, project: str | None) -> None:
    if role is Role.USER and user is None:
        raise InvalidValue("user is missing; a key of role user acts for one user, so name that user.")
    if role is not Role.USER and user is not None:
        raise InvalidValue(f"user is {shown(user)}; only a key of role user has one, and this one has role {role}.")
    if role is not Role.USER and project is not None:
        raise InvalidValue(
            f"project is {shown(project)}; only a key of role user has one, and this one has role {role}."
        )
    if user is not None:
        check_name("user", user)
    if project is not None:
        check_name("project", project)


def _check_expiry(expires_at: object, now: datetime) -> None:
    if expires_at is None:
        return
    if not isinstance(expires_at, datetime) or expires_at.utcoffset() is None:
        raise InvalidValue(
            f"expires_at is {shown(expires_at)}; give a datetime with a time zone, such as UTC, or None."
        )
    if expires_at <= now:
        raise InvalidValue(f"expires_at is {expires_at.isoformat()}, which has passed; give a time in the future.")
