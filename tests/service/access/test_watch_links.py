"""Watch links: a token shows one job until it expires, or until all links are made void."""

from __future__ import annotations

from datetime import timedelta

import pytest

from qo.queue.queue import Queue
from qo.service.access.keys import Keys
from qo.service.access.sessions import Sessions
from qo.service.access.signing import WATCH_SECRET, SigningSecret
from qo.service.access.watch_links import WatchedJob, WatchLinks
from qo.settings import Settings
from qo.store.contract import Store
from tests.service.access.staging import Time

WEEK = timedelta(days=7)


@pytest.fixture
def links(store: Store, time: Time) -> WatchLinks:
    return WatchLinks(store, system=time.system)


@pytest.mark.parametrize("job_id", ["j1", "x/why?#%2F", "ü" * 200, '"\\'])
async def test_a_token_shows_its_job_until_it_expires(links: WatchLinks, time: Time, job_id: str) -> None:
    submitted_at, expires_at = time.now - timedelta(milliseconds=1234), time.now + WEEK
    token = await links.make(job_id, submitted_at, expires_at)

    expected = WatchedJob(job_id=job_id, submitted_at=submitted_at, expires_at=expires_at)
    assert await links.read(token, time.now) == expected
    assert await links.read(token, expires_at - timedelta(milliseconds=1)) == expected
    assert await links.read(token, expires_at) is None
    assert await links.read(token, expires_at + WEEK) is None


async def test_the_submitted_time_is_exactly_that_of_the_job(links: WatchLinks, store: Store, time: Time) -> None:
    job = await Queue(store, Settings()).submit("build")

    watched = await links.read(await links.make(job.id, job.submitted_at, time.now + WEEK), time.now)

    assert watched is not None
    assert watched.submitted_at == job.submitted_at


async def test_every_other_character_makes_a_token_void(links: WatchLinks, time: Time) -> None:
    token = await links.make("j1", time.now, time.now + WEEK)

    for place in range(len(token)):
        changed = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        assert await links.read(changed, time.now) is None
    assert await links.read("", time.now) is None
    assert await links.read(token + "=", time.now) is None


async def test_a_cookie_is_no_watch_link(links: WatchLinks, store: Store, time: Time) -> None:
    value = await Sessions(store, system=time.system).make("j1", time.now)

    assert await links.read(value, time.now) is None


async def test_rotating_makes_all_links_void_everywhere_within_5_seconds(
    links: WatchLinks, keys: Keys, store: Store, time: Time
) -> None:
    session = await Sessions(store, system=time.system).make("k1", time.now)
    token = await links.make("j1", time.now, time.now + WEEK)

    await keys.rotate_watch()
    time.forward(5)
    new = await links.make("j1", time.now, time.now + WEEK)

    assert await links.read(token, time.now) is None
    assert await links.read(new, time.now) is not None
    assert await Sessions(store, system=time.system).read(session, time.now) is not None  # of which this is no matter


async def test_the_secret_of_links_is_one_of_their_own(store: Store, time: Time) -> None:
    await Sessions(store, system=time.system).make("k1", time.now)
    await SigningSecret(store, WATCH_SECRET, system=time.system).get()

    records = await store.records(prefix="secret:")

    assert set(records) == {"secret:session", "secret:watch"}
    assert len({record.value for record in records.values()}) == 2
