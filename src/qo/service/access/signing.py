"""Signed tokens, and the secrets that sign them.

A token is the payload and its HMAC-SHA256, together in base64url without padding. Each payload has exactly one token
under a secret: reading is strict, so that no second spelling of a token works.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TypeVar

import msgspec

from qo.loops.system import SYSTEM, System
from qo.store.contract import Store
from qo.values import Audited, Record

T = TypeVar("T", bound=msgspec.Struct)

SIGNATURE_BYTES = 32
MAX_TOKEN_CHARACTERS = 4096
BASE64URL = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
CACHED_SECONDS = 5.0
SESSION_SECRET = "secret:session"
WATCH_SECRET = "secret:watch"


def signed_struct(secret: bytes, value: msgspec.Struct) -> str:
    return signed(secret, msgspec.json.encode(value))


def verified_struct(secret: bytes, token: str, kind: type[T]) -> T | None:
    content = verified(secret, token)
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError:
        return None  # signed by another version of qo, whose tokens look different


def milliseconds(at: datetime) -> int:
    """A time as tokens have it, and as stores keep it."""
    return round(at.timestamp() * 1000)


def signed(secret: bytes, payload: bytes) -> str:
    return encoded(payload + hmac.digest(secret, payload, "sha256"))


def signed_structs(secret: bytes, values: Iterable[msgspec.Struct]) -> Iterator[str]:
    """`signed_struct` of each. The secret is prepared once for all of them."""
    prepared = hmac.new(secret, digestmod="sha256")
    for payload in map(msgspec.json.encode, values):
        mac = prepared.copy()
        mac.update(payload)
        yield encoded(payload + mac.digest())


def verified(secret: bytes, token: str) -> bytes | None:
    """The payload of a token that `signed` made with this secret, else None."""
    content = decoded(token)
    if content is None or len(content) < SIGNATURE_BYTES:
        return None
    payload, signature = content[:-SIGNATURE_BYTES], content[-SIGNATURE_BYTES:]
    return payload if hmac.compare_digest(signature, hmac.digest(secret, payload, "sha256")) else None


def encoded(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def decoded(text: str) -> bytes | None:
    """The bytes of a text that `encoded` made, else None."""
    if len(text) > MAX_TOKEN_CHARACTERS or len(text) % 4 == 1 or not BASE64URL.fullmatch(text):
        return None
    content = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    # The last character may have bits that stand for nothing; Python ignores them, so several texts would be equal.
    return content if encoded(content) == text else None


class SigningSecret:
    """A secret in a record of the store, shared by all servers and made on first use."""

    def __init__(self, store: Store, name: str, *, system: System = SYSTEM) -> None:
        self._store = store
        self._name = name
        self._system = system
        self._cached: bytes | None = None
        self._read_at = 0.0
        self._reading = asyncio.Lock()

    async def get(self) -> bytes:
        """The secret, at most 5 s old, so that a rotation counts on every server within that time."""
        async with self._reading:
            now = self._system.monotonic()
            if self._cached is None or now - self._read_at >= CACHED_SECONDS:
                self._cached, self._read_at = await self._read_or_make(), now
            return self._cached

    async def rotate(self, audited: Audited | None = None) -> None:
        """Replace the secret. Tokens made until now are void: here at once, on other servers within 5 s."""
        async with self._reading:
            self._cached = None
            made = self._system.new_secret().hex()
            while not await self._store.put_record(
                self._name, made, version=(await self._record()).version, audited=audited
            ):
                pass  # another rotation, or the first use, came in between: its secret is replaced too

    async def _read_or_make(self) -> bytes:
        record = await self._record()
        if record.value is None:
            # Several servers may come here at once. The store takes one secret, and all of them read that one.
            await self._store.put_record(self._name, self._system.new_secret().hex(), version=record.version)
            record = await self._record()
        return bytes.fromhex(record.value)

    async def _record(self) -> Record:
        return (await self._store.records(self._name)).get(self._name, Record())
