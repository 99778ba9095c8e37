"""A gate, and keys and cookies to pass it with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from qo.service.access.gate import Gate
from qo.service.access.keys import Keys, NewKey
from qo.service.access.sessions import Sessions
from qo.settings.sections import ServerSettings
from qo.store.contract import Store
from qo.store.open import open_store
from tests.service.access.gate.asking import LOCAL_COOKIE, MakeGate
from tests.service.access.staging import Time


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """In memory only: the gate leaves the store to the keys, whose tests use a file too."""
    opened = await open_store("memory://", namespace="default")
    yield opened
    await opened.close()


@pytest.fixture
def sessions(store: Store, time: Time) -> Sessions:
    return Sessions(store, system=time.system)


@pytest.fixture
def make_gate(keys: Keys, sessions: Sessions, time: Time) -> MakeGate:
    def make(**settings: Any) -> Gate:
        return Gate(keys, sessions, ServerSettings(**settings), system=time.system)

    return make


@pytest.fixture
def gate(make_gate: MakeGate) -> Gate:
    return make_gate()


@pytest.fixture
async def admin(keys: Keys) -> NewKey:
    return await keys.create("admin")


@pytest.fixture
async def cookie(sessions: Sessions, admin: NewKey, time: Time) -> dict[str, str]:
    return {"Cookie": f"other=1; {LOCAL_COOKIE}={await sessions.make(admin.id, time.now)}"}
