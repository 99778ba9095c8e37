"""`qo concurrency` on a bucket. Against a real S3 server."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from qo.store.bucket import BucketSlots
from tests.cli.conftest import Call
from tests.servers.bucket import shared_bucket_server

GROUP = "provider:openai"


@pytest.fixture
def url() -> str:
    return shared_bucket_server().url(f"cli-{secrets.token_hex(6)}")


@pytest.fixture
def concurrency(call: Callable[..., Any], url: str) -> Callable[..., Any]:
    return lambda *arguments: call("concurrency", *arguments, "--url", url)


@pytest.fixture
def hold(url: str) -> Callable[..., int]:
    """Take a slot, as a process elsewhere that dies right afterwards."""

    async def take(holder: str, *, limit: int | None = None, lease_seconds: float = 300) -> int:
        slots = await BucketSlots.open(url)
        slot = await slots.try_acquire(GROUP, limit, holder, "machine-7", lease_seconds)
        await slots.close()
        assert slot is not None
        return slot

    return lambda *args, **options: asyncio.run(take(*args, **options))


def test_a_limit_is_set_shown_and_removed(concurrency: Callable[..., Any], hold: Callable[..., int]) -> None:
    changed = concurrency("set", GROUP, "--limit", "2", "--by", "ops")
    slot = hold("job-1")
    people, programs = concurrency("status", GROUP), concurrency("status", GROUP, "--json")
    removed = concurrency("remove", GROUP, "--json")

    assert changed.out == f"{GROUP} has a limit of 2, set by the operator; 0 in use.\n"
    sentence, header, row = people.out.splitlines()
    assert sentence == f"{GROUP} has a limit of 2, set by the operator; 1 in use."
    assert header.split() == ["slot", "holder", "worker", "lease", "ends"]
    assert row.split()[:3] == [str(slot), "job-1", "machine-7"]
    assert (programs.json["limit"], programs.json["source"], programs.json["active"]) == (2, "operator", 1)
    assert [(each["slot_id"], each["holder"]) for each in programs.json["slots"]] == [(slot, "job-1")]
    assert (removed.json["limit"], removed.json["source"]) == (None, None)
    unlimited = f"{GROUP} has no limit of its own here, so each caller's counts; 1 in use."
    assert concurrency("status", GROUP).out.splitlines()[0] == unlimited


def test_status_without_a_group_lists_the_groups(concurrency: Callable[..., Any], hold: Callable[..., int]) -> None:
    nothing = concurrency("status")
    hold("job-1", limit=1)
    concurrency("set", "gpu", "--limit", "0")
    people, programs = concurrency("status"), concurrency("status", "--json")

    assert nothing.out == "No group has ever had a limit or a holder in this bucket.\n"
    assert people.out.splitlines()[:3] == ["group", "gpu", GROUP]
    assert "qo concurrency status GROUP" in people.out
    assert programs.json == [{"group": "gpu"}, {"group": GROUP}]


def test_a_slot_is_released_by_force_only(concurrency: Callable[..., Any], hold: Callable[..., int]) -> None:
    slot = str(hold("job-1", limit=1))

    refused = concurrency("release", GROUP, slot)
    forced = concurrency("release", GROUP, slot, "--force")
    again = concurrency("release", GROUP, slot, "--force", "--json")
    hold("job-2", limit=1)

    assert (refused.code, forced.code, again.code) == (1, 0, 1)
    assert "release it with force" in refused.err
    assert forced.out == (
        f"Released slot {slot} of {GROUP}; job-1 held it and will find it gone when it next renews its lease.\n"
    )
    assert json.loads(again.err)["kind"] == "SlotNotFound"
    released = concurrency("release", GROUP, slot, "--force", "--json")
    assert released.json == {"group": GROUP, "slot_id": int(slot), "holder": "job-2"}


def test_a_slot_is_freed_after_it_was_watched_unchanged_for_a_whole_lease(
    concurrency: Callable[..., Any], hold: Callable[..., int]
) -> None:
    hold("dead", limit=2, lease_seconds=0.2)
    hold("alive", limit=2, lease_seconds=300)

    people = concurrency("cleanup", GROUP, "--wait", "1s")
    programs = concurrency("cleanup", GROUP, "--wait", "0.1s", "--json")

    assert people.out.splitlines() == [
        f"Watching 2 holders of {GROUP} for 1 second.",
        f"Freed 1 slot of {GROUP}.",
    ]
    assert programs.json == {"group": GROUP, "freed": 0}
    assert [slot["holder"] for slot in concurrency("status", GROUP, "--json").json["slots"]] == ["alive"]


def test_on_a_store_cleaning_up_needs_no_watching(call: Callable[..., Call], empty_store: None) -> None:
    assert call("concurrency", "cleanup", "gpu").out == "Freed 0 slots of gpu.\n"
    assert call("concurrency", "cleanup", "gpu", "--json").json == {"group": "gpu", "freed": 0}


def test_a_wrong_call_says_what_is_right(call: Callable[..., Call], concurrency: Callable[..., Any]) -> None:
    unwatched = concurrency("cleanup", GROUP)
    watched = call("concurrency", "cleanup", GROUP, "--wait", "5m")
    named = concurrency("status", "--namespace", "team-a")
    other = call("jobs", "--url", "s3://somewhere")

    assert [each.code for each in (unwatched, watched, named, other)] == [2, 2, 2, 2]
    assert "--wait 5m" in " ".join(unwatched.err.split())
    assert "--wait is for a bucket" in " ".join(watched.err.split())
    assert "give --url a prefix instead" in " ".join(named.err.split())
    assert "keeps slots and no jobs" in " ".join(other.err.split())


def test_a_missing_bucket_is_exit_code_3_and_the_error_shows_no_secret(call: Callable[..., Call], url: str) -> None:
    missing = urlsplit(url)._replace(netloc="no-such-bucket", query=f"{urlsplit(url).query}-hidden").geturl()

    done = call("concurrency", "status", "--url", missing)

    assert done.code == 3
    assert "make the bucket first" in done.err
    assert "-hidden" not in done.err
